/** The daemon's doors, TCP and the unix sockets: what is accepted there is a connection, with the kernel's word on its peer (S 1.2). */
import { createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { invalidField, SvcError } from "../errors.ts";
import type { Log } from "../lib/log.ts";
import type { FairTurns } from "../lib/fair-turns.ts";
import { isForGood, listenFailure } from "../lib/listen-failure.ts";
import { rootSocketOf } from "../lib/root-socket.ts";
import { Arrivals, connectionOptions, ignore } from "./arrivals.ts";
import { Connection } from "./connection.ts";
import { handedSockets } from "./handed-sockets.ts";
import { loadPeerUid, type ReadPeerUid } from "./peer-uid.ts";
import { SocketFile, listenOn, type SocketFileOptions } from "./socket-file.ts";

interface Address {
  readonly host: string;
  readonly port: number;
}

export interface DoorsOptions {
  /** `system`: root peers are root. `user`: the daemon's own uid is, and peers other than it and uid 0 are closed at accept. */
  readonly mode: "system" | "user";
  /** TCP address; absent: no TCP listener. Port 0 takes a free one. */
  readonly tcp?: Address | undefined;
  /** Absolute path of the unix socket; absent: no socket. */
  readonly socketPath?: string | undefined;
  /** Descriptors of sockets that are bound already, and stay so when this daemon ends. */
  readonly listenFds?: readonly number[] | undefined;
  /** Default: the kernel's word. */
  readonly loadPeerUid?: (() => ReadPeerUid) | undefined;
  readonly acceptsPeer: (uid: number) => boolean;
  /** Whether there is a place for a connection of the peer's, for which an idle one may have ended. */
  readonly hasRoomFor: (uid: number) => boolean;
  readonly onConnection: (connection: Connection) => void;
  /** Whose turn it is to be let in. */
  readonly turns: FairTurns;
  /** Connections of one uid that wait for their turn, or for room, to be let in. */
  readonly maxArrivalsPerPeer: number;
  readonly log: Log;
}

export interface ListeningAddresses {
  readonly tcp?: Address;
  /** Absent when the socket could not be bound: a warning was logged, TCP serves on. */
  readonly socketPath?: string;
  /** Root's own, of a system's daemon. */
  readonly rootSocketPath?: string;
}

export class Doors {
  readonly #options: DoorsOptions;
  readonly #servers: Server[] = [];
  readonly #files: SocketFile[] = [];
  /** Of each unix socket. */
  readonly #arrivals: Arrivals[] = [];
  #handed: ReadonlyMap<string, number> = new Map();

  constructor(options: DoorsOptions) {
    this.#options = options;
  }

  /**
   * @throws SvcError `unavailable` when the TCP address cannot be bound, `invalid_request` when this user never may; or what
   *   keeps the socket from being bound, where there is no TCP
   */
  async open(): Promise<ListeningAddresses> {
    const { tcp, socketPath } = this.#options;
    this.#handed = this.#takeHanded();
    const tcpAddress = tcp === undefined ? undefined : await this.#openTcp(tcp);
    const path = socketPath === undefined ? undefined : await this.#openForAll(socketPath);
    const rootPath = path === undefined ? undefined : await this.#openForRoot(path);
    return {
      ...(tcpAddress === undefined ? {} : { tcp: tcpAddress }),
      ...(path === undefined ? {} : { socketPath: path }),
      ...(rootPath === undefined ? {} : { rootSocketPath: rootPath }),
    };
  }

  /** Whether a socket was handed over, which the next daemon takes as well. */
  get areHanded(): boolean {
    return this.#handed.size > 0;
  }

  /** Whether somebody was accepted who is no connection yet. */
  get isAnybodyArriving(): boolean {
    return this.#arrivals.some(({ size }) => size > 0);
  }

  /** Nothing is accepted any more; what was goes on. */
  close(): void {
    for (const server of this.#servers) server.close();
  }

  /** Takes the sockets' files away, and turns away who is no connection yet. */
  async [Symbol.asyncDispose](): Promise<void> {
    for (const arrivals of this.#arrivals) arrivals.close();
    for (const file of this.#files) await file[Symbol.asyncDispose]();
  }

  #takeHanded(): ReadonlyMap<string, number> {
    const { listenFds = [], socketPath, log } = this.#options;
    const handed = handedSockets(listenFds);
    for (const path of handed.keys()) {
      if (path !== socketPath)
        log.warn({ path }, "nobody serves a socket that was handed over: [api] socket is another");
    }
    return handed;
  }

  async #openTcp({ host, port }: Address): Promise<Address> {
    const server = this.#createServer((socket) => {
      socket.setKeepAlive(true, 60_000);
      this.#options.onConnection(
        new Connection(socket, { kind: "tcp", address: socket.remoteAddress ?? "" }),
      );
    });
    try {
      await listenOn(server, { host, port });
    } catch (cause) {
      const { code = "unknown error" } = cause as NodeJS.ErrnoException;
      const message = listenFailure({ host, port }, code);
      if (isForGood(code)) throw invalidField("", message);
      throw new SvcError("unavailable", message, { cause });
    }
    return { host, port: (server.address() as AddressInfo).port };
  }

  async #openForAll(path: string): Promise<string | undefined> {
    const { mode, tcp, log } = this.#options;
    const isOwn = mode === "user";
    try {
      await this.#openSocket({ path, mode: isOwn ? 0o600 : 0o666, directoryMode: isOwn ? 0o700 : 0o755 });
      return path;
    } catch (err) {
      if (tcp === undefined) throw err;
      const reason = err instanceof Error ? err.message : String(err);
      log.warn(
        { path, reason },
        "the unix socket could not be bound, and commands of svc find the daemon there alone: set [api] socket; serving TCP",
      );
      return undefined;
    }
  }

  /**
   * Who waits to be accepted does so in the order of coming, and is turned away by the kernel when they are too many: there
   * root would be behind everybody else (T 56).
   */
  async #openForRoot(socketPath: string): Promise<string | undefined> {
    if (this.#options.mode === "user") return undefined;
    const path = rootSocketOf(socketPath);
    try {
      await this.#openSocket({ path, mode: 0o600, directoryMode: 0o700, isPrivate: true });
      return path;
    } catch (err) {
      this.#options.log.warn({ err, path }, "root has no socket of its own; it shares everybody's");
      return undefined;
    }
  }

  async #openSocket(options: SocketFileOptions): Promise<void> {
    const readPeerUid = (this.#options.loadPeerUid ?? loadPeerUid)();
    const { turns, maxArrivalsPerPeer, acceptsPeer, hasRoomFor, log } = this.#options;
    const arrivals = new Arrivals({
      ...{ turns, readPeerUid, log, maxWaitingPerPeer: maxArrivalsPerPeer },
      // Who is turned away needs none.
      hasRoomFor: (uid) => !acceptsPeer(uid) || hasRoomFor(uid),
      onPeer: (socket, uid) => this.#receivePeer(socket, uid),
    });
    this.#arrivals.push(arrivals);
    const server = this.#createServer((socket) => {
      arrivals.receive(socket);
      arrivals.acceptMore(server);
    });
    const fd = this.#handed.get(options.path);
    this.#files.push(
      fd === undefined
        ? await SocketFile.listen(server, options)
        : await SocketFile.adopt(server, { path: options.path, fd }),
    );
  }

  #createServer(onConnection: (socket: Socket) => void): Server {
    const server = createServer(connectionOptions, onConnection);
    // What keeps it from listening at all is whoever's has begun that to say.
    server.on("error", (err) => {
      if (server.listening) this.#options.log.error({ err }, "a listener failed");
    });
    this.#servers.push(server);
    return server;
  }

  #receivePeer(socket: Socket, uid: number): void {
    // Until a protocol is known nobody else hears of a reset.
    socket.on("error", ignore);
    if (this.#options.acceptsPeer(uid))
      this.#options.onConnection(new Connection(socket, { kind: "peer", uid }));
    else socket.destroy();
    socket.off("error", ignore);
  }
}
