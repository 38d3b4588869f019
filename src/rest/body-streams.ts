/** Streams over REST: raw uploads and downloads (google.api.HttpBody) and newline-delimited JSON, with backpressure both ways. */
import { type DescMessage, type Message, create } from "@bufbuild/protobuf";
import { clientGone } from "../errors.ts";
import { isGivenUp, type IncomingRequest, type OutgoingResponse } from "../lib/http-messages.ts";
import { withRawBody } from "./bind.ts";
import { findField } from "./explain-json.ts";
import type { JsonWriter } from "./json-writer.ts";
import type { Route } from "./route.ts";

/** The raw bytes of a google.api.HttpBody. */
interface RawBody extends Message {
  readonly contentType: string;
  readonly data: Uint8Array;
}

/**
 * The messages of an upload: path and query fields ride in the first one, each has the next piece of the body.
 * An empty body is one message without bytes. The next piece is read when the handler asks for it.
 * @throws SvcError `canceled` when the client goes away before the end
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
    // The request outlives a handler that stops reading: its answer still has to go out.
    for await (const chunk of request.iterator({ destroyOnReturn: false })) {
      yield withRawBody(route, message, isFirst ? contentType : "", chunk as Uint8Array);
      message = create(route.method.input);
      isFirst = false;
    }
  } catch {
    // Whatever HTTP/1 and HTTP/2 call it: the rest of the body will never come.
    throw clientGone();
  }
  if (await isGivenUp(request)) throw clientGone();
  if (isFirst) yield withRawBody(route, first, contentType, new Uint8Array());
}

/** The raw body that a message of the route's answer is or holds; undefined for routes that answer with JSON. */
export function rawAnswer({ method, responseBody }: Route, message: Message): RawBody | undefined {
  if (responseBody === "") return message as RawBody;
  const field = findField(method.output, responseBody);
  return field && (message as unknown as Record<string, RawBody | undefined>)[field.localName];
}

/** Whether a route answers with raw bytes. */
export function hasRawAnswer({ method, responseBody }: Route): boolean {
  const message: DescMessage | undefined =
    responseBody === "" ? method.output : findField(method.output, responseBody)?.message;
  return message?.typeName === "google.api.HttpBody";
}

/** Status and headers of a raw answer: its content type is the message's, the rest what the handler put on the call. */
export function sendRawHead(
  response: OutgoingResponse,
  headers: AnswerHeaders,
  raw: RawBody | undefined,
): void {
  headers["content-type"] =
    raw?.contentType === undefined || raw.contentType === "" ? "application/octet-stream" : raw.contentType;
  response.writeHead(headers["content-range"] === undefined ? 200 : 206, headers);
}

export type AnswerHeaders = Record<string, string | number>;

/** The headers that every answer has, and those that the handler asked for. */
export function answerHeaders(requestId: string, added?: Headers): AnswerHeaders {
  const headers: AnswerHeaders = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
  };
  if (requestId !== "") headers["x-request-id"] = requestId;
  if (added !== undefined) for (const [name, value] of added) headers[name] = value;
  return headers;
}

/**
 * Sends a stream of answers: raw bytes, or a line of JSON each. Nothing is sent before the first message, so that an error
 * up to there still has its status; after it, an error can only end the connection. The memory of raw bytes is the
 * handler's again once it is asked for the next message.
 * @param headOnly send the headers that the first message makes, and end the stream there
 */
export async function sendStream(
  {
    route,
    response,
    headers,
    writer,
  }: { route: Route; response: OutgoingResponse; headers: () => AnswerHeaders; writer: JsonWriter },
  messages: AsyncIterable<Message>,
  headOnly: boolean,
): Promise<void> {
  const isRaw = hasRawAnswer(route);
  const sendHead = (message: Message | undefined): void => {
    if (isRaw) sendRawHead(response, headers(), message && rawAnswer(route, message));
    else response.writeHead(200, { ...headers(), "content-type": "application/x-ndjson" });
  };
  for await (const message of messages) {
    if (!response.headersSent) sendHead(message);
    if (headOnly) break;
    if (isRaw) {
      const bytes = rawAnswer(route, message)?.data;
      if (bytes !== undefined && bytes.length > 0) await writeOut(response, bytes);
    } else {
      await write(response, `${answerText(writer, route, message)}\n`);
    }
  }
  if (!response.headersSent) sendHead(undefined);
  response.end();
}

/** The JSON of a message of the route's answer. */
export function answerText(writer: JsonWriter, { method, responseBody }: Route, message: Message): string {
  const field = responseBody === "" ? undefined : findField(method.output, responseBody);
  return field === undefined ? writer.message(method.output, message) : writer.field(field, message);
}

/** Writes, and waits until the kernel has it all. @throws SvcError `canceled` when the client goes away meanwhile */
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

/** Writes, and waits while the client does not read. @throws SvcError `canceled` when it goes away meanwhile */
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
