/**
 * What every request passes, in the order of D8: canonical path, Host and Origin, identity (pages need none); then REST,
 * then Connect and gRPC, which ask for access before they read a byte of the body.
 */
import { randomBytes } from "node:crypto";
import { ServerResponse } from "node:http";
import { SvcError, invalidField, notFound } from "../errors.ts";
import type { BodyTurns } from "../lib/body-turns.ts";
import { declaredSize, mediaType } from "../lib/http-messages.ts";
import { Tally } from "../lib/tally.ts";
import { JsonWriter } from "../rest/json-writer.ts";
import { pathProblem } from "../rest/path.ts";
import type { RestHandler } from "../rest/rest-handler.ts";
import { isSvcError, shownError } from "../rpc/error-mapping.ts";
import type { Exchange } from "../rpc/exchange.ts";
import type { Pipeline } from "../rpc/pipeline.ts";
import { anonymous } from "../rpc/user-context.ts";
import type { AnswerNotes } from "./answer-notes.ts";
import type { Connection } from "./connection.ts";
import { refusePlainConsole } from "./console-door.ts";
import type { ConnectionPlaces } from "./connection-places.ts";
import type { FailureThrottle } from "./failure-throttle.ts";
import type { HostCheck } from "./host-check.ts";
import {
  breakOff,
  callerOf,
  disconnectAfter,
  hostOf,
  isUploadTo,
  keepCaller,
  pathOf,
  type Caller,
  type HttpRequest,
  type HttpResponse,
} from "./http.ts";
import type { IdentityResolver } from "./identity.ts";
import type { TransportLimits } from "./limits.ts";
import { pageAt, type Pages } from "./pages.ts";
import { refuse } from "./refusal.ts";
import { checkForm, isBodyEndUnsure } from "./request-form.ts";
import { createRpcFront, type RpcFront, type RpcFrontOptions } from "./rpc-front.ts";
import type { Log } from "../lib/log.ts";

export interface FrontDoorOptions {
  readonly pipeline: Pipeline;
  readonly exchange: Exchange;
  readonly rest: RestHandler;
  readonly identity: IdentityResolver;
  readonly places: ConnectionPlaces;
  readonly hosts: HostCheck;
  readonly failures: FailureThrottle;
  readonly notes: AnswerNotes;
  readonly limits: TransportLimits;
  readonly bodies: BodyTurns;
  readonly pages: Pages;
  readonly log: Pick<Log, "error">;
}

const restPrefix = "/v1/";

export class FrontDoor {
  readonly #options: FrontDoorOptions;
  readonly #writer = new JsonWriter();
  readonly #idPrefix = randomBytes(4).toString("hex");
  #idCount = 0;
  #rpcFront: RpcFront | undefined;
  /** With the name of the share that each counts to, which its connection may change meanwhile. */
  readonly #underWay = new Map<HttpResponse, { readonly connection: Connection; readonly name: string }>();
  readonly #ofUser = new Tally<string>();
  /** One listener for all responses. */
  readonly #onClose: (this: HttpResponse) => void;
  #onIdle: (() => void) | undefined;
  #isClosing = false;
  #isStopping = false;

