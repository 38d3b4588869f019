/** At most one helper per user, and a limited number in total. A helper is started when needed and stopped when idle. */
import { SvcError } from "../errors.ts";
import type { Log } from "../lib/log.ts";
import type { HelperProcess } from "./helper-process.ts";
import type { Op } from "./helper-protocol.ts";
import type { HelperAnswer, HelperRequest } from "./pending-request.ts";

/** Concurrent requests per helper. */
const maxActive = 64;
/** Waiting requests per user. */
const maxWaiting = 1024;
/** Helpers started for one request. If the last one dies too, the request fails. */
const maxAttempts = 3;
const rootUid = 0;
/** Milliseconds for the clean-up after a helper that died. */
const killRunsMs = 30_000;

export interface HelperPoolOptions {
  start: (uid: number) => Promise<HelperProcess>;
  /** Helpers of all users. Root's helper is not counted, so that root never waits for users' work. */
  maxHelpers: number;
  idleMs: number;
  log: Pick<Log, "warn">;
}

/** The helper of one user and the requests that wait for it. */
interface Slot {
  uid: number;
  helper: Promise<HelperProcess> | undefined;
  active: number;
  waiting: (() => void)[];
  idleTimer: NodeJS.Timeout | undefined;
}

export class HelperPool implements AsyncDisposable {
  readonly #options: HelperPoolOptions;
  readonly #slots = new Map<number, Slot>();
  /** Requests of users without a helper, in order of arrival. */
  readonly #queue: (() => void)[] = [];
  /** Helpers that are stopping, and clean-ups: awaited on dispose. */
  readonly #chores = new Set<Promise<unknown>>();
  #closed = false;

  constructor(options: HelperPoolOptions) {
    this.#options = options;
  }

  /** @throws SvcError `too_many` if too many requests wait; any error of the request */
  async request<O extends Op>(uid: number, request: HelperRequest<O>): Promise<HelperAnswer<O>> {
    const slot = await this.#enter(uid, request);
    try {
      const helper = await this.#helperOf(slot);
      return await helper.request(request);
    } finally {
      this.#leave(slot);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true;
    for (const slot of this.#slots.values()) this.#retire(slot);
    for (const wake of this.#queue.splice(0)) wake();
    while (this.#chores.size > 0) await Promise.allSettled(this.#chores);
  }

  async #enter(uid: number, request: HelperRequest): Promise<Slot> {
    const deadline = performance.now() + request.timeoutMs;
    for (;;) {
      this.#assertOpen();
      const slot = this.#slots.get(uid) ?? this.#newSlot(uid);
      if (slot && slot.active < maxActive) {
        slot.active += 1;
        clearTimeout(slot.idleTimer);
        return slot;
      }
      await this.#wait(slot?.waiting ?? this.#queue, request, deadline);
    }
  }

  /** Creates a slot for a user, replacing the slot of an idle helper if all are used. */
  #newSlot(uid: number): Slot | undefined {
    const users = this.#slots.size - (this.#slots.has(rootUid) ? 1 : 0);
    if (uid !== rootUid && users >= this.#options.maxHelpers) {
      const idle = this.#slots.values().find((slot) => slot.active === 0 && slot.uid !== rootUid);
      if (!idle) return undefined;
      this.#retire(idle);
    }
    const slot: Slot = { uid, helper: undefined, active: 0, waiting: [], idleTimer: undefined };
    this.#slots.set(uid, slot);
    return slot;
  }

  #leave(slot: Slot): void {
    slot.active -= 1;
    const next = slot.waiting.shift();
    if (next) next();
    else if (slot.active === 0 && this.#slots.get(slot.uid) === slot) {
      slot.idleTimer = setTimeout(() => this.#retire(slot), this.#options.idleMs).unref();
      // Root's helper is not counted, so its end frees no slot for users.
      if (slot.uid !== rootUid) this.#queue.shift()?.();
    }
  }

  async #helperOf(slot: Slot): Promise<HelperProcess> {
    for (let attempt = 1; ; attempt++) {
      this.#assertOpen();
      const starting = (slot.helper ??= this.#start(slot));
      const helper = await starting;
      if (!helper.dead || attempt === maxAttempts) return helper;
      // The first request that finds the helper dead starts the next one.
      if (slot.helper === starting) slot.helper = undefined;
    }
  }

  async #start(slot: Slot): Promise<HelperProcess> {
    try {
      const helper = await this.#options.start(slot.uid);
      void helper.ended.then(({ reason, runIds }) => this.#afterEnd(slot, reason, runIds));
      return helper;
    } catch (error) {
      slot.helper = undefined;
      throw error;
    }
  }

  /** A helper that dies leaves its commands running: its successor kills them. */
  #afterEnd(slot: Slot, reason: string, runIds: string[]): void {
    if (this.#slots.get(slot.uid) !== slot) return;
    slot.helper = undefined;
    this.#options.log.warn({ uid: slot.uid, reason, runs: runIds.length }, "a helper process died");
    if (runIds.length === 0 || this.#closed) return;
    const request = {
      op: "killRuns" as const,
      args: { runIds },
      subject: "cleaning up",
      timeoutMs: killRunsMs,
    };
    this.#chore(
      this.request(slot.uid, request).catch((error: unknown) => {
        this.#options.log.warn({ uid: slot.uid, err: error }, "failed to kill the commands of a dead helper");
      }),
    );
  }

  #retire(slot: Slot): void {
    clearTimeout(slot.idleTimer);
    this.#slots.delete(slot.uid);
    for (const wake of slot.waiting.splice(0)) wake();
    if (slot.helper) this.#chore(slot.helper.then((helper) => helper.close()).catch(() => undefined));
  }

  #chore(work: Promise<unknown>): void {
    const chore = work.finally(() => this.#chores.delete(chore));
    this.#chores.add(chore);
  }

  async #wait(queue: (() => void)[], { signal, subject }: HelperRequest, deadline: number): Promise<void> {
    if (queue.length >= maxWaiting) {
      throw new SvcError("too_many", `${subject}: too many requests are waiting; try again later`);
    }
    const turn = Promise.withResolvers<undefined>();
    const wake = () => turn.resolve(undefined);
    const abort = () => turn.reject(new SvcError("canceled", `${subject}: canceled`));
    const timer = setTimeout(
      () => turn.reject(new SvcError("deadline_exceeded", `${subject}: waited too long`)),
      Math.max(0, deadline - performance.now()),
    );
    queue.push(wake);
    signal?.addEventListener("abort", abort);
    if (signal?.aborted) abort();
    try {
      await turn.promise;
    } catch (error) {
      // The slot that this request no longer needs goes to the next one.
      if (!queue.includes(wake)) queue.shift()?.();
      throw error;
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
      const index = queue.indexOf(wake);
      if (index >= 0) queue.splice(index, 1);
    }
  }

  #assertOpen(): void {
    if (this.#closed) throw new SvcError("unavailable", "svc is stopping");
  }
}
