/**
 * The daemon's TCP and unix socket listeners. They report accepted connections with the peer's uid or
 * address.
 */
import { createServer, type Server, type Socket } from "node:net";
import { SvcError } from "../../errors.ts";
import type { Log } from "../../lib/log.ts";
import type { FairQueue } from "../../lib/fair-queue.ts";
import { addressText, otherLoopbackOf } from "../../lib/tcp-address.ts";
import { rootSocketOf } from "../../lib/paths.ts";
import { AcceptQueue, connectionOptions, ignore } from "./fair-shares/accept-queue.ts";
import { Connection } from "./connection.ts";
import { createPageHost } from "./host-check.ts";
import { systemdSockets } from "./systemd-sockets.ts";
import { loadPeerUid, type ReadPeerUid } from "./peer-uid.ts";
import { SocketFile, type SocketFileOptions } from "./socket-file.ts";
import { TcpListener, type RetryDelays, type TcpAddress } from "./tcp-listener.ts";

export interface SocketListenersOptions {
  /**
   * `system`: root peers are root. `user`: the daemon's uid is root, and peers other than it and uid 0 are
   * closed at accept.
   */
  readonly mode: "system" | "user";
  /** TCP address; absent: no TCP listener. Port 0 takes a free one. */
  readonly tcp?: TcpAddress | undefined;
  /** Delays between attempts to bind the TCP address. */
  readonly tcpRetryMs?: RetryDelays | undefined;
  /** Absolute path of the unix socket; absent: no socket. */
  readonly socketPath?: string | undefined;
  /** Descriptors of sockets that systemd has bound, and that stay open when this daemon exits. */
  readonly listenFds?: readonly number[] | undefined;
  /** Default: the kernel's credentials. */
  readonly loadPeerUid?: (() => ReadPeerUid) | undefined;
  readonly acceptsPeer: (uid: number) => boolean;
  /** Whether a connection of the peer gets a slot; may close an idle connection for it. */
  readonly hasSlotFor: (uid: number) => boolean;
  readonly onConnection: (connection: Connection) => void;
  /** Determines the order in which users' connections are opened. */
  readonly fairQueue: FairQueue;
  /** Limit for accepted connections of one uid that are not open yet. */
  readonly maxPendingPerPeer: number;
  readonly log: Log;
}

export interface ListeningAddresses {
  /** Absent while the address cannot be bound: the daemon serves the socket and retries. */
  readonly tcp?: TcpAddress;
  /** Absent if the socket could not be bound; TCP is still served. */
  readonly socketPath?: string;
  /** Root's separate socket of a system daemon. */
  readonly rootSocketPath?: string;
}

/** An address that the daemon listens on or should listen on. */
export interface ListenerStatus {
  readonly kind: "tcp" | "socket" | "root_socket";
  /** `host:port`, or a path. */
  readonly address: string;
  /** `UNUSED`: passed by systemd, but the configuration has another address. */
  readonly state: "LISTENING" | "FAILED" | "UNUSED";
  /** Empty while listening. */
  readonly reason: string;
}

export class SocketListeners {
  readonly #options: SocketListenersOptions;
  readonly #servers: Server[] = [];
  readonly #files: SocketFile[] = [];
  /** One per unix socket. */
  readonly #acceptQueues: AcceptQueue[] = [];
  readonly #sockets = new Map<"socket" | "root_socket", ListenerStatus>();
  readonly #pageHost = createPageHost();
  #tcp: TcpListener | undefined;
  /** On the loopback address of the other IP version: browsers try both for a `*.localhost` name. */
  #otherLoopback: TcpListener | undefined;
  #inheritedFds: ReadonlyMap<string, number> = new Map();
  #unused: readonly ListenerStatus[] = [];

  constructor(options: SocketListenersOptions) {
    this.#options = options;
  }

  /**
   * Retries a TCP address that cannot be bound until this is closed.
   * @throws SvcError `unavailable` if neither the TCP address nor a socket can be bound; the socket's error
   * if TCP is not configured
   */
  async open(): Promise<ListeningAddresses> {
    const { tcp, socketPath } = this.#options;
    this.#inheritedFds = this.#takeInheritedFds();
    if (tcp !== undefined) await this.#openTcp(tcp);
    const path = socketPath === undefined ? undefined : await this.#openForAll(socketPath);
    if (this.#tcp?.failure !== undefined) {
      const { reason = "" } = this.#sockets.get("socket") ?? {};
      if (path === undefined)
        throw new SvcError(
          "unavailable",
          reason === ""
            ? this.#tcp.failure
            : `${this.#tcp.failure}; the unix socket cannot be bound either: ${reason}`,
        );
      this.#tcp.retryUntilBound();
    }
    if (path !== undefined) await this.#openForRoot(path);
    return this.addresses;
  }

