/** Unary requests and responses of REST, for the exchange that all protocols share. */
import type { Message } from "@bufbuild/protobuf";
import { SvcError, invalidField, notFound } from "../../errors.ts";
import type { FairQueue } from "../../lib/fair-queue.ts";
import { declaredSize, mediaType, type IncomingRequest } from "../../lib/http-messages.ts";
import type { Operation, UnaryProtocol } from "../rpc/exchange.ts";
import type { HttpCall, HttpCaller } from "../rpc/http-call.ts";
import type { CanonicalPath } from "../rpc/http-request.ts";
import { bindRequest, hasRawBody, withRawBody } from "./bind.ts";
import {
  responseHeaders,
  responseText,
  hasRawResponse,
  rawBodyOf,
  writeRawHead,
  type ResponseHeaders,
} from "./body-streams.ts";
import { errorResponse } from "./errors.ts";
import type { JsonWriter } from "./json-writer.ts";
import { parseJsonText } from "./json-text.ts";
import type { Route, Router } from "./router.ts";

/** A route, and the data in the request target. */
export interface RestOperation extends Operation {
  readonly route: Route;
  /** Raw segments of the path. */
  readonly segments: readonly string[];
  /** Query without its question mark; empty without a query. */
  readonly query: string;
}

/** The caller of a request whose path is canonical. */
export interface RestCaller extends HttpCaller {
  readonly path: CanonicalPath;
}

export interface RestLimits {
  readonly maxBodyBytes: number;
  readonly bodyTimeoutMs: number;
}

export class RestProtocol implements UnaryProtocol<RestOperation, RestCaller> {
  readonly name = "rest";
  readonly rejectsLarge = true;
  readonly maxBodyBytes: number;
  readonly bodyTimeoutMs: number;
  readonly #router: Router;
  readonly #writer: JsonWriter;
  readonly #fairQueue: Pick<FairQueue, "wait">;
  /** The JSON of long messages. A handler that returns a message again has not changed the message since. */
  readonly #longBodies = new WeakMap<Message, Buffer>();

  constructor(
    router: Router,
    writer: JsonWriter,
    fairQueue: Pick<FairQueue, "wait">,
    { maxBodyBytes, bodyTimeoutMs }: RestLimits,
  ) {
    this.#fairQueue = fairQueue;
    this.#router = router;
    this.#writer = writer;
    this.maxBodyBytes = maxBodyBytes;
    this.bodyTimeoutMs = bodyTimeoutMs;
  }

  recognise({ method: httpMethod = "", url = "" }: IncomingRequest, { path }: RestCaller): RestOperation {
    const match = this.#router.match(httpMethod, path);
    if (match.kind === "not_found") throw notFound("route", `${httpMethod} ${path}`);
    if (match.kind === "method_not_allowed") throw new MethodNotAllowed(httpMethod, path, match.allow);
    const { route, segments } = match;
    return { method: route.method, route, segments, query: url.slice(path.length + 1) };
  }

  admit({ route }: RestOperation, { request }: HttpCall): void {
    if (!hasRawBody(route)) checkContentType(request);
  }

  message({ route, segments, query }: RestOperation, bytes: Buffer, { request, user }: HttpCall): Message {
    if (hasRawBody(route)) {
      const message = bindRequest({ route, segments, query, body: undefined });
      return withRawBody(route, message, request.headers["content-type"] ?? "", bytes);
    }
    if (bytes.length === 0) return bindRequest({ route, segments, query, body: undefined });
    if (route.body === "") throw invalidField("", `${request.method ?? ""} cannot have a body here`);
    if (mediaType(request) === "") throw unsupportedMediaType("a body without a content type");
    return bindRequest({ route, segments, query, body: parseJsonText(bytes, !user.root) });
  }

  send({ route }: RestOperation, message: Message, call: HttpCall): Promise<void> | void {
    const headers = responseHeaders(call.requestId, call.responseHeader);
    if (!hasRawResponse(route)) {
      const { output } = route.method;
      if (route.responseBody === "" && this.#writer.isLong(output, message))
        return this.#sendLong(route, message, call, headers);
      sendJson(call, 200, headers, responseText(this.#writer, route, message));
      return undefined;
    }
    const raw = rawBodyOf(route, message);
    writeRawHead(call.response, headers, raw);
    call.response.end(call.request.method === "HEAD" ? undefined : raw?.data);
    return undefined;
  }

  #sendLong(
    route: Route,
    message: Message,
    call: HttpCall,
    headers: ResponseHeaders,
  ): Promise<void> | undefined {
    const body = this.#longBodies.get(message);
    if (body === undefined) return this.#sendInSlices(route, message, call, headers);
    sendJson(call, 200, headers, body);
    return undefined;
  }

  /** Writes a long response in slices, because a thousand messages would block the event loop for a tenth of a second. */
  async #sendInSlices(
    route: Route,
    message: Message,
    call: HttpCall,
    headers: ResponseHeaders,
  ): Promise<void> {
    const chunks: Buffer[] = [];
    for (const chunk of this.#writer.slices(route.method.output, message)) {
      chunks.push(chunk);
      await this.#fairQueue.wait(call.share);
      // The client may have disconnected.
      call.source.signal.throwIfAborted();
    }
    const body = Buffer.concat(chunks);
    this.#longBodies.set(message, body);
    sendJson(call, 200, headers, body);
  }

  fail(call: HttpCall, error: SvcError): void {
    const allow = error instanceof MethodNotAllowed ? error.allow : undefined;
    const { status, headers, body } = errorResponse(this.#writer, error, allow);
    sendJson(call, status, { ...responseHeaders(call.requestId), ...headers }, body);
  }
}

class MethodNotAllowed extends SvcError<"method_not_allowed"> {
  readonly allow: readonly string[];

  constructor(httpMethod: string, path: string, allow: readonly string[]) {
    super("method_not_allowed", `${httpMethod} is not allowed on ${path}; allowed: ${allow.join(", ")}`);
    this.allow = allow;
  }
}

/** Requires JSON or no body for changes: browsers send other types across origins without asking the daemon first. */
function checkContentType(request: IncomingRequest): void {
  const isRead = request.method === "GET" || request.method === "HEAD";
  const type = mediaType(request);
  if (type !== "" && type !== "application/json" && !(isRead && declaredSize(request) === 0)) {
    throw unsupportedMediaType(`"${type}"`);
  }
  const encoding = request.headers["content-encoding"];
  if (encoding !== undefined && encoding !== "identity")
    throw unsupportedMediaType(`content encoding "${encoding}"`);
}

function unsupportedMediaType(what: string): SvcError {
  return new SvcError("unsupported_media_type", `${what} is not supported; send application/json`);
}

function sendJson(
  { request, response }: HttpCall,
  status: number,
  headers: ResponseHeaders,
  body: string | Buffer,
): void {
  const sizeBytes = Buffer.byteLength(body);
  headers["content-type"] = "application/json";
  headers["content-length"] = sizeBytes;
  response.writeHead(status, headers);
  if (request.method === "HEAD") response.end();
  // Most texts are ASCII, which needs no conversion to UTF-8.
  else if (body.length === sizeBytes) response.end(body, "latin1");
  else response.end(body);
}
