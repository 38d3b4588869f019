/** Serves HTTP/1.1 and cleartext HTTP/2 on the daemon's listeners, with one pipeline. */
import { randomUUID } from "node:crypto";
import type { IncomingMessage, Server as HttpServer } from "node:http";
import type { Duplex } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { routes as contractRoutes } from "../../../gen/svc/v1/routes.ts";
import { SvcError } from "../../errors.ts";
import { BodyScheduler } from "../../lib/body-scheduler.ts";
import { createRestHandler } from "../rest/rest-handler.ts";
import { Router, type Route } from "../rest/router.ts";
import { Exchange } from "../rpc/exchange.ts";
import type { Pipeline } from "../rpc/pipeline.ts";
import type { Tokens } from "../../access/tokens/tokens.ts";
import { ResponseRecorder } from "./response-recorder.ts";
import { ignore } from "./fair-shares/accept-queue.ts";
import type { Connection } from "./connection.ts";
import { ConnectionLimiter } from "./fair-shares/connection-limiter.ts";
import { ConsoleUpgrade, isConsoleRequest, type ConsoleUpgradeOptions } from "./console-upgrade.ts";
import {
  SocketListeners,
  type SocketListenersOptions,
  type ListenerStatus,
  type ListeningAddresses,
} from "./socket-listeners.ts";
import { FailureThrottle } from "./failure-throttle.ts";
import { RequestGateway } from "./request-gateway.ts";
import { HostCheck } from "./host-check.ts";
import { TrustedProxies } from "./request-source.ts";
import type { HttpRequest, HttpResponse } from "../rpc/http-request.ts";
import { createHttp1Server } from "./http1-server.ts";
import { createHttp2Acceptor, type Http2Acceptor } from "./http2-server.ts";
import { IdentityResolver } from "./caller-identity.ts";
import { defaultTransportLimits, type TransportLimits } from "./limits.ts";
import { createPages, type PageFiles } from "./pages.ts";
import { parseFairly } from "./fair-shares/paced-parsing.ts";
import { PacedStream } from "./fair-shares/paced-stream.ts";
import { detectProtocol } from "./protocol-detection.ts";
import type { Log } from "../../lib/log.ts";
import { SubordinateUids } from "./subordinate-uids.ts";

export interface ListenersOptions extends Omit<
  SocketListenersOptions,
  "acceptsPeer" | "hasSlotFor" | "onConnection" | "fairQueue" | "maxPendingPerPeer"
> {
  readonly pipeline: Pipeline;
  readonly tokens: Tokens;
  /** Tokens that open consoles. Default: consoles are not available. */
  readonly consoleTokens?: ConsoleUpgradeOptions["tokens"] | undefined;
  /** The daemon's uid, which callers with tokens act as. */
  readonly selfUid: number;
  /** Host names besides loopback that are allowed on TCP (`[api] allowed_hosts`), without port. */
  readonly allowedHosts?: readonly string[] | undefined;
  /** Addresses and ranges whose forwarding headers count (`[api] trusted_proxies`). Default: none. */
  readonly trustedProxies?: readonly string[] | undefined;
  /** Pages that need no identity. Default: none. */
  readonly pages?: PageFiles | undefined;
  /** REST routes. Default: the contract's. */
  readonly routes?: Iterable<Route> | undefined;
  readonly limits?: Partial<TransportLimits> | undefined;
  readonly log: Log;
}

/** Milliseconds for responses of aborted calls to reach their clients. */
const flushMs = 1_000;
/**
 * Milliseconds for connected clients to send their request before the next daemon takes over: limit, and
 * polling interval.
 */
const [handOverMs, handOverStepMs] = [3_000, 250];

/** Does not listen before {@link start}. */
export class Listeners implements AsyncDisposable {
  readonly #shutdown = new AbortController();
  readonly #options: ListenersOptions;
  readonly #limits: TransportLimits;
  readonly #limiter: ConnectionLimiter;
  readonly #http1: HttpServer;
  /** Created for the first HTTP/2 connection, because loading Node's HTTP/2 takes longer than a response. */
  #http2: Http2Acceptor | undefined;
  /** By HTTP/1.1 socket and HTTP/2 session. */
  readonly #connections = new WeakMap<object, Connection>();
  readonly #sockets: SocketListeners;
  readonly #requestGateway: RequestGateway;
  readonly #consoles: ConsoleUpgrade | undefined;
  /** The connection whose session is being created; the session's event fires during the call. */
  #arriving: Connection | undefined;
  #stopped: Promise<void> | undefined;