  /** The current addresses. */
  get addresses(): ListeningAddresses {
    const tcp = this.#tcp?.bound;
    const socketPath = this.#boundPath("socket");
    const rootSocketPath = this.#boundPath("root_socket");
    return {
      ...(tcp === undefined ? {} : { tcp }),
      ...(socketPath === undefined ? {} : { socketPath }),
      ...(rootSocketPath === undefined ? {} : { rootSocketPath }),
    };
  }

  get statuses(): readonly ListenerStatus[] {
    const { tcp } = this.#options;
    const own: ListenerStatus[] =
      tcp === undefined ? [] : [statusOf("tcp", addressText(this.#tcp?.bound ?? tcp), this.#tcp?.failure)];
    const { failure, isAddressMissing = false } = this.#otherLoopback ?? {};
    const other = otherLoopbackOf(this.#tcp?.bound);
    if (other !== undefined && failure !== undefined && !isAddressMissing)
      own.push(statusOf("tcp", addressText(other), failure));
    return [...own, ...this.#sockets.values(), ...this.#unused];
  }

  /**
   * URL of the page for a browser on this host; undefined while TCP is not bound.
   * @throws SvcError `not_possible` while another program would receive the link
   */
  get pageAddress(): string | undefined {
    const bound = this.#tcp?.bound;
    if (bound === undefined) return undefined;
    if (!isLoopbackBound(bound)) return `http://${addressText(bound)}/`;
    const { failure, isAddressMissing = false } = this.#otherLoopback ?? {};
    if (failure !== undefined && !isAddressMissing)
      throw new SvcError("not_possible", `sign-in links are not available: ${failure}`);
    return `http://${this.#pageHost}:${bound.port}/`;
  }

  #boundPath(kind: "socket" | "root_socket"): string | undefined {
    const status = this.#sockets.get(kind);
    return status?.state === "LISTENING" ? status.address : undefined;
  }

  /** Whether systemd passed a socket, which the next daemon gets as well. */
  get hasSystemdSockets(): boolean {
    return this.#inheritedFds.size > 0;
  }

  /** Whether an accepted connection is not open yet. */
  get hasPendingConnections(): boolean {
    return this.#acceptQueues.some(({ size }) => size > 0);
  }

  /** Stops accepting; open connections stay. */
  close(): void {
    this.#tcp?.[Symbol.dispose]();
    this.#otherLoopback?.[Symbol.dispose]();
    for (const server of this.#servers) server.close();
  }

  /** Removes the socket files, and closes connections that are not open yet. */
  async [Symbol.asyncDispose](): Promise<void> {
    for (const queue of this.#acceptQueues) queue.close();
    for (const file of this.#files) await file[Symbol.asyncDispose]();
  }

  #takeInheritedFds(): ReadonlyMap<string, number> {
    const { listenFds = [], socketPath, tcp, log } = this.#options;
    const inherited = systemdSockets(listenFds);
    const other = otherLoopbackOf(tcp);
    const served = [socketPath, tcp && kernelAddress(tcp), other && kernelAddress(other)];
    this.#unused = [...inherited.keys()]
      .filter((address) => !served.includes(address))
      .map((address) => unusedStatus(address, this.#options));
    for (const { address, reason } of this.#unused)
      log.warn({ address, reason }, "a socket from systemd is not used");
    return inherited;
  }

  async #openTcp(address: TcpAddress): Promise<void> {
    this.#tcp = this.#createTcpListener(address, (bound) => this.#openOtherLoopback(bound));
    await this.#tcp.open();
  }

  async #openOtherLoopback(bound: TcpAddress): Promise<void> {
    const other = otherLoopbackOf(bound);
    if (other === undefined) return;
    const listener = this.#createTcpListener(other);
    this.#otherLoopback = listener;
    await listener.open();
    if (listener.failure !== undefined && !listener.isAddressMissing) listener.retryUntilBound();
  }

  #createTcpListener(address: TcpAddress, onBound?: (bound: TcpAddress) => Promise<void>): TcpListener {
    const server = this.#createServer((socket) => {
      socket.setKeepAlive(true, 60_000);
      this.#options.onConnection(
        new Connection(socket, { kind: "tcp", address: socket.remoteAddress ?? "" }),
      );
    });
    const { tcpRetryMs: retryMs, log } = this.#options;
    const fd = this.#inheritedFds.get(kernelAddress(address));
    return new TcpListener(server, { address, fd, retryMs, onBound, log });
  }

  async #openForAll(path: string): Promise<string | undefined> {
    const { mode, tcp, log } = this.#options;
    const isOwn = mode === "user";
    try {
      await this.#openSocket({ path, mode: isOwn ? 0o600 : 0o666, directoryMode: isOwn ? 0o700 : 0o755 });
      this.#sockets.set("socket", statusOf("socket", path));
      return path;
    } catch (err) {
      if (tcp === undefined) throw err;
      const reason = err instanceof Error ? err.message : String(err);
      this.#sockets.set("socket", statusOf("socket", path, reason));
      if (this.#tcp?.bound !== undefined)
        log.warn(
          { path, reason },
          "failed to bind the unix socket, which svc commands need; set [api] socket; serving only TCP",
        );
      return undefined;
    }
  }

  /**
   * A separate socket for root: on the public socket, root would wait behind all pending connections, or be
   * rejected by the kernel if the queue is full.
   */
  async #openForRoot(socketPath: string): Promise<void> {
    if (this.#options.mode === "user") return;
    const path = rootSocketOf(socketPath);
    try {
      await this.#openSocket({ path, mode: 0o600, directoryMode: 0o700, isPrivate: true });
      this.#sockets.set("root_socket", statusOf("root_socket", path));
    } catch (err) {
      const reason = err instanceof Error ? err.message : String(err);
      this.#sockets.set("root_socket", statusOf("root_socket", path, reason));
      this.#options.log.warn(
        { err, path },
        "failed to bind root's separate socket; root uses the public one",
      );
    }
  }

  async #openSocket(options: SocketFileOptions): Promise<void> {
    const readPeerUid = (this.#options.loadPeerUid ?? loadPeerUid)();
    const { fairQueue, maxPendingPerPeer, acceptsPeer, hasSlotFor, log } = this.#options;
    const queue = new AcceptQueue({
      ...{ fairQueue, readPeerUid, log, maxWaitingPerPeer: maxPendingPerPeer },
      // Rejected peers need no slot.
      hasSlotFor: (uid) => !acceptsPeer(uid) || hasSlotFor(uid),
      onPeer: (socket, uid) => this.#receivePeer(socket, uid),
    });
    this.#acceptQueues.push(queue);
    const server = this.#createServer((socket) => {
      queue.receive(socket);
      queue.acceptMore(server);
    });
    const fd = this.#inheritedFds.get(options.path);
    this.#files.push(
      fd === undefined
        ? await SocketFile.listen(server, options)
        : await SocketFile.adopt(server, { path: options.path, fd }),
    );
  }

  #createServer(onConnection: (socket: Socket) => void): Server {
    const server = createServer(connectionOptions, onConnection);
    // Errors before `listening` are reported by the caller.
    server.on("error", (err) => {
      if (server.listening) this.#options.log.error({ err }, "a listener failed");
    });
    this.#servers.push(server);
    return server;
  }

  #receivePeer(socket: Socket, uid: number): void {
    // Until the protocol is detected, a reset needs an error listener.
    socket.on("error", ignore);
    if (this.#options.acceptsPeer(uid))
      this.#options.onConnection(new Connection(socket, { kind: "peer", uid }));
    else socket.destroy();
    socket.off("error", ignore);
  }
}

