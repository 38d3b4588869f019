/** Plans starts of apps that were lost or could not be started. Kept in memory. */
import type { Clock } from "../../lib/clock.ts";

/** At a shutdown of the host, apps end at about the same time as the daemon; wait until the daemon would have been stopped, too. */
const firstLostMs = 500;
const maxLostMs = 60_000;
/** Soon after a boot, an engine or a port that a start needs may become available. */
const failedMs = [5_000, 15_000, 45_000, 120_000];
const lastFailedMs = 300_000;
/** After this time a failure is considered permanent. */
const permanentFailureMs = 3_600_000;

interface PlannedStart {
  /** Unix milliseconds. */
  readonly atMs: number;
  readonly timer: Disposable;
}

export class StartRetries implements Disposable {
  readonly #clock: Clock;
  /** By app, like the other maps. */
  readonly #due = new Map<string, PlannedStart>();
  readonly #losses = new Map<string, { times: number; lastMs: number }>();
  readonly #failures = new Map<string, { times: number; firstMs: number }>();
  #revision = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Increases when a start was planned or dropped. */
  get revision(): number {
    return this.#revision;
  }

  /** Time of the planned start, unix milliseconds. */
  atMs(id: string): number | undefined {
    return this.#due.get(id)?.atMs;
  }

  /** Plans the start of a lost app; repeated losses increase the delay. */
  afterLoss(id: string, start: () => void): void {
    const nowMs = this.#clock.monotonicMs();
    const before = this.#losses.get(id);
    const times = before === undefined || nowMs - before.lastMs > 2 * maxLostMs ? 0 : before.times;
    this.#losses.set(id, { times: times + 1, lastMs: nowMs });
    this.#plan(id, Math.min(maxLostMs, firstLostMs * 2 ** times), start);
  }

  /** Plans a retry of a failed start, with growing delays, for an hour. */
  afterFailure(id: string, start: () => void): void {
    const nowMs = this.#clock.monotonicMs();
    const { times, firstMs } = this.#failures.get(id) ?? { times: 0, firstMs: nowMs };
    this.#failures.set(id, { times: times + 1, firstMs });
    const delayMs = failedMs[times] ?? lastFailedMs;
    if (nowMs + delayMs - firstMs <= permanentFailureMs) this.#plan(id, delayMs, start);
  }

  /** Call when the app is up, or another operation decides about it. */
  forget(id: string): void {
    this.#failures.delete(id);
    this.#cancel(id);
  }

  /** Call when the app is removed, so that a later app with the same ID starts without a history. */
  remove(id: string): void {
    this.#losses.delete(id);
    this.forget(id);
  }

  #plan(id: string, delayMs: number, start: () => void): void {
    this.#cancel(id);
    const timer = this.#clock.setTimer(delayMs, () => {
      this.#cancel(id);
      start();
    });
    this.#due.set(id, { atMs: this.#clock.nowMs() + delayMs, timer });
    this.#revision++;
  }

  #cancel(id: string): void {
    const due = this.#due.get(id);
    if (due === undefined) return;
    due.timer[Symbol.dispose]();
    this.#due.delete(id);
    this.#revision++;
  }

  /** Drops all planned starts. */
  [Symbol.dispose](): void {
    for (const id of [...this.#due.keys()]) this.#cancel(id);
  }
}
