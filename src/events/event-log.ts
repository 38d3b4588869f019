/** What happened on this node, the newest of it held in memory for whoever follows (decisions 43). */
import { randomBytes } from "node:crypto";
import type { EventKind } from "../../gen/svc/v1/words.ts";
import { invalidField } from "../errors.ts";
import { unlessAborted } from "../lib/unless-aborted.ts";

/** As the contract's `Event`; what does not apply is absent. */
export interface NodeEvent {
  readonly kind: EventKind;
  readonly appId?: string;
  readonly subject?: string;
  readonly state?: string;
  readonly message?: string;
  /** Whose it is; absent for what is the host's. */
  readonly owner?: number;
  /** True: root alone may see it, else everybody may see what is the host's. */
  readonly isRoots?: boolean;
}

/** Whether a user hears of an event: of what is their own, and of what is the host's and not root's alone. */
export function mayHear({ owner, isRoots }: NodeEvent, user: { uid: number; root: boolean }): boolean {
  return user.root || owner === user.uid || (owner === undefined && isRoots !== true);
}

/** An event at its place among the others. */
export interface HeldEvent extends NodeEvent {
  readonly cursor: string;
  /** Unix milliseconds. */
  readonly atMs: number;
}

export interface EventLogOptions {
  now: () => number;
  /** Hears what a listener threw. */
  onError: (error: unknown) => void;
}

/** Where a reader begins. */
export interface EventStart {
  /** The cursor of the last event that was seen; empty: with what comes next. */
  readonly after: string;
  /** True: with the oldest that is held. */
  readonly past: boolean;
  /** True: it ends with what is held when it begins. */
  readonly untilNow: boolean;
}

export const maxEvents = 10_000;
export const maxAgeMs = 3_600_000;

export class EventLog {
  readonly #options: EventLogOptions;
  /** Cursors of another daemon are not ours. */
  readonly #name = randomBytes(6).toString("hex");
  readonly #events = new Map<number, HeldEvent>();
  readonly #listeners = new Set<(event: NodeEvent) => void>();
  #oldest = 1;
  #next = 1;
  #news = Promise.withResolvers<undefined>();

  constructor(options: EventLogOptions) {
    this.#options = options;
  }

  append(event: NodeEvent): void {
    const atMs = this.#options.now();
    this.#events.set(this.#next, { ...event, cursor: this.#cursor(this.#next), atMs });
    this.#next++;
    this.#forget(atMs);
    this.#news.resolve(undefined);
    this.#news = Promise.withResolvers();
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
   * A `begin` at once, and then the events that are wanted, in order, until `signal` aborts. A `reset` stands for what is
   * not held any more, also where the reader is too slow: nothing waits for readers.
   *
   * @throws SvcError `invalid_request` for a cursor that is none; the signal's reason
   */
  async *follow(
    start: EventStart,
    isWanted: (event: NodeEvent) => boolean,
    signal: AbortSignal,
  ): AsyncGenerator<HeldEvent, void> {
    this.#forget(this.#options.now());
    let next = this.#begin(start);
    const end = start.untilNow ? this.#next : Number.POSITIVE_INFINITY;
    if (next >= this.#oldest) yield this.#mark("begin", next);
    while (next < end) {
      signal.throwIfAborted();
      this.#forget(this.#options.now());
      if (next < this.#oldest) {
        // Whoever looks at everything again sees what was held, too.
        next = this.#next;
        yield this.#mark("reset", next);
      } else if (next < this.#next) {
        const event = this.#events.get(next++);
        if (event !== undefined && isWanted(event)) yield event;
      } else await unlessAborted(this.#news.promise, signal);
    }
  }

  /** The number of the first event that is told; one that is not held asks for a reset. */
  #begin({ after, past }: EventStart): number {
    if (after === "") return past ? this.#oldest : this.#next;
    const [, name, digits = ""] = /^([0-9a-f]{12})-(\d{1,15})$/.exec(after) ?? [];
    if (name === undefined) throw invalidField("after", "it is no cursor of an event");
    const seen = Number(digits);
    return name === this.#name && seen < this.#next ? seen + 1 : 0;
  }

  /** Stands before the event of this number. */
  #mark(kind: "begin" | "reset", next: number): HeldEvent {
    return { kind, cursor: this.#cursor(next - 1), atMs: this.#options.now() };
  }

  #cursor(number: number): string {
    return `${this.#name}-${String(number)}`;
  }

  #forget(nowMs: number): void {
    while (this.#oldest < this.#next) {
      const event = this.#events.get(this.#oldest);
      const isYoung = event !== undefined && nowMs - event.atMs < maxAgeMs;
      if (isYoung && this.#events.size <= maxEvents) return;
      this.#events.delete(this.#oldest++);
    }
  }
}