function statusOf(kind: ListenerStatus["kind"], address: string, failure?: string): ListenerStatus {
  return { kind, address, state: failure === undefined ? "LISTENING" : "FAILED", reason: failure ?? "" };
}

/** The kernel's notation of a bound address. */
function kernelAddress({ host, port }: TcpAddress): string {
  return addressText({ host: host === "localhost" ? "127.0.0.1" : host, port });
}

/** Whether the listener receives connections to a loopback address that `localhost` names. "::" includes IPv4. */
function isLoopbackBound(bound: TcpAddress): boolean {
  return bound.host === "::" || otherLoopbackOf(bound) !== undefined;
}

function unusedStatus(
  address: string,
  { socketPath = "none", tcp }: Pick<SocketListenersOptions, "socketPath" | "tcp">,
): ListenerStatus {
  const [kind, key, configured, unit] = address.startsWith("/")
    ? (["socket", "[api] socket", socketPath, "svc.socket"] as const)
    : (["tcp", "[api] listen", tcp === undefined ? "none" : addressText(tcp), "svc-tcp.socket"] as const);
  const reason = `systemd holds ${address}, but ${key} is ${configured}; set ListenStream=${configured} with: systemctl edit ${unit}`;
  return { kind, address, state: "UNUSED", reason };
}
