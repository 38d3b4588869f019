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
/** Maximum number of helpers, including those that no longer count, as a multiple of `maxHelpers`. */
const maxBusyFactor = 4;
/** Milliseconds for the clean-up after a helper that died. */
const killRunsMs = 30_000;

export interface HelperPoolOptions {
  start: (uid: number) => Promise<HelperProcess>;
  /** Helpers of all users. Root's helper is not counted, so that root never waits for users' work. */
  maxHelpers: number;
  /** A helper that is busy for longer no longer counts, so that a user who always has work does not block the next one. */
  turnMs: number;
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
  turnTimer: NodeJS.Timeout | undefined;
  /** Whether it has been busy for longer than a turn, so that it no longer counts. */
  isOverdue: boolean;
}

export class HelperPool implements AsyncDisposable {
  readonly #options: HelperPoolOptions;
  readonly #slots = new Map<number, Slot>();
  /** Requests of users without a helper, by uid: users take turns, however many requests each has. */
  readonly #queues = new Map<number, (() => void)[]>();
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
    while (this.#queues.size > 0) this.#wakeUser();
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
        slot.turnTimer ??= setTimeout(() => this.#endTurn(slot), this.#options.turnMs).unref();
        return slot;
      }
      if (slot) await this.#wait(slot.waiting, () => slot.waiting.shift()?.(), request, deadline);
      else await this.#waitForSlot(uid, request, deadline);
    }
  }

  /** Creates a slot for a user, replacing the slot of an idle helper if all are used. */
  #newSlot(uid: number): Slot | undefined {
    const { maxHelpers } = this.#options;
    const users = [...this.#slots.values()].filter((slot) => slot.uid !== rootUid);
    const counted = users.filter(({ isOverdue }) => !isOverdue);
    if (uid !== rootUid && (counted.length >= maxHelpers || users.length >= maxBusyFactor * maxHelpers)) {
      const idle = users.find(({ active }) => active === 0);
      if (!idle) return undefined;
      this.#retire(idle);
    }
    const slot: Slot = {
      ...{ uid, helper: undefined, active: 0, waiting: [], isOverdue: false },
      ...{ idleTimer: undefined, turnTimer: undefined },
    };
    this.#slots.set(uid, slot);
    return slot;
  }

  #leave(slot: Slot): void {
    slot.active -= 1;
    const next = slot.waiting.shift();
    if (next) next();
    else if (slot.active === 0 && this.#slots.get(slot.uid) === slot) {
      clearTimeout(slot.turnTimer);
      slot.turnTimer = undefined;
      slot.isOverdue = false;
      slot.idleTimer = setTimeout(() => this.#retire(slot), this.#options.idleMs).unref();
      // Root's helper is not counted, so its end frees no slot for users.
      if (slot.uid !== rootUid) this.#wakeUser();
    }
  }

  #endTurn(slot: Slot): void {
    slot.isOverdue = true;
    if (slot.uid !== rootUid) this.#wakeUser();
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
      void helper.ended.then(({ reason, runIds }) => this.#onHelperDeath(slot, reason, runIds));
      return helper;
    } catch (error) {
      slot.helper = undefined;
      throw error;
    }
  }

  /** A helper that dies leaves its commands running: its successor kills them. */
  #onHelperDeath(slot: Slot, reason: string, runIds: string[]): void {
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
    this.#trackChore(
      this.request(slot.uid, request).catch((error: unknown) => {
        this.#options.log.warn({ uid: slot.uid, err: error }, "failed to kill the commands of a dead helper");
      }),
    );
  }

  #retire(slot: Slot): void {
    clearTimeout(slot.idleTimer);
    clearTimeout(slot.turnTimer);
    this.#slots.delete(slot.uid);
    for (const wake of slot.waiting.splice(0)) wake();
    if (slot.helper) this.#trackChore(slot.helper.then((helper) => helper.close()).catch(() => undefined));
  }

  #trackChore(work: Promise<unknown>): void {
    const chore = work.finally(() => this.#chores.delete(chore));
    this.#chores.add(chore);
  }

  async #waitForSlot(uid: number, request: HelperRequest, deadline: number): Promise<void> {
    const queue = this.#queues.get(uid) ?? [];
    this.#queues.set(uid, queue);
    try {
      await this.#wait(queue, () => this.#wakeUser(), request, deadline);
    } finally {
      if (queue.length === 0 && this.#queues.get(uid) === queue) this.#queues.delete(uid);
    }
  }

  /** Wakes all requests of the user who waits longest: they share one helper. */
  #wakeUser(): void {
    const [next] = this.#queues;
    if (next === undefined) return;
    const [uid, queue] = next;
    this.#queues.delete(uid);
    for (const wake of queue.splice(0)) wake();
  }

  /** @param pass gives another request the turn that this one no longer needs */
  async #wait(
    queue: (() => void)[],
    pass: () => void,
    { signal, subject }: HelperRequest,
    deadline: number,
  ): Promise<void> {
    if (queue.length >= maxWaiting) {
      throw new SvcError("too_many", `${subject}: too many requests are waiting; try again later`);
    }
    const turn = Promise.withResolvers<undefined>();
    const wake = () => turn.resolve(undefined);
    const abort = () => turn.reject(new SvcError("canceled", `${subject}: canceled`));
    const timer = setTimeout(
      () => turn.reject(new SvcError("deadline_exceeded", `${subject}: no helper process was free in time`)),
      Math.max(0, deadline - performance.now()),
    );
    queue.push(wake);
    signal?.addEventListener("abort", abort);
    if (signal?.aborted) abort();
    try {
      await turn.promise;
    } catch (error) {
      if (!queue.includes(wake)) pass();
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