  constructor(options: ListenersOptions) {
    const {
      pipeline,
      tokens,
      consoleTokens,
      mode,
      selfUid,
      allowedHosts = [],
      trustedProxies = [],
      tcp,
      pages = {},
      log,
    } = options;
    const { routes = contractRoutes } = options;
    const limits = { ...defaultTransportLimits, ...options.limits };
    const connections = new ConnectionLimiter(limits);
    const bodies = new BodyScheduler(pipeline.fairQueue);
    const exchange = new Exchange({ pipeline, bodies, shutdownSignal: this.#shutdown.signal, log });
    const router = new Router(routes);
    const responses = new ResponseRecorder({ pipeline, router });
    const identity = new IdentityResolver({ mode, selfUid, tokens, subordinateUids: new SubordinateUids() });
    const hosts = new HostCheck([...allowedHosts, ...(tcp === undefined ? [] : hostNames(tcp.host))]);
    const proxies = new TrustedProxies(trustedProxies);
    const failures = new FailureThrottle({
      burst: limits.tokenFailureBudget,
      refillPerSec: limits.tokenFailureRefillPerSec,
      maxAddresses: 1024,
      now: () => performance.now(),
    });
    this.#options = options;
    this.#limits = limits;
    this.#limiter = connections;
    this.#consoles =
      consoleTokens &&
      new ConsoleUpgrade({
        ...{ pipeline, proxies, hosts, connections, log },
        tokens: consoleTokens,
        mayFail: (name) => failures.take(name),
        nextRequestId: randomUUID,
      });
    this.#requestGateway = new RequestGateway({
      ...{
        pipeline,
        identity,
        connections,
        proxies,
        hosts,
        failures,
        exchange,
        responses,
        limits,
        bodies,
        log,
      },
      rest: createRestHandler({
        ...{ routes, router, exchange, pipeline },
        maxBodyBytes: limits.maxBodyBytes,
        bodyTimeoutMs: limits.requestTimeoutMs,
      }),
      pages: createPages(pages, (request) => responses.record(request, {})),
    });
    this.#sockets = new SocketListeners({
      ...options,
      acceptsPeer: (uid) => identity.acceptsPeer(uid),
      hasSlotFor: (uid) => connections.hasSlotFor(uid),
      onConnection: (connection) => this.#receive(connection),
      fairQueue: pipeline.fairQueue,
      maxPendingPerPeer: limits.maxConnectionsPerPeer,
    });
    this.#http1 = createHttp1Server(
      limits,
      (request, response, expectsContinue) =>
        this.#handle(request, response, request.socket, expectsContinue),
      (socket) => this.#connections.get(socket)?.isAtWork === true,
      {
        accepts: (request) => this.#consoles !== undefined && isConsoleRequest(request),
        take: (request, socket, head) => this.#openConsole(request, socket, head),
      },
    );
  }

  /**
   * Binds the TCP address and the unix sockets, as {@link SocketListeners.open}.
   * @throws SvcError `unavailable` if neither can be bound; the socket's error if TCP is not configured
   */
  async start(): Promise<ListeningAddresses> {
    try {
      return await this.#sockets.open();
    } catch (error) {
      await this.stop();
      throw error;
    }
  }

  /** The current addresses; a TCP address may be bound later. */
  get addresses(): ListeningAddresses {
    return this.#sockets.addresses;
  }

  /** See {@link SocketListeners.pageAddress}. */
  get pageAddress(): string | undefined {
    return this.#sockets.pageAddress;
  }

  get statuses(): readonly ListenerStatus[] {
    return this.#sockets.statuses;
  }

  /**
   * Stops accepting, ends watching streams, waits for running calls, then ends them as `unavailable`. Further
   * calls wait for the same stop.
   */
  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  #receive(connection: Connection): void {
    const { socket } = connection;
    if (socket.destroyed || !this.#limiter.admit(connection)) {
      socket.destroy();
      return;
    }
    this.#endUnlessIdentified(connection);
    // Two turns, because a turn may have read before it accepts.
    setImmediate(() => setImmediate(() => (connection.isNew = false)));
    detectProtocol(socket, this.#limits.firstBytesTimeoutMs, (protocol) => {
      if (protocol === "http1") {
        this.#connections.set(socket, connection);
        this.#http1.emit("connection", socket);
        parseFairly(connection, this.#options.pipeline.fairQueue);
      } else this.#openSession(connection);
    });
  }

  #createHttp2Acceptor(): Http2Acceptor {
    const front = createHttp2Acceptor(this.#limits, (request, response, expectsContinue) =>
      this.#handle(request, response, request.stream.session, expectsContinue),
    );
    front.server.on("session", (session) => {
      if (this.#arriving !== undefined) this.#connections.set(session, this.#arriving);
    });
    return front;
  }

  /** Queued per user, as everything that the session reads. */
  #openSession(connection: Connection): void {
    const { socket, share } = connection;
    const open = (): void => {
      connection.isQueued = false;
      socket.off("error", ignore);
      if (socket.destroyed) return;
      this.#arriving = connection;
      const stream = new PacedStream(connection, this.#options.pipeline.fairQueue);
      (this.#http2 ??= this.#createHttp2Acceptor()).server.emit("connection", stream);
      this.#arriving = undefined;
    };
    connection.isQueued = true;
    // Until then, a reset needs an error listener.
    socket.on("error", ignore);
    // The first requests name the caller.
    if (share.kind === "unknown") open();
    else this.#options.pipeline.fairQueue.run(share.name, open);
  }

  /**
   * Closes a connection without an identity slightly after the header timeout, which has its own response.
   */
  #endUnlessIdentified(connection: Connection): void {
    if (connection.share.kind !== "unknown") return;
    const { socket } = connection;
    const timer = setTimeout(() => {
      if (connection.share.kind === "unknown" && !connection.isAtWork) socket.destroy();
    }, 1.5 * this.#limits.headersTimeoutMs);
    socket.once("close", () => clearTimeout(timer));
  }

  #handle(
    request: HttpRequest,
    response: HttpResponse,
    key: object | undefined,
    expectsContinue: boolean,
  ): void {
    const connection = key === undefined ? undefined : this.#connections.get(key);
    // A stream that was reset immediately has no session when its request is reported.
    if (connection === undefined) response.destroy();
    else this.#requestGateway.handle(request, response, connection, expectsContinue);
  }

  #openConsole(request: IncomingMessage, stream: Duplex, head: Buffer): void {
    const connection = this.#connections.get(stream);
    // Node has removed its parser and error listener; without a listener, a disconnect would crash the
    // daemon.
    stream.on("error", ignore);
    connection?.hold();
    if (connection === undefined || this.#consoles === undefined || this.#stopped !== undefined)
      stream.destroy();
    else void this.#consoles.open(request, head, connection);
  }

  /** New connections wait for the next daemon. Existing connections get one response from this daemon. */
  async #serveConnectedClients(): Promise<void> {
    this.#requestGateway.closeAfterAnswers();
    const deadlineMs = performance.now() + handOverMs;
    do await sleep(handOverStepMs);
    while (
      (this.#sockets.hasPendingConnections || this.#limiter.hasSilentConnection) &&
      performance.now() < deadlineMs
    );
  }

  async #stop(): Promise<void> {
    const { pipeline, log } = this.#options;
    this.#sockets.close();
    if (this.#sockets.hasSystemdSockets) await this.#serveConnectedClients();
    const reason = new SvcError("unavailable", "the daemon is stopping; try again");
    const idle = this.#requestGateway.stop();
    this.#http1.closeIdleConnections();
    this.#http2?.close();
    pipeline.endStreams(reason);
    await this.#sockets[Symbol.asyncDispose]();
    if (!(await isDoneWithin(idle, this.#limits.stopGraceMs))) {
      log.warn({ calls: this.#requestGateway.underWay }, "ending calls that did not finish in time");
    }
    pipeline.endCalls(reason);
    this.#shutdown.abort(reason);
    await isDoneWithin(idle, flushMs);
    this.#http2?.destroy();
    this.#limiter.destroyAll();
    this.#http1.closeAllConnections();
    this.#http1.close();
  }
}

/**
 * Host names of a listening address. A wildcard address is not a name, although browsers treat it as this
 * host.
 */
function hostNames(address: string): string[] {
  if (address === "0.0.0.0" || address === "::") return [];
  // The address can only be an IP address; Node's parser would take milliseconds on first use.
  return [address.includes(":") ? `[${address}]` : address];
}

/** Whether `work` finishes in time. */
function isDoneWithin(work: Promise<void>, timeoutMs: number): Promise<boolean> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(false), timeoutMs);
    void work.then(() => {
      clearTimeout(timer);
      resolve(true);
    });
  });
}
