/**
 * Checks every request: canonical path, Host and Origin, then identity (not for pages). Then passes it to
 * REST, Connect or gRPC, which check access before they read the body.
 */
import { randomBytes } from "node:crypto";
import { ServerResponse } from "node:http";
import { SvcError, invalidField, notFound } from "../../errors.ts";
import type { BodyScheduler } from "../../lib/body-scheduler.ts";
import { declaredSize, mediaType } from "../../lib/http-messages.ts";
import { dropUnread } from "../../lib/request-body.ts";
import { Tally } from "../../lib/tally.ts";
import { JsonWriter } from "../rest/json-writer.ts";
import { canonicalPath } from "../rest/path.ts";
import type { RestHandler } from "../rest/rest-handler.ts";
import { isSvcError, shownError } from "../rpc/error-mapping.ts";
import type { Exchange } from "../rpc/exchange.ts";
import type { Pipeline } from "../rpc/pipeline.ts";
import { anonymous, type UserContext } from "../rpc/user-context.ts";
import type { ResponseRecorder } from "./response-recorder.ts";
import type { Connection } from "./connection.ts";
import { rejectPlainConsole } from "./console-upgrade.ts";
import type { ConnectionLimiter } from "./fair-shares/connection-limiter.ts";
import { throttleName, type FailureThrottle } from "./failure-throttle.ts";
import type { HostCheck } from "./host-check.ts";
import {
  breakOff,
  callerOf,
  disconnectAfter,
  hostOf,
  isUploadTo,
  setCaller,
  pathOf,
  type Caller,
  type HttpRequest,
  type HttpResponse,
} from "../rpc/http-request.ts";
import type { IdentityResolver } from "./caller-identity.ts";
import type { TransportLimits } from "./limits.ts";
import { isVisit, pageAt, sendMissingPage, type Pages } from "./pages.ts";
import { reject } from "./reject-request.ts";
import { checkForm, isBodyEndAmbiguous } from "./request-form.ts";
import type { Origin, RequestSource, TrustedProxies } from "./request-source.ts";
import { createRpcDispatcher, type RpcDispatcher, type RpcDispatcherOptions } from "./rpc-dispatcher.ts";
import type { Log } from "../../lib/log.ts";

export interface RequestGatewayOptions {
  readonly pipeline: Pipeline;
  readonly exchange: Exchange;
  readonly rest: RestHandler;
  readonly identity: IdentityResolver;
  readonly connections: ConnectionLimiter;
  readonly proxies: TrustedProxies;
  readonly hosts: HostCheck;
  readonly failures: FailureThrottle;
  readonly responses: ResponseRecorder;
  readonly limits: TransportLimits;
  readonly bodies: BodyScheduler;
  readonly pages: Pages;
  readonly log: Pick<Log, "error">;
}

const restPrefix = "/v1/";
/** Bodies of public methods contain only a name, and their callers need no identity. */
const publicBodyTimeoutMs = 5_000;

export class RequestGateway {
  readonly #options: RequestGatewayOptions;
  readonly #writer = new JsonWriter();
  readonly #idPrefix = randomBytes(4).toString("hex");
  #idCount = 0;
  #rpcDispatcher: RpcDispatcher | undefined;
  /** Pending requests with the share that each counts toward; the connection's share may change later. */
  readonly #pending = new Map<HttpResponse, { readonly connection: Connection; readonly name: string }>();
  readonly #ofUser = new Tally<string>();
  /** One listener for all responses. */
  readonly #onClose: (this: HttpResponse) => void;
  #onIdle: (() => void) | undefined;
  #isClosing = false;
  #isStopping = false;

