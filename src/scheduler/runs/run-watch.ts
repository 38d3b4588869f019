/** Detects starts and ends of runs in all processes, by reading the log after each commit. */
import { unlessAborted } from "../../lib/abort.ts";
import type { Store } from "../../store/store.ts";
import type { Run } from "./run.ts";
import { runOfRow, selectRuns, selectRunsWithOutput, type RunRow } from "./run-row.ts";

/** Called at the start of a run (without outcome) and at its end. */
export type RunListener = (run: Run) => void;

export class RunWatch implements Disposable {
  readonly #store: Store;
  readonly #listeners = new Set<RunListener>();
  #subscription: Disposable | undefined;
  /** The newest reported run. */
  #newest = 0;
  /** Current runs, as reported. */
  #running = new Set<number>();

  constructor(store: Store) {
    this.#store = store;
  }

  /** Calls `listener` for starts and ends from now on. Reads the log only while there are listeners. */
  listen(listener: RunListener): Disposable {
    const entry: RunListener = (run) => listener(run);
    if (this.#listeners.size === 0) this.#begin();
    this.#listeners.add(entry);
    return {
      [Symbol.dispose]: () => {
        this.#listeners.delete(entry);
        if (this.#listeners.size === 0) this[Symbol.dispose]();
      },
    };
  }

  /**
   * Calls `find` now and after each commit until it returns a result.
   * @throws the signal's reason; errors of `find`
   */
  async until<T>(signal: AbortSignal, find: () => { run: T } | undefined): Promise<T> {
    signal.throwIfAborted();
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const attempt = (): void => {
      try {
        const found = find();
        if (found !== undefined) resolve(found.run);
      } catch (error) {
        reject(error);
      }
    };
    using _subscription = this.#store.onChange(attempt);
    attempt();
    return await unlessAborted(promise, signal);
  }

  #begin(): void {
    const last = this.#store.get<{ id: number | null }>("SELECT max(id) AS id FROM runs");
    this.#newest = last?.id ?? 0;
    const running = this.#store.all<{ id: number }>("SELECT id FROM runs WHERE status = 'RUNNING'");
    this.#running = new Set(running.map(({ id }) => id));
    this.#subscription = this.#store.onChange(() => this.#refresh());
  }

  #refresh(): void {
    for (const run of this.#ended()) this.#notify(run);
    const fresh = this.#store.all<RunRow>(`${selectRuns} WHERE runs.id > ? ORDER BY runs.id`, this.#newest);
    for (const row of fresh) {
      this.#newest = row.id;
      const { outcome, endedAtMs: _endedAtMs, ...opened } = runOfRow(row);
      this.#notify(opened);
      if (outcome === undefined) this.#running.add(row.id);
      else this.#notifyEnded(row.id);
    }
  }

  /** Runs that have ended; runs removed with their job are not reported. */
  *#ended(): Iterable<Run> {
    if (this.#running.size === 0) return;
    const rows = this.#store.all<{ id: number }>("SELECT id FROM runs WHERE status = 'RUNNING'");
    const still = new Set(rows.map(({ id }) => id));
    for (const id of [...this.#running]) {
      if (still.has(id)) continue;
      this.#running.delete(id);
      const run = this.#read(id);
      if (run !== undefined) yield run;
    }
  }

  #notifyEnded(id: number): void {
    const run = this.#read(id);
    if (run !== undefined) this.#notify(run);
  }

  #read(id: number): Run | undefined {
    const row = this.#store.get<RunRow>(`${selectRunsWithOutput} WHERE runs.id = ?`, id);
    return row === undefined ? undefined : runOfRow(row);
  }

  #notify(run: Run): void {
    for (const listener of [...this.#listeners]) listener(run);
  }

  [Symbol.dispose](): void {
    this.#subscription?.[Symbol.dispose]();
    this.#subscription = undefined;
    this.#listeners.clear();
  }
}
