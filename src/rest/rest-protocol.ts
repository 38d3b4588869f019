/** REST's requests and answers of one message each, for the exchange that all protocols share. */
import type { Message } from "@bufbuild/protobuf";
import { SvcError, invalidField, notFound } from "../errors.ts";
import { isCacheable } from "../lib/cacheable.ts";
import type { FairTurns } from "../lib/fair-turns.ts";
import { declaredSize, mediaType, type IncomingRequest } from "../lib/http-messages.ts";
import type { Operation, UnaryProtocol } from "../rpc/exchange.ts";
import type { HttpCall } from "../rpc/http-call.ts";
import { KeptBody, TextBody, type AnswerBody } from "./answer-body.ts";
import { bindRequest, hasRawBody, withRawBody } from "./bind.ts";
import {
  answerHeaders,
  answerText,
  hasRawAnswer,
  rawAnswer,
  sendRawHead,
  type AnswerHeaders,
} from "./body-streams.ts";
import { errorAnswer } from "./errors.ts";
import type { JsonWriter } from "./json-writer.ts";
import { parseJsonText } from "./json-text.ts";
import { pathProblem } from "./path.ts";
import type { Route } from "./route.ts";
import { Router } from "./router.ts";

/** A route, and what the request's target says besides. */
export interface RestOperation extends Operation {
  readonly route: Route;
  /** Raw segments of the path. */
  readonly segments: readonly string[];
  /** What follows the question mark; empty for none. */
  readonly query: string;
}

export interface RestLimits {
  readonly maxBodyBytes: number;
  readonly bodyTimeoutMs: number;
}

export class RestProtocol implements UnaryProtocol<RestOperation> {
  readonly name = "rest";
  readonly refusesLarge = true;
  readonly maxBodyBytes: number;
  readonly bodyTimeoutMs: number;
  readonly #router: Router;
  readonly #writer: JsonWriter;
  readonly #turns: Pick<FairTurns, "wait">;
  /** Bodies of cacheable answers, which handlers give again and again. */
  readonly #kept = new WeakMap<Message, AnswerBody>();

  constructor(
    routes: Iterable<Route>,
    writer: JsonWriter,
    turns: Pick<FairTurns, "wait">,
    { maxBodyBytes, bodyTimeoutMs }: RestLimits,
  ) {
    this.#turns = turns;
    this.#router = new Router(routes);
    this.#writer = writer;
    this.maxBodyBytes = maxBodyBytes;
    this.bodyTimeoutMs = bodyTimeoutMs;
  }

  recognise({ method: httpMethod = "", url = "" }: IncomingRequest): RestOperation {
    const question = url.indexOf("?");
    const path = question < 0 ? url : url.slice(0, question);
    const problem = pathProblem(path, { escapedSlash: "allow" });
    if (problem !== undefined) throw invalidField("", `the path is not canonical: ${problem}`);

    const match = this.#router.match(httpMethod, path);
    if (match.kind === "not_found") throw notFound("route", `${httpMethod} ${path}`);
    if (match.kind === "method_not_allowed") throw new MethodNotAllowed(httpMethod, path, match.allow);
    const { route, segments } = match;
    return { method: route.method, route, segments, query: question < 0 ? "" : url.slice(question + 1) };
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
    if (route.body === "") throw invalidField("", `${request.method ?? ""} takes no body here`);
    if (mediaType(request) === "") throw unsupportedMediaType("a body without a content type");
    return bindRequest({ route, segments, query, body: parseJsonText(bytes, !user.root) });
  }

  send({ route }: RestOperation, answer: Message, call: HttpCall): Promise<void> | void {
    const headers = answerHeaders(call.requestId, call.responseHeader);
    if (!hasRawAnswer(route)) {
      const { output } = route.method;
      if (route.responseBody === "" && !isCacheable(answer) && this.#writer.isLong(output, answer))
        return this.#sendInTurns(route, answer, call, headers);
      sendJson(call, 200, headers, this.#answerBody(route, answer));
      return undefined;
    }
    const raw = rawAnswer(route, answer);
    sendRawHead(call.response, headers, raw);
    call.response.end(call.request.method === "HEAD" ? undefined : raw?.data);
    return undefined;
  }

  /** A thousand messages are a tenth of a second of everybody's time: the answer is written in turns of its user. */
  async #sendInTurns(route: Route, answer: Message, call: HttpCall, headers: AnswerHeaders): Promise<void> {
    const pieces: Buffer[] = [];
    for (const piece of this.#writer.slices(route.method.output, answer)) {
      pieces.push(piece);
      await this.#turns.wait(call.share);
      // Its client may have left.
      call.source.signal.throwIfAborted();
    }
    sendJson(call, 200, headers, new KeptBody(pieces));
  }

  fail(call: HttpCall, error: SvcError): void {
    const allow = error instanceof MethodNotAllowed ? error.allow : undefined;
    const { status, headers, body } = errorAnswer(this.#writer, error, allow);
    sendJson(call, status, { ...answerHeaders(call.requestId), ...headers }, new TextBody(body));
  }

  #answerBody(route: Route, message: Message): AnswerBody {
    const kept = this.#kept.get(message);
    if (kept !== undefined) return kept;
    if (route.responseBody !== "" || !isCacheable(message))
      return new TextBody(answerText(this.#writer, route, message));
    const body = new KeptBody(this.#writer.bytes(route.method.output, message));
    this.#kept.set(message, body);
    return body;
  }
}

class MethodNotAllowed extends SvcError<"method_not_allowed"> {
  readonly allow: readonly string[];

  constructor(httpMethod: string, path: string, allow: readonly string[]) {
    super("method_not_allowed", `${path} does not take ${httpMethod}, but ${allow.join(", ")}`);
    this.allow = allow;
  }
}

/** What changes something is JSON or nothing at all, whoever makes a browser send it. */
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
  return new SvcError("unsupported_media_type", `${what} is not taken here; send application/json`);
}

function sendJson(
  { request, response }: HttpCall,
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