  constructor(options: RequestGatewayOptions) {
    this.#options = options;
    const ended = (response: HttpResponse): void => this.#ended(response);
    this.#onClose = function () {
      ended(this);
    };
  }

  /** Serves a request. Never throws: failures affect only that request. */
  handle(
    request: HttpRequest,
    response: HttpResponse,
    connection: Connection,
    expectsContinue = false,
  ): void {
    const requestId = `${this.#idPrefix}-${(this.#idCount++).toString(36)}`;
    const { pipeline, limits } = this.#options;
    const source = this.#options.proxies.sourceOf(connection.origin, request.headers, hostOf(request));
    this.#recognise(request, connection, source);
    const { name } = connection.share;
    this.#pending.set(response, { connection, name });
    connection.begin(response);
    response.on("close", this.#onClose);
    if (this.#ofUser.change(name, 1) > limits.maxRequestsPerUser && !this.#makeSpace(name, connection))
      return;
    const serve = (): void => {
      // The client may have disconnected while the request waited.
      if (this.#pending.has(response))
        this.#serve(request, response, connection, source, requestId, expectsContinue);
    };
    // Already parsed from its user's queue.
    if (connection.isInParser) serve();
    else pipeline.fairQueue.run(name, serve);
  }

  /**
   * Closes a connection of a user with too many requests. Callers without an identity share a name, so the
   * connection with the most requests is closed, not the newest. Returns whether the new request can
   * continue.
   */
  #makeSpace(name: string, newest: Connection): boolean {
    const ended = newest.share.kind === "unknown" ? this.#busiestOf(name) : newest;
    ended?.socket.destroy();
    return !newest.socket.destroyed;
  }

  /**
   * The connection with the most pending requests, the oldest of equals; undefined while a closed one still
   * frees its slots.
   */
  #busiestOf(name: string): Connection | undefined {
    let busiest: Connection | undefined;
    for (const { connection, name: each } of this.#pending.values()) {
      if (each !== name) continue;
      if (connection.socket.destroyed) return undefined;
      if (busiest === undefined || connection.pending > busiest.pending) busiest = connection;
    }
    return busiest;
  }

  #serve(
    request: HttpRequest,
    response: HttpResponse,
    connection: Connection,
    source: RequestSource,
    requestId: string,
    expectsContinue: boolean,
  ): void {
    try {
      if (this.#isClosing && response instanceof ServerResponse) response.setHeader("connection", "close");
      // Health checks report the shutdown.
      if (this.#isStopping && !this.#options.pipeline.isPublic(pathOf(request))) {
        throw new SvcError("unavailable", "the daemon is stopping; try again");
      }
      this.#admit(request, response, source, requestId, expectsContinue);
    } catch (error) {
      const client = { origin: source.origin, throttleName: throttleName(connection, source) };
      this.#fail(request, response, error, requestId, client);
    }
  }

  /** Requests without a complete response. */
  get underWay(): number {
    return this.#pending.size;
  }

  /** Closes connections after their next response. */
  closeAfterAnswers(): void {
    this.#isClosing = true;
    for (const response of this.#pending.keys()) {
      if (response instanceof ServerResponse && !response.headersSent)
        response.setHeader("connection", "close");
    }
  }

  /** Rejects further requests. Resolves when no request is pending. */
  stop(): Promise<void> {
    this.#isStopping = true;
    this.closeAfterAnswers();
    if (this.#pending.size === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#onIdle = resolve;
    });
  }

  #ended(response: HttpResponse): void {
    const known = this.#pending.get(response);
    this.#pending.delete(response);
    if (known !== undefined) {
      const { connection, name } = known;
      this.#ofUser.change(name, -1);
      connection.end(response);
      this.#options.connections.markUsed(connection);
    }
    this.#noteUnsupported(response);
    if (this.#pending.size === 0) this.#onIdle?.();
  }

  /** Records Connect's responses without a context: unsupported HTTP methods and content types. */
  #noteUnsupported({ statusCode, req }: HttpResponse): void {
    const { responses } = this.#options;
    if (statusCode === 405 || statusCode === 505) {
      const message = `procedures do not support ${req.method ?? ""} over HTTP/${req.httpVersion}`;
      responses.record(req, { error: new SvcError("method_not_allowed", message) });
    } else if (statusCode === 415) {
      const message = `content type "${mediaType(req)}" is not supported`;
      responses.record(req, { error: new SvcError("unsupported_media_type", message) });
    }
  }

  #admit(
    request: HttpRequest,
    response: HttpResponse,
    source: RequestSource,
    requestId: string,
    expectsContinue: boolean,
  ): void {
    const { pipeline, identity, hosts, rest, pages } = this.#options;
    const { origin } = source;
    if (isBodyEndAmbiguous(request)) {
      disconnectAfter(request, response);
      throw invalidField("transfer-encoding", "is not allowed in HTTP/1.0");
    }
    checkForm(request);
    const rawPath = pathOf(request);
    const escapedSlash = rawPath.startsWith(restPrefix) ? "allow" : "reject";
    const path = canonicalPath(rawPath, { escapedSlash });

    hosts.check(source, headerOf(request, "origin"));

    rejectPlainConsole(request, response);
    const isPage = pageAt(pages, request) !== undefined;
    if (!isPage && isVisit(request) && !rest.has(path) && pipeline.methodAt(path) === undefined) {
      this.#options.responses.record(request, { error: notFound("page", path), requestId, origin });
      response.setHeader("x-request-id", requestId);
      dropUnread(request, response);
      sendMissingPage(request, response);
      return;
    }
    const isPublic = isPage || pipeline.isPublic(path);
    const user = isPublic ? anonymousFrom(origin) : identity.identify(source, request.headers);
    const caller = { user, requestId, response, path, isRecorded: false, admittedTo: undefined };
    setCaller(request, caller);
    if (expectsContinue) response.writeContinue();
    if (isPage || !rest(request, response, caller)) this.#answerRpc(request, response, caller);
  }

  /** Assigns a TCP connection to the share of its token, before serving it. */
  #recognise(request: HttpRequest, connection: Connection, source: RequestSource): void {
    if (connection.share.kind !== "unknown") return;
    const name = this.#options.identity.shareOf(source, request.headers);
    if (name === undefined) return;
    const share = { kind: "known", name } as const;
    if (!this.#options.connections.assign(connection, share)) connection.socket.destroy();
  }

  #answerRpc(request: HttpRequest, response: HttpResponse, caller: Caller): void {
    try {
      response.setHeader("x-request-id", caller.requestId);
      dropHost(request);
      const { pipeline, limits } = this.#options;
      const { requestTimeoutMs } = limits;
      if (!isUploadTo(pipeline, request))
        boundBody(
          request,
          caller.user.kind === "anonymous"
            ? Math.min(publicBodyTimeoutMs, requestTimeoutMs)
            : requestTimeoutMs,
        );
      this.#rpcDispatcher ??= createRpcDispatcher(this.#rpcDispatcherOptions());
      this.#rpcDispatcher(request, response, caller);
    } catch (error) {
      this.#fail(request, response, error, caller.requestId);
    }
  }

  #rpcDispatcherOptions(): RpcDispatcherOptions {
    const { pipeline, exchange, limits, bodies, pages } = this.#options;
    return {
      ...{ pipeline, exchange, limits, bodies, pages },
      notFound: (request, response) => {
        this.#fail(request, response, unknownMethod(request), "");
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
    client?: { readonly origin: Origin; readonly throttleName: string },
  ): void {
    const { log, pipeline, failures, responses } = this.#options;
    const isProcedure = pipeline.methodAt(pathOf(request)) !== undefined;
    let error = shownError(thrown, requestId);
    if (error.code === "internal" && !isSvcError(thrown)) {
      log.error({ requestId, err: thrown }, "unexpected error in a request");
    }
    if (error.code === "unauthenticated" && !failures.take(client?.throttleName ?? "")) {
      error = new SvcError("too_many", "too many requests without a known token; wait a minute");
      // Announced in a header, so that the client does not send its next request on the closing connection.
      if (response instanceof ServerResponse) response.setHeader("connection", "close");
      disconnectAfter(request, response);
    }
    try {
      responses.record(request, { error, requestId, origin: client?.origin });
      if (!response.headersSent) response.setHeader("x-request-id", requestId);
      reject(request, response, error, { isProcedure, writer: this.#writer });
    } catch (err) {
      log.error({ requestId, err }, "failed to send an error response");
      response.destroy();
    }
  }
}

/**
 * After the check, the host is not needed. Connect would parse it as a URL, but gRPC's C library sends the
 * escaped path of a unix socket, which is not valid there.
 */
function dropHost(request: HttpRequest): void {
  if (":authority" in request.headers) request.headers[":authority"] = "localhost";
  else request.headers.host = "localhost";
}

/** gRPC uses UNIMPLEMENTED (12) for an unknown method. */
function unknownMethod(request: HttpRequest): SvcError {
  const what = `${request.method ?? ""} ${pathOf(request)}`;
  if (!mediaType(request).startsWith("application/grpc")) return notFound("route", what);
  return new SvcError("not_implemented", `no method ${pathOf(request)}`);
}

/** Callers of public methods have no identity, but limits per peer. */
function anonymousFrom(origin: Origin): UserContext {
  return origin.kind === "peer" ? { ...anonymous, peerUid: origin.uid } : anonymous;
}

function headerOf(request: HttpRequest, name: string): string | undefined {
  const value = request.headers[name];
  return typeof value === "string" ? value : undefined;
}

/** Closes the connection if the body of a call other than an upload is not complete in time. */
function boundBody(request: HttpRequest, timeoutMs: number): void {
  // Connect never reads the end of an empty body.
  if (request.readableEnded || declaredSize(request) === 0) return;
  const timer = setTimeout(breakOff, timeoutMs, request);
  const clear = (): void => clearTimeout(timer);
  request.once("end", clear).once("close", clear);
}
