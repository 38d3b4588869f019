/** Streams over REST: raw uploads and downloads (google.api.HttpBody) and newline-delimited JSON, with backpressure. */
import { type DescMessage, type Message, create } from "@bufbuild/protobuf";
import { clientGone } from "../../errors.ts";
import { isCanceledByClient, type IncomingRequest, type OutgoingResponse } from "../../lib/http-messages.ts";
import { withKeepAlives } from "../rpc/keep-alive.ts";
import { withRawBody } from "./bind.ts";
import { findField } from "./explain-json.ts";
import type { JsonWriter } from "./json-writer.ts";
import type { Route } from "./router.ts";

/** The raw bytes of a google.api.HttpBody. */
interface RawBody extends Message {
  readonly contentType: string;
  readonly data: Uint8Array;
}

/**
 * The messages of an upload: each has a chunk of the body, and the first one also has the fields of path and query.
 * An empty body is one message without bytes. The next chunk is read when the handler requests it.
 * @throws SvcError `canceled` if the client disconnects before the end
 */
export async function* uploadMessages(
  route: Route,
  first: Message,
  request: IncomingRequest,
): AsyncGenerator<Message> {
  const contentType = request.headers["content-type"] ?? "";
  let message = first;
  let isFirst = true;
  try {
    // Keep the request open if the handler stops reading, because its response must still be sent.
    for await (const chunk of request.iterator({ destroyOnReturn: false })) {
      yield withRawBody(route, message, isFirst ? contentType : "", chunk as Uint8Array);
      message = create(route.method.input);
      isFirst = false;
    }
  } catch {
    // HTTP/1 and HTTP/2 throw different errors, but all mean that the body is incomplete.
    throw clientGone();
  }
  if (await isCanceledByClient(request)) throw clientGone();
  if (isFirst) yield withRawBody(route, first, contentType, new Uint8Array());
}

/** The raw body in a response message; undefined for routes with JSON responses. */
export function rawBodyOf({ method, responseBody }: Route, message: Message): RawBody | undefined {
  if (responseBody === "") return message as RawBody;
  const field = findField(method.output, responseBody);
  return field && (message as unknown as Record<string, RawBody | undefined>)[field.localName];
}

/** Whether the response of a route is raw bytes. */
export function hasRawResponse({ method, responseBody }: Route): boolean {
  const message: DescMessage | undefined =
    responseBody === "" ? method.output : findField(method.output, responseBody)?.message;
  return message?.typeName === "google.api.HttpBody";
}

/** Sends status and headers of a raw response. The content type is in the message, the other headers are from the handler. */
export function writeRawHead(
  response: OutgoingResponse,
  headers: ResponseHeaders,
  raw: RawBody | undefined,
): void {
  headers["content-type"] =
    raw?.contentType === undefined || raw.contentType === "" ? "application/octet-stream" : raw.contentType;
  response.writeHead(headers["content-range"] === undefined ? 200 : 206, headers);
}

/** Tells nginx to pass each piece on at once, which it otherwise does not do when it compresses. */
const unbuffered = { "x-accel-buffering": "no" };

export type ResponseHeaders = Record<string, string | number>;

/** The headers of every response, and those that the handler added. */
export function responseHeaders(requestId: string, added?: Headers): ResponseHeaders {
  const headers: ResponseHeaders = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
  };
  if (requestId !== "") headers["x-request-id"] = requestId;
  if (added !== undefined) for (const [name, value] of added) headers[name] = value;
  return headers;
}

/**
 * Sends a stream of messages, as raw bytes or as one line of JSON each. Headers are sent with the first message, so that an
 * earlier error has its status; a later error can only close the connection. Whenever a stream of lines was silent for
 * `keepAliveMs`, it sends an empty line, because proxies close silent responses. The handler may reuse the memory of raw
 * bytes when the next message is requested.
 * @param headOnly whether to end the response after its headers
 */
export async function sendStream(
  {
    route,
    response,
    headers,
    writer,
    keepAliveMs,
  }: {
    route: Route;
    response: OutgoingResponse;
    headers: () => ResponseHeaders;
    writer: JsonWriter;
    keepAliveMs: number;
  },
  messages: AsyncIterable<Message>,
  headOnly: boolean,
): Promise<void> {
  const isRaw = hasRawResponse(route);
  const sendHead = (message: Message | undefined): void => {
    if (isRaw) writeRawHead(response, headers(), message && rawBodyOf(route, message));
    else response.writeHead(200, { ...headers(), "content-type": "application/x-ndjson", ...unbuffered });
  };
  const pieces: AsyncIterable<Message | undefined> =
    isRaw || headOnly ? messages : withKeepAlives(messages, keepAliveMs, () => undefined);
  for await (const message of pieces) {
    if (!response.headersSent) sendHead(message);
    if (headOnly) break;
    if (message === undefined) {
      // Lines that were not sent yet are enough.
      if (response.writableLength === 0) response.write("\n");
    } else if (isRaw) {
      const bytes = rawBodyOf(route, message)?.data;
      if (bytes !== undefined && bytes.length > 0) await writeOut(response, bytes);
    } else {
      await write(response, `${responseText(writer, route, message)}\n`);
    }
  }
  if (!response.headersSent) sendHead(undefined);
  response.end();
}

/** The JSON of a response message. */
export function responseText(writer: JsonWriter, { method, responseBody }: Route, message: Message): string {
  const field = responseBody === "" ? undefined : findField(method.output, responseBody);
  return field === undefined ? writer.message(method.output, message) : writer.field(field, message);
}

/** Writes, and waits until the kernel has all bytes. @throws SvcError `canceled` if the client disconnects first */
function writeOut(response: OutgoingResponse, bytes: Uint8Array): Promise<void> {
  return new Promise((resolve, reject) => {
    const onClose = (): void => reject(clientGone());
    response.once("close", onClose);
    response.write(bytes, (error) => {
      response.removeListener("close", onClose);
      if (error) reject(clientGone());
      else resolve();
    });
  });
}

/** Writes, and waits until the client reads. @throws SvcError `canceled` if the client disconnects first */
function write(response: OutgoingResponse, text: string): Promise<void> | undefined {
  if (response.write(text)) return undefined;
  return new Promise((resolve, reject) => {
    const onDrain = (): void => {
      response.removeListener("close", onClose);
      resolve();
    };
    const onClose = (): void => {
      response.removeListener("drain", onDrain);
      reject(clientGone());
    };
    response.once("drain", onDrain);
    response.once("close", onClose);
  });
}
