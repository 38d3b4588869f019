/**
 * Who waits at a unix socket is accepted at once, and becomes a connection in a turn of their own (T 56, 57). Node accepts one
 * in a turn of the event loop, in the order in which they came: behind thousands of one user's everybody else would wait for
 * as many turns. To accept and to know whose it is takes microseconds; what costs is to make a connection of it.
 */
import { closeSync } from "node:fs";
import { Socket, type Server } from "node:net";
import type { FairTurns } from "../lib/fair-turns.ts";
import { loadLibc } from "../lib/libc.ts";
import type { Log } from "../lib/log.ts";
import { Tally } from "../lib/tally.ts";
import { peerName } from "./connection.ts";
import { descriptorOf } from "./descriptor.ts";
import type { ReadPeerUid } from "./peer-uid.ts";

/** In one turn of the loop: more would hold up those who are in already, and less those who wait. */
const maxAcceptedAtOnce = 64;
/** In all: who comes beyond them waits in the kernel's queue. */
const maxWaiting = 4096;
/** Between two looks whether there is room by now. */
const roomStepMs = 20;
/** SOCK_NONBLOCK and SOCK_CLOEXEC, with which libuv accepts as well. */
const flags = 0o4000 | 0o2000000;

export interface ArrivalsOptions {
  readonly turns: FairTurns;
  readonly readPeerUid: ReadPeerUid;
  /** Of one uid; who comes beyond them is turned away. */
  readonly maxWaitingPerPeer: number;
  /** Whether one of the uid's can be let in. */
  readonly hasRoomFor: (uid: number) => boolean;
  /** How long one waits for room, which those who have it may soon give up; then it is turned away. Default: 10 s. */
  readonly maxHeldMs?: number;
  readonly onPeer: (socket: Socket, uid: number) => void;
  readonly log: Pick<Log, "warn">;
}

/**
 * Half open: over HTTP/2 a client may close its side after its last request and still read the answer. Over HTTP/1.1 node
 * ends the connection then, which is how it hears of a client that has left a stream.
 */
export const connectionOptions = { allowHalfOpen: true, noDelay: true } as const;

/** Who has been accepted, by its descriptor, or as a socket by node. */
interface Arrival {
  readonly uid: number;
  readonly accepted: number | Socket;
  readonly sinceMs: number;
}

/** Those who have been accepted on a unix socket and are no connection yet. */
export class Arrivals {
  readonly #options: ArrivalsOptions;
  readonly #waiting = new Set<Arrival>();
  readonly #ofUid = new Tally<number>();
  /** Those of them whose turn came when there was no room. */
  readonly #held = new Map<number, Arrival[]>();
  readonly #accept = loadLibc().func("int accept4(int fd, void *address, void *length, int flags)") as (
    ...args: unknown[]
  ) => number;

  constructor(options: ArrivalsOptions) {
    this.#options = options;
  }

  /** Lets in whom node has accepted. */
  receive(socket: Socket): void {
    // Nobody else hears of a reset while it waits.
    socket.on("error", ignore);
    const uid = this.#uidOf(socket);
    if (uid === undefined) socket.destroy();
    else this.#letIn(this.#add(uid, socket));
  }

  /** Accepts those who wait behind the one whom `server` has just accepted. */
  acceptMore(server: Server): void {
    const listening = descriptorOf(server);
    if (listening === undefined) return;
    for (let count = 0; count < maxAcceptedAtOnce && this.#waiting.size < maxWaiting; count++) {
      const fd = this.#accept(listening, null, null, flags);
      // Nobody is left; or there are too many files, which node hears of as well.
      if (fd < 0) return;
      this.#receiveDescriptor(fd);
    }
  }

  /** Of those who were accepted and are no connection yet. */
  get size(): number {
    return this.#waiting.size;
  }

  /** Turns away who waits. */
  close(): void {
    for (const arrival of this.#waiting) this.#turnAway(arrival);
    this.#held.clear();
  }

  #receiveDescriptor(fd: number): void {
    const uid = this.#uidOf(fd);
    if (uid === undefined || this.#ofUid.of(uid) >= this.#options.maxWaitingPerPeer) {
      closeSync(fd);
      return;
    }
    const arrival = this.#add(uid, fd);
    this.#options.turns.run(peerName(uid), () => this.#letIn(arrival));
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

  #letIn(arrival: Arrival): void {
    const { uid } = arrival;
    const { hasRoomFor, maxWaitingPerPeer } = this.#options;
    if (!this.#waiting.has(arrival)) return;
    const held = this.#held.get(uid);
    if (held === undefined && hasRoomFor(uid)) {
      this.#open(arrival);
    } else if (this.#ofUid.of(uid) > maxWaitingPerPeer || this.#waiting.size > maxWaiting) {
      // Node accepts without asking.
      this.#turnAway(arrival);
    } else if (held !== undefined) {
      held.push(arrival);
    } else {
      this.#held.set(uid, [arrival]);
      this.#lookLater(uid);
    }
  }

  #lookLater(uid: number): void {
    setTimeout(() => this.#options.turns.run(peerName(uid), () => this.#letInHeld(uid)), roomStepMs);
  }

  /** One in a turn: what those ask who are in comes in between. */
  #letInHeld(uid: number): void {
    const { turns, hasRoomFor, maxHeldMs = 10_000 } = this.#options;
    const held = this.#held.get(uid);
    const [first] = held ?? [];
    if (held === undefined || first === undefined) {
      this.#held.delete(uid);
    } else if (hasRoomFor(uid)) {
      held.shift();
      this.#open(first);
      turns.run(peerName(uid), () => this.#letInHeld(uid));
    } else {
      while (held[0] !== undefined && performance.now() - held[0].sinceMs > maxHeldMs) {
        this.#turnAway(held[0]);
        held.shift();
      }
      this.#lookLater(uid);
    }
  }

  /** Undefined when the kernel does not tell (T 2): a connection whose peer it does not name serves nobody. */
  #uidOf(accepted: number | Socket): number | undefined {
    const { readPeerUid, log } = this.#options;
    try {
      return readPeerUid(accepted);
    } catch (err) {
      log.warn({ err }, "closed a connection without peer credentials");
      return undefined;
    }
  }

  #turnAway(arrival: Arrival): void {
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
      this.#options.log.warn({ err }, "a connection could not be opened");
      return undefined;
    }
  }
}

/** For resets that come while nobody else hears of them. */
export const ignore = (): void => undefined;
