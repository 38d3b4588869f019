/** What comes through the daemon's doors: HTTP/1.1 and cleartext HTTP/2 on each, one pipeline behind (S 1.2). */
import { randomUUID } from "node:crypto";
import type { IncomingMessage, Server as HttpServer } from "node:http";
import type { Duplex } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { routes as contractRoutes } from "../../gen/svc/v1/routes.ts";
import { SvcError } from "../errors.ts";
import { BodyTurns } from "../lib/body-turns.ts";
import { createRestHandler } from "../rest/rest-handler.ts";
import type { Route } from "../rest/route.ts";
import { Exchange } from "../rpc/exchange.ts";
import type { Pipeline } from "../rpc/pipeline.ts";
import type { Tokens } from "../tokens/tokens.ts";
import { AnswerNotes } from "./answer-notes.ts";
import { ignore } from "./arrivals.ts";
import type { Connection } from "./connection.ts";
import { ConnectionPlaces } from "./connection-places.ts";
import { ConsoleDoor, isConsoleRequest, type ConsoleDoorOptions } from "./console-door.ts";
import { Doors, type DoorsOptions, type ListeningAddresses } from "./doors.ts";
import { FailureThrottle } from "./failure-throttle.ts";
import { countStreams, refuseFlood } from "./first-frames.ts";
import { FrontDoor } from "./front-door.ts";
import { HostCheck } from "./host-check.ts";
import type { HttpRequest, HttpResponse } from "./http.ts";
import { createHttp1Server } from "./http1-server.ts";
import { createHttp2Front, type Http2Front } from "./http2-server.ts";
import { IdentityResolver } from "./identity.ts";
import { defaultTransportLimits, type TransportLimits } from "./limits.ts";
import { createPages, type PageFiles } from "./pages.ts";
import { parseInTurns } from "./paced-parsing.ts";
import { detectProtocol } from "./protocol-detection.ts";
import type { Log } from "../lib/log.ts";

export interface ListenersOptions extends Omit<
  DoorsOptions,
  "acceptsPeer" | "hasRoomFor" | "onConnection" | "turns" | "maxArrivalsPerPeer"
> {
  readonly pipeline: Pipeline;
  readonly tokens: Tokens;
  /** What opens consoles. Default: nothing does. */
  readonly consoleTokens?: ConsoleDoorOptions["tokens"] | undefined;
  /** The daemon's own uid: who token callers act as. */
  readonly selfUid: number;
  /** Host names besides the loopback ones that TCP takes (`[api] allowed_hosts`), without port. */
  readonly allowedHosts?: readonly string[] | undefined;
  /** The pages that need no identity. Default: none. */
  readonly pages?: PageFiles | undefined;
  /** REST routes. Default: the contract's. */
  readonly routes?: Iterable<Route> | undefined;
  readonly limits?: Partial<TransportLimits> | undefined;
  readonly log: Log;
}

/** How long answers may take to reach their clients once their calls were aborted. */
const flushMs = 1_000;
/** For whoever has connected, but not asked yet, when the next daemon is to take over: at most, and between two looks. */
const [handOverMs, handOverStepMs] = [3_000, 250];

