/**
 * Accepts pending connections of a unix socket at once, and opens them fairly by user. Node accepts one per
 * turn of the event loop in arrival order, so thousands of connections of one user would delay all others.
 * Accepting and reading the peer's uid takes microseconds; opening the connection is the expensive part.
 */
import { closeSync } from "node:fs";
import { Socket, type Server } from "node:net";
import type { FairQueue } from "../../../lib/fair-queue.ts";
import { loadLibc } from "../../../sys/libc.ts";
import type { Log } from "../../../lib/log.ts";
import { Tally } from "../../../lib/tally.ts";
import { peerName } from "../connection.ts";
import { descriptorOf, type ReadPeerUid } from "../peer-uid.ts";

/** Per turn of the event loop: more would delay open connections, fewer would delay pending ones. */
const maxAcceptedAtOnce = 64;
/** For all users; further connections wait in the kernel's queue. */
const maxWaiting = 4096;
/** Milliseconds between two checks for a free slot. */
const retryMs = 20;
/** SOCK_NONBLOCK and SOCK_CLOEXEC, as libuv uses. */
const flags = 0o4000 | 0o2000000;

export interface AcceptQueueOptions {
  readonly fairQueue: FairQueue;
  readonly readPeerUid: ReadPeerUid;
  /** Per uid; further connections are closed. */
  readonly maxWaitingPerPeer: number;
  /** Whether a connection of the uid can be opened. */
  readonly hasSlotFor: (uid: number) => boolean;
  /** Milliseconds that a connection waits for a free slot before it is closed. Default: 10 s. */
  readonly maxHeldMs?: number;
  readonly onPeer: (socket: Socket, uid: number) => void;
  readonly log: Pick<Log, "warn">;
}

/**
 * Half open: an HTTP/2 client may close its side after its last request and still read the response. For
 * HTTP/1.1, Node then closes the connection, which detects clients that have left a stream.
 */
export const connectionOptions = { allowHalfOpen: true, noDelay: true } as const;

/** An accepted connection: a descriptor, or a socket that Node has accepted. */
interface Arrival {
  readonly uid: number;
  readonly accepted: number | Socket;
  readonly sinceMs: number;
}

/** Accepted connections of a unix socket that are not open yet. */
export class AcceptQueue {
  readonly #options: AcceptQueueOptions;
  readonly #waiting = new Set<Arrival>();
  readonly #ofUid = new Tally<number>();
  /** Connections that wait for a free slot, by uid. */
  readonly #pending = new Map<number, Arrival[]>();
  readonly #accept = loadLibc().func("int accept4(int fd, void *address, void *length, int flags)") as (
    ...args: unknown[]
  ) => number;

  constructor(options: AcceptQueueOptions) {
    this.#options = options;
  }

  /** Takes a connection that Node has accepted. */
  receive(socket: Socket): void {
    // A reset while it waits needs an error listener.
    socket.on("error", ignore);
    const uid = this.#uidOf(socket);
    if (uid === undefined) socket.destroy();
    else this.#acceptNow(this.#add(uid, socket));
  }

  /** Accepts the connections behind the one that `server` has just accepted. */
  acceptMore(server: Server): void {
    const listening = descriptorOf(server);
    if (listening === undefined) return;
    for (let count = 0; count < maxAcceptedAtOnce && this.#waiting.size < maxWaiting; count++) {
      const fd = this.#accept(listening, null, null, flags);
      // None is left, or too many files are open, which Node reports as well.
      if (fd < 0) return;
      this.#receiveDescriptor(fd);
    }
  }

  /** Number of accepted connections that are not open yet. */
  get size(): number {
    return this.#waiting.size;
  }

  /** Closes all waiting connections. */
  close(): void {
    for (const arrival of this.#waiting) this.#reject(arrival);
    this.#pending.clear();
  }

  #receiveDescriptor(fd: number): void {
    const uid = this.#uidOf(fd);
    if (uid === undefined || this.#ofUid.of(uid) >= this.#options.maxWaitingPerPeer) {
      closeSync(fd);
      return;
    }
    const arrival = this.#add(uid, fd);
    this.#options.fairQueue.run(peerName(uid), () => this.#acceptNow(arrival));
  }

  #add(uid: number, accepted: number | Socket): Arrival {
    const arrival = { uid, accepted, sinceMs: performance.now() };
    this.#waiting.add(arrival);
    this.#ofUid.change(uid, 1);
    return arrival;
  }

  #remove(arrival: Arrival): void {
    if (this.#waiting.delete(arrival)) this.#ofUid.change(arrival.uid, -1);
  }

  #acceptNow(arrival: Arrival): void {
    const { uid } = arrival;
    const { hasSlotFor, maxWaitingPerPeer } = this.#options;
    if (!this.#waiting.has(arrival)) return;
    const pending = this.#pending.get(uid);
    if (pending === undefined && hasSlotFor(uid)) {
      this.#open(arrival);
    } else if (this.#ofUid.of(uid) > maxWaitingPerPeer || this.#waiting.size > maxWaiting) {
      // Node may accept more than the limit.
      this.#reject(arrival);
    } else if (pending !== undefined) {
      pending.push(arrival);
    } else {
      this.#pending.set(uid, [arrival]);
      this.#retryLater(uid);
    }
  }

  #retryLater(uid: number): void {
    setTimeout(() => this.#options.fairQueue.run(peerName(uid), () => this.#acceptHeld(uid)), retryMs);
  }

  /** One per turn, so that requests of open connections are served in between. */
  #acceptHeld(uid: number): void {
    const { fairQueue, hasSlotFor, maxHeldMs = 10_000 } = this.#options;
    const pending = this.#pending.get(uid);
    const [first] = pending ?? [];
    if (pending === undefined || first === undefined) {
      this.#pending.delete(uid);
    } else if (hasSlotFor(uid)) {
      pending.shift();
      this.#open(first);
      fairQueue.run(peerName(uid), () => this.#acceptHeld(uid));
    } else {
      while (pending[0] !== undefined && performance.now() - pending[0].sinceMs > maxHeldMs) {
        this.#reject(pending[0]);
        pending.shift();
      }
      this.#retryLater(uid);
    }
  }

  /** Undefined if the kernel does not report the peer; the connection is then closed. */
  #uidOf(accepted: number | Socket): number | undefined {
    const { readPeerUid, log } = this.#options;
    try {
      return readPeerUid(accepted);
    } catch (err) {
      log.warn({ err }, "closed a connection without peer credentials");
      return undefined;
    }
  }

  #reject(arrival: Arrival): void {
    this.#remove(arrival);
    if (typeof arrival.accepted === "number") closeSync(arrival.accepted);
    else arrival.accepted.destroy();
  }

  #open(arrival: Arrival): void {
    const { uid, accepted } = arrival;
    this.#remove(arrival);
    const socket = typeof accepted === "number" ? this.#socketOf(accepted) : accepted.off("error", ignore);
    if (socket !== undefined) this.#options.onPeer(socket, uid);
  }

  #socketOf(fd: number): Socket | undefined {
    try {
      return new Socket({ fd, readable: true, writable: true, ...connectionOptions });
    } catch (err) {
      closeSync(fd);
      this.#options.log.warn({ err }, "failed to open a connection");
      return undefined;
    }
  }
}

/** An error listener for resets while no other listener is registered. */
export const ignore = (): void => undefined;
