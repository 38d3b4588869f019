/** The events of this node. The newest are kept in memory for clients that follow. */
import type { EventKind } from "../../../gen/svc/v1/values.ts";
import { unlessAborted } from "../../lib/abort.ts";
import { EventCursors } from "./event-cursors.ts";

/** An event as in the contract; values that do not apply are absent. */
export interface NodeEvent {
  readonly kind: EventKind;
  readonly appId?: string;
  readonly subject?: string;
  readonly state?: string;
  /** The app's state; see `App.status`. */
  readonly status?: string;
  readonly message?: string;
  /** The owner's uid; absent for events of the host. */
  readonly owner?: number;
  /** True: only root may see it. Otherwise all users may see events of the host. */
  readonly isRoots?: boolean;
}

/** Whether a user may see an event: their own, and those of the host that are not only for root. */
export function maySee({ owner, isRoots }: NodeEvent, user: { uid: number; root: boolean }): boolean {
  return user.root || owner === user.uid || (owner === undefined && isRoots !== true);
}

/** An event with its number. */
export interface HeldEvent extends NodeEvent {
  readonly cursor: string;
  /** Unix milliseconds. */
  readonly atMs: number;
}

export interface EventLogOptions {
  now: () => number;
  /** Called with errors of listeners. */
  onError: (error: unknown) => void;
}

/** Where a reader starts. */
export interface EventStart {
  /** The cursor of the last event that the reader saw; empty: start with the next event. */
  readonly after: string;
  /** True: start with the oldest retained event. */
  readonly past: boolean;
  /** True: end after the events that were retained at the start. */
  readonly untilNow: boolean;
}

/**
 * Maximum retained events of each: the host, root, and all other owners together. If the other owners have too many,
 * the owner with the most events loses the oldest one, so that a flood of one owner's events does not remove those of
 * other owners.
 */
export const maxEvents = 10_000;
export const maxAgeMs = 3_600_000;

/** Events of one owner. */
interface EventShare {
  /** Numbers of the retained events, oldest first; expired ones are removed when the share drops an event. */
  held: number[];
  /** The newest event that was dropped for lack of space; 0 for none. */
  lastLost: number;
}

export class EventLog {
  readonly #options: EventLogOptions;
  readonly #cursors = new EventCursors();
  readonly #events = new Map<number, HeldEvent>();
  /** By owner; undefined is the host. */
  readonly #shares = new Map<number | undefined, EventShare>();
  /** The newest event that any owner lost for lack of space. */
  #lastLost = 0;
  readonly #listeners = new Set<(event: NodeEvent) => void>();
  #oldest = 1;
  #next = 1;
  #changed = Promise.withResolvers<undefined>();

  constructor(options: EventLogOptions) {
    this.#options = options;
  }

  append(event: NodeEvent): void {
    const atMs = this.#options.now();
    this.#events.set(this.#next, { ...event, cursor: this.#cursors.cursorOf(this.#next), atMs });
    const share = this.#shares.get(event.owner) ?? { held: [], lastLost: 0 };
    this.#shares.set(event.owner, share);
    share.held.push(this.#next);
    this.#next++;
    this.#forget(atMs);
    this.#dropExcess(event.owner, share);
    this.#changed.resolve(undefined);
    this.#changed = Promise.withResolvers();
    for (const listener of this.#listeners) {
      try {
        listener(event);
      } catch (error) {
        this.#options.onError(error);
      }
    }
  }

  /** Calls `listener` with each event as it is appended. */
  listen(listener: (event: NodeEvent) => void): Disposable {
    const entry = (event: NodeEvent): void => listener(event);
    this.#listeners.add(entry);
    return { [Symbol.dispose]: () => void this.#listeners.delete(entry) };
  }

  /**
   * Yields a `begin` at once, and then the matching events in order, until `signal` aborts. A `reset` replaces expired
   * events, also if the reader is too slow: writers never wait for readers.
   *
   * @param mayHearOf whether the reader may receive events of this owner; undefined is the host
   * @throws SvcError `invalid_request` for an invalid cursor; the signal's reason
   */
  async *follow(
    start: EventStart,
    matches: (event: NodeEvent) => boolean,
    signal: AbortSignal,
    mayHearOf: (owner: number | undefined) => boolean = () => true,
  ): AsyncGenerator<HeldEvent, void> {
    this.#forget(this.#options.now());
    let next = this.#begin(start);
    const end = start.untilNow ? this.#next : Number.POSITIVE_INFINITY;
    // Readers of past events get the retained ones; events lost before are not a gap for these readers.
    const isPast = start.after === "" && start.past;
    const known = new Map(isPast ? [...this.#shares].map(([owner, share]) => [owner, share.lastLost]) : []);
    const hasGap = (): boolean => {
      if (next < this.#oldest) return true;
      if (this.#lastLost < next) return false;
      for (const [owner, { lastLost }] of this.#shares)
        if (lastLost >= next && lastLost > (known.get(owner) ?? 0) && mayHearOf(owner)) return true;
      return false;
    };
    if (!hasGap()) yield this.#mark("begin", next);
    while (next < end) {
      signal.throwIfAborted();
      this.#forget(this.#options.now());
      if (hasGap()) {
        // A reader that reloads everything also sees the retained events.
        next = this.#next;
        yield this.#mark("reset", next);
      } else if (next < this.#next) {
        const event = this.#events.get(next++);
        if (event !== undefined && matches(event)) yield event;
      } else await unlessAborted(this.#changed.promise, signal);
    }
  }

  /** The number of the first event to send; a number that is not retained causes a reset. */
  #begin({ after, past }: EventStart): number {
    if (after === "") return past ? this.#oldest : this.#next;
    const seen = this.#cursors.numberOf(after);
    return seen !== undefined && seen < this.#next ? seen + 1 : 0;
  }

  /** Positions the reader before the event with this number. */
  #mark(kind: "begin" | "reset", next: number): HeldEvent {
    return { kind, cursor: this.#cursors.cursorOf(next - 1), atMs: this.#options.now() };
  }

  #forget(nowMs: number): void {
    while (this.#oldest < this.#next) {
      const event = this.#events.get(this.#oldest);
      // Undefined: dropped earlier from its owner's share.
      if (event !== undefined && nowMs - event.atMs < maxAgeMs) return;
      this.#events.delete(this.#oldest++);
    }
  }

  /** @param share of the owner of the newest event */
  #dropExcess(owner: number | undefined, share: EventShare): void {
    const isRegular = (other: number | undefined): boolean => other !== undefined && other !== 0;
    if (!isRegular(owner)) {
      this.#trim(share);
      if (share.held.length > maxEvents) this.#dropOldest(share);
      return;
    }
    let count = 0;
    let largest = share;
    for (const [other, each] of this.#shares) {
      if (!isRegular(other)) continue;
      this.#trim(each);
      count += each.held.length;
      if (each.held.length > largest.held.length) largest = each;
    }
    if (count > maxEvents) this.#dropOldest(largest);
  }

  /** Removes the numbers of expired events. */
  #trim(share: EventShare): void {
    if ((share.held[0] ?? this.#oldest) >= this.#oldest) return;
    share.held = share.held.filter((number) => number >= this.#oldest);
  }

  #dropOldest(share: EventShare): void {
    const number = share.held.shift();
    if (number === undefined) return;
    this.#events.delete(number);
    share.lastLost = number;
    this.#lastLost = Math.max(this.#lastLost, number);
  }
}
