/**
 * Limits open connections, in total and per peer. If all slots are in use, a new connection replaces the
 * longest idle connection of a peer that has more than the newcomer. Among a peer's own connections, one with
 * an unread request is not idle, since the client waits for the daemon.
 */
import { shareOf, type Connection, type Share } from "../connection.ts";
import type { TransportLimits } from "../limits.ts";

type ConnectionLimits = Pick<
  TransportLimits,
  "maxConnections" | "maxConnectionsPerPeer" | "maxRootConnections"
>;

export class ConnectionLimiter {
  readonly #limits: ConnectionLimits;
  /** By share name; the most recently used connections are last. */
  readonly #shares = new Map<string, Set<Connection>>();
  #size = 0;
  #ofRoot = 0;

  constructor(limits: ConnectionLimits) {
    this.#limits = limits;
  }

  /** Reserves a slot for a connection until it closes; `false` if none is free. */
  admit(connection: Connection): boolean {
    const { share, socket } = connection;
    if (!this.#hasSlot(share)) return false;
    this.#add(connection);
    socket.once("close", () => this.#remove(connection));
    return true;
  }

  /** Whether a new connection of the peer gets a slot; may close an idle connection for it. */
  hasSlotFor(uid: number): boolean {
    return this.#hasSlot(shareOf({ kind: "peer", uid }));
  }

  /**
   * Assigns the connection to its identified owner. `false` if the owner has too many connections, all busy.
   */
  assign(connection: Connection, share: Share): boolean {
    if (connection.share.name === share.name || connection.socket.destroyed) return true;
    this.#remove(connection);
    const isAdmitted = this.#hasSlot(share);
    if (isAdmitted) connection.share = share;
    this.#add(connection);
    return isAdmitted;
  }

  /** Marks the connection as recently used. */
  markUsed(connection: Connection): void {
    const share = this.#shares.get(connection.share.name);
    if (share?.delete(connection) === true) share.add(connection);
  }

  get size(): number {
    return this.#size + this.#ofRoot;
  }

  /** Whether a connection has not sent a request yet. */
  get hasSilentConnection(): boolean {
    return [...this.#shares.values()].some((share) =>
      [...share].some(({ hasSentRequest }) => !hasSentRequest),
    );
  }

  destroyAll(): void {
    for (const share of this.#shares.values()) for (const { socket } of share) socket.destroy();
  }

  #hasSlot({ kind, name }: Share): boolean {
    const { maxConnections, maxConnectionsPerPeer, maxRootConnections } = this.#limits;
    const own = this.#shares.get(name);
    if (kind === "root") return this.#ofRoot < maxRootConnections || this.#endOldest(own, isBusy);
    if ((own?.size ?? 0) >= maxConnectionsPerPeer && !this.#endOldest(own, isBusy)) return false;
    return this.#size < maxConnections || this.#takeSlot(own?.size ?? 0, kind);
  }

  /**
   * Closes a connection of the share with the most connections: unknown shares first, and none with fewer
   * than the newcomer's.
   */
  #takeSlot(ownSize: number, kind: Share["kind"]): boolean {
    const candidates = [...this.#shares.values()]
      .map((connections) => ({ connections, kind: kindOf(connections) }))
      .filter(
        (each) =>
          each.kind !== "root" &&
          (each.connections.size >= Math.max(ownSize, 1) || (kind === "known" && each.kind === "unknown")),
      )
      .toSorted(
        (left, right) =>
          Number(right.kind === "unknown") - Number(left.kind === "unknown") ||
          right.connections.size - left.connections.size,
      );
    return candidates.some(({ connections }) => this.#endOldest(connections, isAtWork));
  }

  /** Closes the longest idle connection; for unknown owners, the longest idle one of all. */
  #endOldest(
    connections: ReadonlySet<Connection> | undefined,
    isSpared: (connection: Connection) => boolean,
  ): boolean {
    for (const connection of connections ?? []) {
      if (connection.share.kind !== "unknown" && isSpared(connection)) continue;
      this.#remove(connection);
      connection.socket.destroy();
      return true;
    }
    return false;
  }

  #add(connection: Connection): void {
    const { kind, name } = connection.share;
    const connections = this.#shares.get(name) ?? new Set();
    this.#shares.set(name, connections.add(connection));
    if (kind === "root") this.#ofRoot++;
    else this.#size++;
  }

  #remove(connection: Connection): void {
    const { kind, name } = connection.share;
    const connections = this.#shares.get(name);
    if (connections?.delete(connection) !== true) return;
    if (connections.size === 0) this.#shares.delete(name);
    if (kind === "root") this.#ofRoot--;
    else this.#size--;
  }
}

const isAtWork = (connection: Connection): boolean => connection.isAtWork;
const isBusy = (connection: Connection): boolean => connection.isAtWork || connection.isUnread;

function kindOf(connections: ReadonlySet<Connection>): Share["kind"] | undefined {
  for (const { share } of connections) return share.kind;
  return undefined;
}