/** Nothing listens before {@link start}. */
export class Listeners implements AsyncDisposable {
  readonly #shutdown = new AbortController();
  readonly #options: ListenersOptions;
  readonly #limits: TransportLimits;
  readonly #places: ConnectionPlaces;
  readonly #http1: HttpServer;
  /** Made for the first who speaks it: what Node loads for it takes longer than an answer. */
  #http2: Http2Front | undefined;
  /** By socket of HTTP/1.1 and by session of HTTP/2. */
  readonly #connections = new WeakMap<object, Connection>();
  readonly #doors: Doors;
  readonly #front: FrontDoor;
  readonly #consoles: ConsoleDoor | undefined;
  /** That of the session which is being made right now: its event fires while its socket is handed over. */
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
      tcp,
      pages = {},
      log,
    } = options;
    const { routes = contractRoutes } = options;
    const limits = { ...defaultTransportLimits, ...options.limits };
    const places = new ConnectionPlaces(limits);
    const bodies = new BodyTurns(pipeline.turns);
    const exchange = new Exchange({ pipeline, bodies, shutdownSignal: this.#shutdown.signal, log });
    const notes = new AnswerNotes({ pipeline, routes });
    const identity = new IdentityResolver({ mode, selfUid, tokens });
    const hosts = new HostCheck([...allowedHosts, ...(tcp === undefined ? [] : hostNames(tcp.host))]);
    const failures = new FailureThrottle({
      burst: limits.tokenFailureBudget,
      refillPerSec: limits.tokenFailureRefillPerSec,
      maxAddresses: 1024,
      now: () => performance.now(),
    });
    this.#options = options;
    this.#limits = limits;
    this.#places = places;
    this.#consoles =
      consoleTokens &&
      new ConsoleDoor({
        ...{ pipeline, hosts, places, log },
        tokens: consoleTokens,
        mayFail: (name) => failures.take(name),
        nextRequestId: randomUUID,
      });
    this.#front = new FrontDoor({
      ...{ pipeline, identity, places, hosts, failures, exchange, notes, limits, bodies, log },
      rest: createRestHandler({
        ...{ routes, exchange, pipeline },
        maxBodyBytes: limits.maxBodyBytes,
        bodyTimeoutMs: limits.requestTimeoutMs,
      }),
      pages: createPages(pages, (request) => notes.note(request, {})),
    });
    this.#doors = new Doors({
      ...options,
      acceptsPeer: (uid) => identity.acceptsPeer(uid),
      hasRoomFor: (uid) => places.hasRoomFor(uid),
      onConnection: (connection) => this.#receive(connection),
      turns: pipeline.turns,
      maxArrivalsPerPeer: limits.maxConnectionsPerPeer,
    });
    this.#http1 = createHttp1Server(
      limits,
      (request, response, expectsContinue) =>
        this.#handle(request, response, request.socket, expectsContinue),
      (socket) => this.#connections.get(socket)?.isAtWork === true,
      {
        isWanted: (request) => this.#consoles !== undefined && isConsoleRequest(request),
        take: (request, socket, head) => this.#openConsole(request, socket, head),
      },
    );
  }

  /**
   * Binds both doors.
   * @throws SvcError `unavailable` when the TCP address cannot be bound, `invalid_request` when this user never may; or what
   *   keeps the socket from being bound, where there is no TCP
   */
  async start(): Promise<ListeningAddresses> {
    try {
      return await this.#doors.open();
    } catch (error) {
      await this.stop();
      throw error;
    }
  }

  /**
   * Stops accepting, ends what only watches, gives running calls the grace, then ends them as `unavailable`.
   * Calling it again waits for the same end.
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
    if (socket.destroyed || !this.#places.admit(connection)) {
      socket.destroy();
      return;
    }
    this.#endUnlessIdentified(connection);
    // Two, as a turn of the loop may have read already when it accepts.
    setImmediate(() => setImmediate(() => (connection.isNew = false)));
    const { firstBytesTimeoutMs, maxStreamsPerSession, resetBudget } = this.#limits;
    detectProtocol(socket, firstBytesTimeoutMs, (protocol, head) => {
      if (protocol === "http1") {
        this.#connections.set(socket, connection);
        this.#http1.emit("connection", socket);
        parseInTurns(connection, this.#options.pipeline.turns);
        return;
      }
      if (countStreams(head) > Math.max(maxStreamsPerSession, resetBudget)) {
        refuseFlood(socket);
        return;
      }
      this.#openSession(connection);
    });
  }

  #createHttp2Front(): Http2Front {
    const front = createHttp2Front(this.#limits, (request, response, expectsContinue) =>
      this.#handle(request, response, request.stream.session, expectsContinue),
    );
    front.server.on("session", (session) => {
      if (this.#arriving !== undefined) this.#connections.set(session, this.#arriving);
    });
    return front;
  }

  /** In a turn of the user: a session makes all streams at once that its first bytes open. */
  #openSession(connection: Connection): void {
    const { socket, share } = connection;
    const open = (): void => {
      // Node tells of the first requests once this is done.
      setImmediate(() => (connection.awaitsTurn = false));
      socket.off("error", ignore);
      if (socket.destroyed) return;
      socket.allowHalfOpen = false;
      this.#arriving = connection;
      (this.#http2 ??= this.#createHttp2Front()).server.emit("connection", socket);
      this.#arriving = undefined;
    };
    connection.awaitsTurn = true;
    // Until then nobody else hears of a reset.
    socket.on("error", ignore);
    // Who it is may stand in those streams.
    if (share.kind === "unknown") open();
    else this.#options.pipeline.turns.run(share.name, open);
  }

  /** Whoever does not show who they are keeps their place for little longer than headers may take, which has an answer of its own. */
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
    // A stream that was reset at once has lost its session before its request is told.
    if (connection === undefined) response.destroy();
    else this.#front.handle(request, response, connection, expectsContinue);
  }

  #openConsole(request: IncomingMessage, stream: Duplex, head: Buffer): void {
    const connection = this.#connections.get(stream);
    // Node has taken its parser away already, and what heard of errors with it: a client that leaves must not end the daemon.
    stream.on("error", ignore);
    connection?.hold();
    if (connection === undefined || this.#consoles === undefined || this.#stopped !== undefined)
      stream.destroy();
    else void this.#consoles.open(request, head, connection);
  }

  /** Who comes from now on waits for the next daemon: whoever is connected to this one is answered by it, once. */
  async #serveWhoHasCome(): Promise<void> {
    this.#front.closeAfterAnswers();
    const deadlineMs = performance.now() + handOverMs;
    do await sleep(handOverStepMs);
    while ((this.#doors.isAnybodyArriving || this.#places.isAnybodySilent) && performance.now() < deadlineMs);
  }

  async #stop(): Promise<void> {
    const { pipeline, log } = this.#options;
    this.#doors.close();
    if (this.#doors.areHanded) await this.#serveWhoHasCome();
    const reason = new SvcError("unavailable", "the daemon is stopping; try again");
    const idle = this.#front.stop();
    this.#http1.closeIdleConnections();
    this.#http2?.close();
    pipeline.endStreams(reason);
    await this.#doors[Symbol.asyncDispose]();
    if (!(await isDoneWithin(idle, this.#limits.stopGraceMs))) {
      log.warn({ calls: this.#front.underWay }, "ending calls that outlast the grace");
    }
    pipeline.endCalls(reason);
    this.#shutdown.abort(reason);
    await isDoneWithin(idle, flushMs);
    this.#http2?.destroy();
    this.#places.destroyAll();
    this.#http1.closeAllConnections();
    this.#http1.close();
  }
}

/** How requests name the address that is listened on; "all addresses" is no name (browsers take it for this machine). */
function hostNames(address: string): string[] {
  if (address === "0.0.0.0" || address === "::") return [];
  // An address is all it can be; to look closer takes Node some milliseconds for its first time.
  return [address.includes(":") ? `[${address}]` : address];
}

/** Whether `work` ends in time. */
function isDoneWithin(work: Promise<void>, timeoutMs: number): Promise<boolean> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(false), timeoutMs);
    void work.then(() => {
      clearTimeout(timer);
      resolve(true);
    });
  });
}
