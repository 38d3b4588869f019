/**
 * How many connections may be open, in all and of one peer (T 16, 56). Who comes when all places are taken gets the place of
 * somebody who has more of them than he: that of the connection which has been idle for longest. Among one's own, one whose
 * request waits to be read is not idle: the daemon is late, and not its client.
 */
import { shareOf, type Connection, type Share } from "./connection.ts";
import type { TransportLimits } from "./limits.ts";

type PlacesLimits = Pick<TransportLimits, "maxConnections" | "maxConnectionsPerPeer" | "maxRootConnections">;

export class ConnectionPlaces {
  readonly #limits: PlacesLimits;
  /** By name of share; each with the connections that were used last at its end. */
  readonly #shares = new Map<string, Set<Connection>>();
  #size = 0;
  #ofRoot = 0;

  constructor(limits: PlacesLimits) {
    this.#limits = limits;
  }

  /** Gives a place to a connection until it closes; `false` when there is none. */
  admit(connection: Connection): boolean {
    const { share, socket } = connection;
    if (!this.#hasRoom(share)) return false;
    this.#add(connection);
    socket.once("close", () => this.#remove(connection));
    return true;
  }

  /** Whether a peer who comes now has a place, for which an idle connection may have ended. */
  hasRoomFor(uid: number): boolean {
    return this.#hasRoom(shareOf({ kind: "peer", uid }));
  }

  /** The connection has shown whose it is. `false` when those have too many, all at work. */
  identified(connection: Connection, share: Share): boolean {
    if (connection.share.name === share.name || connection.socket.destroyed) return true;
    this.#remove(connection);
    const isAdmitted = this.#hasRoom(share);
    if (isAdmitted) connection.share = share;
    this.#add(connection);
    return isAdmitted;
  }

  /** It is not the one that has been idle for longest. */
  used(connection: Connection): void {
    const share = this.#shares.get(connection.share.name);
    if (share?.delete(connection) === true) share.add(connection);
  }

  get size(): number {
    return this.#size + this.#ofRoot;
  }

  /** Whether somebody is there who has not asked for anything. */
  get isAnybodySilent(): boolean {
    return [...this.#shares.values()].some((share) => [...share].some(({ hasAsked }) => !hasAsked));
  }

  destroyAll(): void {
    for (const share of this.#shares.values()) for (const { socket } of share) socket.destroy();
  }

  #hasRoom({ kind, name }: Share): boolean {
    const { maxConnections, maxConnectionsPerPeer, maxRootConnections } = this.#limits;
    const own = this.#shares.get(name);
    if (kind === "root") return this.#ofRoot < maxRootConnections || this.#endOldest(own, isBusy);
    if ((own?.size ?? 0) >= maxConnectionsPerPeer && !this.#endOldest(own, isBusy)) return false;
    return this.#size < maxConnections || this.#takePlace(own?.size ?? 0, kind);
  }

  /** Ends a connection of those who have most: of unknown ones first, and of nobody who has fewer than the newcomer. */
  #takePlace(ownSize: number, kind: Share["kind"]): boolean {
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

  /** Ends the connection that has been idle for longest; the longest of all where nobody said who they are. */
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
