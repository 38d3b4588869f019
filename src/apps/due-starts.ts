/** When the daemon starts an app by itself: one that was lost, or that it could not start before. In memory. */
import type { Clock } from "../lib/clock.ts";

/** Where the host goes down, the daemon is told to end at about the same time: it must have heard of it. */
const firstLostMs = 500;
const maxLostMs = 60_000;
/** What a start needs that failed, such as an engine or a port, may be there soon after a boot. */
const failedMs = [5_000, 15_000, 45_000, 120_000];
const lastFailedMs = 300_000;
/** What has failed for as long as this will not mend by itself. */
const givenUpMs = 3_600_000;

interface DueStart {
  /** Unix milliseconds. */
  readonly atMs: number;
  readonly timer: Disposable;
}

export class DueStarts implements Disposable {
  readonly #clock: Clock;
  /** By app, as all of these. */
  readonly #due = new Map<string, DueStart>();
  readonly #lost = new Map<string, { times: number; lastMs: number }>();
  readonly #failed = new Map<string, { times: number; firstMs: number }>();
  #revision = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Grows when a start became due or is not any more. */
  get revision(): number {
    return this.#revision;
  }

  /** When the app is started, unix milliseconds. */
  atMs(id: string): number | undefined {
    return this.#due.get(id)?.atMs;
  }

  /** Starts an app that was lost: later while it is lost again and again. */
  afterLoss(id: string, start: () => void): void {
    const nowMs = this.#clock.monotonicMs();
    const before = this.#lost.get(id);
    const times = before === undefined || nowMs - before.lastMs > 2 * maxLostMs ? 0 : before.times;
    this.#lost.set(id, { times: times + 1, lastMs: nowMs });
    this.#plan(id, Math.min(maxLostMs, firstLostMs * 2 ** times), start);
  }

  /** Starts an app again whose start failed: later each time, for an hour. */
  afterFailure(id: string, start: () => void): void {
    const nowMs = this.#clock.monotonicMs();
    const { times, firstMs } = this.#failed.get(id) ?? { times: 0, firstMs: nowMs };
    this.#failed.set(id, { times: times + 1, firstMs });
    const delayMs = failedMs[times] ?? lastFailedMs;
    if (nowMs + delayMs - firstMs <= givenUpMs) this.#plan(id, delayMs, start);
  }

  /** It is up, or what becomes of it is somebody else's now. */
  forget(id: string): void {
    this.#failed.delete(id);
    this.#take(id);
  }

  /** It is removed: another one of its id has lost nothing yet. */
  remove(id: string): void {
    this.#lost.delete(id);
    this.forget(id);
  }

  #plan(id: string, delayMs: number, start: () => void): void {
    this.#take(id);
    const timer = this.#clock.setTimer(delayMs, () => {
      this.#take(id);
      start();
    });
    this.#due.set(id, { atMs: this.#clock.nowMs() + delayMs, timer });
    this.#revision++;
  }

  #take(id: string): void {
    const due = this.#due.get(id);
    if (due === undefined) return;
    due.timer[Symbol.dispose]();
    this.#due.delete(id);
    this.#revision++;
  }

  /** None is due any more. */
  [Symbol.dispose](): void {
    for (const id of [...this.#due.keys()]) this.#take(id);
  }
}