  constructor(options: FrontDoorOptions) {
    this.#options = options;
    const ended = (response: HttpResponse): void => this.#ended(response);
    this.#onClose = function () {
      ended(this);
    };
  }

  /** Answers a request. Never throws: what goes wrong is that request's own (T 49). */
  handle(
    request: HttpRequest,
    response: HttpResponse,
    connection: Connection,
    expectsContinue = false,
  ): void {
    const requestId = `${this.#idPrefix}-${(this.#idCount++).toString(36)}`;
    const { pipeline, limits } = this.#options;
    this.#recognise(request, connection);
    const { name } = connection.share;
    this.#underWay.set(response, { connection, name });
    connection.begin(response);
    response.on("close", this.#onClose);
    if (this.#ofUser.change(name, 1) > limits.maxRequestsPerUser) {
      connection.socket.destroy();
      return;
    }
    const serve = (): void => {
      // Its client may have left while it waited.
      if (this.#underWay.has(response))
        this.#serve(request, response, connection, requestId, expectsContinue);
    };
    // A turn in which it was parsed is its turn.
    if (connection.isInTurn) serve();
    else pipeline.turns.run(name, serve);
  }

  #serve(
    request: HttpRequest,
    response: HttpResponse,
    connection: Connection,
    requestId: string,
    expectsContinue: boolean,
  ): void {
    try {
      if (this.#isClosing && response instanceof ServerResponse) response.setHeader("connection", "close");
      // Health checks are there to be told that it is stopping.
      if (this.#isStopping && !this.#options.pipeline.isPublic(pathOf(request))) {
        throw new SvcError("unavailable", "the daemon is stopping; try again");
      }
      this.#admit(request, response, connection, requestId, expectsContinue);
    } catch (error) {
      this.#fail(request, response, error, requestId, connection);
    }
  }

  /** Requests that are not answered to their end. */
  get underWay(): number {
    return this.#underWay.size;
  }

  /** Answers end their connections from now on. */
  closeAfterAnswers(): void {
    this.#isClosing = true;
    for (const response of this.#underWay.keys()) {
      if (response instanceof ServerResponse && !response.headersSent)
        response.setHeader("connection", "close");
    }
  }

  /** Refuses what comes from now on. Resolves when no request is left. */
  stop(): Promise<void> {
    this.#isStopping = true;
    this.closeAfterAnswers();
    if (this.#underWay.size === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#onIdle = resolve;
    });
  }

  #ended(response: HttpResponse): void {
    const known = this.#underWay.get(response);
    this.#underWay.delete(response);
    if (known !== undefined) {
      const { connection, name } = known;
      this.#ofUser.change(name, -1);
      connection.end(response);
      this.#options.places.used(connection);
    }
    this.#noteUnsupported(response);
    if (this.#underWay.size === 0) this.#onIdle?.();
  }

  /** What Connect answers before it has a context: another HTTP method, another content type. */
  #noteUnsupported({ statusCode, req }: HttpResponse): void {
    const { notes } = this.#options;
    if (statusCode === 405 || statusCode === 505) {
      const message = `a procedure does not take ${req.method ?? ""} over HTTP/${req.httpVersion}`;
      notes.note(req, { error: new SvcError("method_not_allowed", message) });
    } else if (statusCode === 415) {
      const message = `"${mediaType(req)}" is not taken here`;
      notes.note(req, { error: new SvcError("unsupported_media_type", message) });
    }
  }

  #admit(
    request: HttpRequest,
    response: HttpResponse,
    connection: Connection,
    requestId: string,
    expectsContinue: boolean,
  ): void {
    const { pipeline, identity, hosts, rest, pages } = this.#options;
    const { origin } = connection;
    if (isBodyEndUnsure(request)) {
      disconnectAfter(request, response);
      throw invalidField("transfer-encoding", "HTTP/1.0 has none");
    }
    checkForm(request);
    const path = pathOf(request);
    const problem = pathProblem(path, { escapedSlash: path.startsWith(restPrefix) ? "allow" : "refuse" });
    if (problem !== undefined) throw invalidField("", `the path is not canonical: ${problem}`);

    const host = hostOf(request);
    if (origin.kind === "tcp") hosts.checkHost(host);
    hosts.checkOrigin(headerOf(request, "origin"), host);

    refusePlainConsole(request, response);
    const isPage = pageAt(pages, request) !== undefined;
    const isPublic = isPage || pipeline.isPublic(path);
    const user = isPublic ? anonymous : identity.identify(origin, request.headers);
    const caller = { user, requestId, response, isNoted: false };
    keepCaller(request, caller);
    if (expectsContinue) response.writeContinue();
    if (isPage || !rest(request, response, caller)) this.#answerRpc(request, response, caller);
  }

  /** A connection over TCP is of the share of the token that it has shown, before anything is done for it. */
  #recognise(request: HttpRequest, connection: Connection): void {
    if (connection.share.kind !== "unknown") return;
    const name = this.#options.identity.shareOf(request.headers);
    if (name === undefined) return;
    const share = { kind: "known", name } as const;
    if (!this.#options.places.identified(connection, share)) connection.socket.destroy();
  }

  #answerRpc(request: HttpRequest, response: HttpResponse, caller: Caller): void {
    try {
      response.setHeader("x-request-id", caller.requestId);
      forgetHost(request);
      if (!isUploadTo(this.#options.pipeline, request))
        boundBody(request, this.#options.limits.requestTimeoutMs);
      this.#rpcFront ??= createRpcFront(this.#rpcFrontOptions());
      this.#rpcFront(request, response, caller);
    } catch (error) {
      this.#fail(request, response, error, caller.requestId);
    }
  }

  #rpcFrontOptions(): RpcFrontOptions {
    const { pipeline, exchange, limits, bodies, pages } = this.#options;
    return {
      ...{ pipeline, exchange, limits, bodies, pages },
      notFound: (request, response) => {
        this.#fail(request, response, nothingThere(request), "");
      },
      failed: (request, response, error) =>
        this.#fail(request, response, error, callerOf(request)?.requestId ?? ""),
    };
  }

  #fail(
    request: HttpRequest,
    response: HttpResponse,
    thrown: unknown,
    requestId: string,
    connection?: Connection,
  ): void {
    const { log, pipeline, failures, notes } = this.#options;
    const isProcedure = pipeline.methodAt(pathOf(request)) !== undefined;
    let error = shownError(thrown, requestId);
    if (error.code === "internal" && !isSvcError(thrown)) {
      log.error({ requestId, err: thrown }, "a request failed unexpectedly");
    }
    if (error.code === "unauthenticated" && !failures.take(connection?.share.name ?? "")) {
      error = new SvcError("too_many", "too many requests without a known token; wait a minute");
      // Said beforehand, or a client would send its next request into the closing connection.
      if (response instanceof ServerResponse) response.setHeader("connection", "close");
      disconnectAfter(request, response);
    }
    try {
      notes.note(request, { error, requestId, origin: connection?.origin });
      if (!response.headersSent) response.setHeader("x-request-id", requestId);
      refuse(request, response, error, { isProcedure, writer: this.#writer });
    } catch (err) {
      log.error({ requestId, err }, "a refusal could not be sent");
      response.destroy();
    }
  }
}

/**
 * Nobody needs the host once it is checked, but Connect makes a URL of it, and not every host is fit for one: gRPC's
 * C library takes the escaped path of a unix socket for it.
 */
function forgetHost(request: HttpRequest): void {
  if (":authority" in request.headers) request.headers[":authority"] = "localhost";
  else request.headers.host = "localhost";
}

/** gRPC calls a method that is not there unimplemented (its status code 12). */
function nothingThere(request: HttpRequest): SvcError {
  const what = `${request.method ?? ""} ${pathOf(request)}`;
  if (!mediaType(request).startsWith("application/grpc")) return notFound("route", what);
  return new SvcError("not_implemented", `no method ${pathOf(request)}`);
}

function headerOf(request: HttpRequest, name: string): string | undefined {
  const value = request.headers[name];
  return typeof value === "string" ? value : undefined;
}

/** A call that is no upload has its whole body within the time, or its connection goes. */
function boundBody(request: HttpRequest, timeoutMs: number): void {
  // Connect never reads the end of a body that there is none of.
  if (request.readableEnded || declaredSize(request) === 0) return;
  const timer = setTimeout(breakOff, timeoutMs, request);
  const clear = (): void => clearTimeout(timer);
  request.once("end", clear).once("close", clear);
}
