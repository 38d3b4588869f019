/** REST over node's `http` and `http2` servers: path → route → gate → body → message → pipeline → answer. */
import type { Message } from "@bufbuild/protobuf";
import { SvcError, clientGone, invalidField, notFound } from "../errors.ts";
import { AbortSource } from "../lib/abort-source.ts";
import type { BodyTurn } from "../lib/body-turns.ts";
import { KeptBody, TextBody } from "./answer-body.ts";
import type { AnswerBody } from "./answer-body.ts";
import { bindRequest, hasRawBody, withRawBody } from "./bind.ts";
import {
  answerHeaders,
  answerText,
  hasRawAnswer,
  rawAnswer,
  sendRawHead,
  sendStream,
  uploadMessages,
} from "./body-streams.ts";
import type { AnswerHeaders } from "./body-streams.ts";
import { errorAnswer } from "./errors.ts";
import { JsonWriter } from "./json-writer.ts";
import { parseJsonText } from "./json-text.ts";
import { pathProblem } from "./path.ts";
import { declaredSize, discardBody, mediaType, readBody } from "./request-body.ts";
import type { BodyLimits } from "./request-body.ts";
import type { RestCall, RestPipeline, RestRequest, RestResponse } from "./rest-pipeline.ts";
import type { Route } from "./route.ts";
import { createRouter } from "./router.ts";
import type { RouteMatch } from "./router.ts";

export interface RestHandlerOptions<Call extends RestCall> {
  readonly routes: Iterable<Route>;
  readonly pipeline: RestPipeline<Call>;
  /** Paths below it are REST's, whether a route has them or not; elsewhere the routes' own without variables. Default `/v1/`. */
  readonly prefix?: string;
  /** Default 1 MiB; uploads have no bound here. */
  readonly maxBodyBytes?: number;
  /** Default 30 s. */
  readonly bodyTimeoutMs?: number;
  /** Ends every call under way. */
  readonly shutdownSignal?: AbortSignal;
  /** What every answer to the request says as its `x-request-id`. Default: nothing. */
  readonly requestIdOf?: (request: RestRequest) => string;
  /** Logs an error that is meant for nobody, and makes the one that the caller gets: `internal`, with a request id. */
  readonly internalError: (error: unknown, request: RestRequest) => SvcError;
  /** Hears of every error that is answered. Default: nobody. */
  readonly failed?: (request: RestRequest, error: SvcError) => void;
  /** Whether little may be in the body of a request, however large it is: reading much keeps all waiting. Default: of none. */
  readonly isBounded?: (request: RestRequest) => boolean;
  /** The turn of a request's body among its user's. Default: none. */
  readonly openTurn?: (request: RestRequest) => BodyTurn;
}

/**
 * Serves a request, or answers `false` when its path is not REST's. The promise never rejects; it resolves when the
 * answer has been handed over.
 */
export type RestHandler = (request: RestRequest, response: RestResponse) => false | Promise<void>;

/** A REST handler for HTTP/1.1 and HTTP/2 servers alike. */
export function createRestHandler<Call extends RestCall>(options: RestHandlerOptions<Call>): RestHandler {
  const prefix = options.prefix ?? "/v1/";
  const server = new RestServer(options);
  const outside = new Set(
    Array.from(options.routes, ({ template }) => template.source).filter((path) => !path.startsWith(prefix)),
  );
  return (request, response) => {
    const { url } = request;
    if (url === undefined) return false;
    const isRest = url.startsWith(prefix) || outside.has(url.split("?", 1)[0] ?? "");
    return isRest && server.serve(request, response, url);
  };
}

class RestServer<Call extends RestCall> {
  readonly #pipeline: RestPipeline<Call>;
  readonly #router;
  readonly #writer = new JsonWriter();
  /** Bodies of frozen answers that handlers give again and again. */
  readonly #kept = new WeakMap<Message, AnswerBody>();
  readonly #limits: BodyLimits;
  readonly #internalError: RestHandlerOptions<Call>["internalError"];
  readonly #failed: RestHandlerOptions<Call>["failed"];
  readonly #openTurn: RestHandlerOptions<Call>["openTurn"];
  readonly #isBounded: (request: RestRequest) => boolean;
  readonly #requestIdOf: (request: RestRequest) => string;
  readonly #shutdownSignal: AbortSignal | undefined;
  /** The ends of the calls under way. */
  readonly #live = new Map<RestResponse, AbortSource>();
  /** One listener for all responses: making, adding and removing one for each costs more than routing does. */
  readonly #onGone: (this: RestResponse) => void;

