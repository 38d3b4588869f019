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
import type { ReadPeerCredentials } from "./peer-credentials.ts";

/** In one turn of the loop: more would hold up those who are in already, and less those who wait. */
const maxAcceptedAtOnce = 64;
/** In all: who comes beyond them waits in the kernel's queue. */
const maxWaiting = 4096;
/** SOCK_NONBLOCK and SOCK_CLOEXEC, with which libuv accepts as well. */
const flags = 0o4000 | 0o2000000;

export interface ArrivalsOptions {
  readonly turns: FairTurns;
  readonly credentials: ReadPeerCredentials;
  /** Of one uid; who comes beyond them is turned away. */
  readonly maxWaitingPerPeer: number;
  readonly onPeer: (socket: Socket, uid: number) => void;
  readonly log: Pick<Log, "warn">;
}

/**
 * Half open: over HTTP/2 a client may close its side after its last request and still read the answer. Over HTTP/1.1 node
 * ends the connection then, which is how it hears of a client that has left a stream.
 */
export const connectionOptions = { allowHalfOpen: true, noDelay: true } as const;

/** Those who have been accepted on a unix socket and are no connection yet. */
export class Arrivals {
  readonly #options: ArrivalsOptions;
  readonly #waiting = new Set<number>();
  readonly #ofUid = new Tally<number>();
  readonly #accept = loadLibc().func("int accept4(int fd, void *address, void *length, int flags)") as (
    ...args: unknown[]
  ) => number;

  constructor(options: ArrivalsOptions) {
    this.#options = options;
  }

  /** Accepts those who wait behind the one whom `server` has just accepted. */
  acceptMore(server: Server): void {
    const listening = descriptorOf(server);
    if (listening === undefined) return;
    for (let count = 0; count < maxAcceptedAtOnce && this.#waiting.size < maxWaiting; count++) {
      const fd = this.#accept(listening, null, null, flags);
      // Nobody is left; or there are too many files, which node hears of as well.
      if (fd < 0) return;
      this.#receive(fd);
    }
  }

  /** Of those who were accepted and are no connection yet. */
  get size(): number {
    return this.#waiting.size;
  }

  /** Turns away who waits. */
  close(): void {
    for (const fd of this.#waiting) closeSync(fd);
    this.#waiting.clear();
  }

  #receive(fd: number): void {
    const { turns, maxWaitingPerPeer, onPeer } = this.#options;
    const uid = this.#uidOf(fd);
    if (uid === undefined || this.#ofUid.of(uid) >= maxWaitingPerPeer) {
      closeSync(fd);
      return;
    }
    this.#waiting.add(fd);
    this.#ofUid.change(uid, 1);
    turns.run(peerName(uid), () => {
      this.#ofUid.change(uid, -1);
      const socket = this.#waiting.delete(fd) ? this.#open(fd) : undefined;
      if (socket !== undefined) onPeer(socket, uid);
    });
  }

  /** Undefined when the kernel does not tell (T 2). */
  #uidOf(fd: number): number | undefined {
    const { credentials, log } = this.#options;
    try {
      return credentials(fd).uid;
    } catch (err) {
      log.warn({ err }, "closed a connection without peer credentials");
      return undefined;
    }
  }

  #open(fd: number): Socket | undefined {
    try {
      return new Socket({ fd, readable: true, writable: true, ...connectionOptions });
    } catch (err) {
      closeSync(fd);
      this.#options.log.warn({ err }, "a connection could not be opened");
      return undefined;
    }
  }
}