  constructor(options: RestHandlerOptions<Call>) {
    this.#pipeline = options.pipeline;
    this.#router = createRouter(options.routes);
    this.#limits = {
      maxBodyBytes: options.maxBodyBytes ?? 1024 * 1024,
      bodyTimeoutMs: options.bodyTimeoutMs ?? 30_000,
    };
    this.#internalError = options.internalError;
    this.#failed = options.failed;
    this.#openTurn = options.openTurn;
    this.#isBounded = options.isBounded ?? (() => false);
    this.#requestIdOf = options.requestIdOf ?? (() => "");
    const live = this.#live;
    this.#onGone = function () {
      live.get(this)?.abort(clientGone());
    };
    const { shutdownSignal } = options;
    this.#shutdownSignal = shutdownSignal;
    shutdownSignal?.addEventListener("abort", () => {
      for (const source of live.values()) source.abort(shutdownSignal.reason);
    });
  }

  async serve(request: RestRequest, response: RestResponse, url: string): Promise<void> {
    const source = new AbortSource();
    this.#live.set(response, source);
    if (this.#shutdownSignal?.aborted === true) source.abort(this.#shutdownSignal.reason);
    response.on("close", this.#onGone).on("error", this.#onGone);
    try {
      await this.#answer(request, response, url, source);
    } catch (error) {
      this.#fail(request, response, error);
    } finally {
      this.#live.delete(response);
    }
  }

  #answer(request: RestRequest, response: RestResponse, url: string, source: AbortSource): Promise<void> {
    const question = url.indexOf("?");
    const path = question < 0 ? url : url.slice(0, question);
    const problem = pathProblem(path, { escapedSlash: "allow" });
    if (problem !== undefined) throw invalidField("", `the path is not canonical: ${problem}`);

    const httpMethod = request.method ?? "";
    const match = this.#router.match(httpMethod, path);
    const method = match.kind === "route" ? match.route.method : undefined;
    const call = this.#pipeline.gate(method, request, source);
    if (match.kind === "not_found") throw notFound("route", `${httpMethod} ${path}`);
    if (match.kind === "method_not_allowed") throw new MethodNotAllowed(httpMethod, path, match.allow);

    const query = question < 0 ? "" : url.slice(question + 1);
    return this.#dispatch(match, { request, response, query, call });
  }

  async #dispatch(
    { route, segments }: Extract<RouteMatch, { kind: "route" }>,
    {
      request,
      response,
      query,
      call,
    }: { request: RestRequest; response: RestResponse; query: string; call: Call },
  ): Promise<void> {
    const { method } = route;
    const headOnly = request.method === "HEAD";
    if (method.methodKind === "client_streaming") {
      const first = bindRequest({ route, segments, query, body: undefined });
      const answer = await this.#pipeline.clientStream(method, uploadMessages(route, first, request), call);
      this.#sendMessage(route, request, response, call, answer);
      return;
    }
    const message =
      declaredSize(request) === 0 && !hasRawBody(route)
        ? this.#emptyMessage(route, segments, query, request)
        : await this.#readMessage(route, segments, query, request);
    if (method.methodKind === "server_streaming") {
      const messages = this.#pipeline.serverStream(method, message, call);
      const headers = (): AnswerHeaders => this.#answerHeaders(request, call);
      await sendStream({ route, response, headers, writer: this.#writer }, messages, headOnly);
    } else {
      this.#sendMessage(route, request, response, call, await this.#pipeline.unary(method, message, call));
    }
  }

  /** The message of a request without a body: nothing to wait for. */
  #emptyMessage(route: Route, segments: readonly string[], query: string, request: RestRequest): Message {
    checkContentType(request);
    return bindRequest({ route, segments, query, body: undefined });
  }

  async #readMessage(
    route: Route,
    segments: readonly string[],
    query: string,
    request: RestRequest,
  ): Promise<Message> {
    const isRaw = hasRawBody(route);
    if (!isRaw) checkContentType(request);
    using turn = this.#openTurn?.(request);
    const bytes = await readBody(request, this.#limits, turn);
    await turn?.whole();
    if (isRaw) {
      const message = bindRequest({ route, segments, query, body: undefined });
      return withRawBody(route, message, String(request.headers["content-type"] ?? ""), bytes);
    }
    if (bytes.length === 0) return bindRequest({ route, segments, query, body: undefined });
    if (route.body === "") throw invalidField("", `${request.method ?? ""} takes no body here`);
    if (mediaType(request) === "") throw unsupportedMediaType("a body without a content type");
    const body = parseJsonText(bytes, this.#isBounded(request));
    return bindRequest({ route, segments, query, body });
  }

  #sendMessage(
    route: Route,
    request: RestRequest,
    response: RestResponse,
    call: Call,
    message: Message,
  ): void {
    discardBody(request, response);
    if (hasRawAnswer(route)) {
      const raw = rawAnswer(route, message);
      sendRawHead(response, this.#answerHeaders(request, call), raw);
      response.end(request.method === "HEAD" ? undefined : raw?.data);
      return;
    }
    const body = this.#answerBody(route, message);
    sendJson(request, response, 200, this.#answerHeaders(request, call), body);
  }

  #answerHeaders(request: RestRequest, call: RestCall | undefined): AnswerHeaders {
    return answerHeaders(this.#requestIdOf(request), call);
  }

  #answerBody(route: Route, message: Message): AnswerBody {
    const kept = this.#kept.get(message);
    if (kept !== undefined) return kept;
    if (route.responseBody !== "" || !Object.isFrozen(message))
      return new TextBody(answerText(this.#writer, route, message));
    const body = new KeptBody(this.#writer.bytes(route.method.output, message));
    this.#kept.set(message, body);
    return body;
  }

  #fail(request: RestRequest, response: RestResponse, error: unknown): void {
    if (response.headersSent) {
      breakOff(response);
      return;
    }
    discardBody(request, response);
    const known = isShown(error) ? error : this.#internalError(error, request);
    this.#failed?.(request, known);
    const allow = error instanceof MethodNotAllowed ? error.allow : undefined;
    const { status, headers, body } = errorAnswer(this.#writer, known, allow);
    const all = Object.assign(this.#answerHeaders(request, undefined), headers);
    sendJson(request, response, status, all, new TextBody(body));
  }
}

/** HTTP/2's INTERNAL_ERROR (RFC 9113, section 7). */
const streamInternalError = 0x2;

/** The status is out: only a broken connection, or a reset stream, can still say that this is not the whole answer. */
function breakOff(response: RestResponse): void {
  if (response.stream === undefined) response.destroy();
  else response.stream.close(streamInternalError);
}

/** Whether an error was made for the caller to see. */
function isShown(error: unknown): error is SvcError {
  return error instanceof SvcError;
}

class MethodNotAllowed extends SvcError<"method_not_allowed"> {
  readonly allow: readonly string[];

  constructor(httpMethod: string, path: string, allow: readonly string[]) {
    super("method_not_allowed", `${path} does not take ${httpMethod}, but ${allow.join(", ")}`);
    this.allow = allow;
  }
}

/** What changes something is JSON or nothing at all, whoever makes a browser send it. */
function checkContentType(request: RestRequest): void {
  const isRead = request.method === "GET" || request.method === "HEAD";
  const type = mediaType(request);
  if (type !== "" && type !== "application/json" && !(isRead && declaredSize(request) === 0)) {
    throw unsupportedMediaType(`"${type}"`);
  }
  const encoding = request.headers["content-encoding"];
  if (encoding !== undefined && encoding !== "identity")
    throw unsupportedMediaType(`content encoding "${String(encoding)}"`);
}

function unsupportedMediaType(what: string): SvcError {
  return new SvcError("unsupported_media_type", `${what} is not taken here; send application/json`);
}

function sendJson(
  request: RestRequest,
  response: RestResponse,
  status: number,
  headers: AnswerHeaders,
  body: AnswerBody,
): void {
  headers["content-type"] = "application/json";
  headers["content-length"] = body.sizeBytes;
  response.writeHead(status, headers);
  if (request.method === "HEAD") response.end();
  else body.send(response);
}
