/**
 * Brings apps to their wanted state (decisions 35): whatever was meant to run when the daemon began and does not is
 * started, and so is, from then on, what did not end by itself. What an app's own end leads to is its restart policy's.
 */
import { setTimeout as wait } from "node:timers/promises";
import { mapBounded } from "../lib/map-bounded.ts";
import { Ticker } from "../lib/ticker.ts";
import { isUp, type RuntimeStatus } from "../runtimes/runtime.ts";
import type { Lifecycle } from "./lifecycle.ts";
import type { AppsContext } from "./apps-context.ts";

export interface WantedStateOptions extends AppsContext {
  lifecycle: Lifecycle;
}

/** A start keeps a core busy for a moment, and a host that boots has more to do. */
const startedAtOnce = 8;
/** Where the host goes down, the daemon is told to end at about the same time: it must have heard of it. */
const firstDelayMs = 500;
const maxDelayMs = 60_000;
const sweepIntervalMs = 5_000;
/** How long starts under way may take when the daemon ends; the next one finishes what is left. */
const endMs = 5_000;

export class WantedState implements AsyncDisposable {
  readonly #options: WantedStateOptions;
  readonly #subscriptions: Disposable[] = [];
  readonly #starts = new Set<Promise<void>>();
  /** Replacements that are due, by app. */
  readonly #timers = new Map<string, NodeJS.Timeout>();
  /** How often an app was replaced in a row, and when last. */
  readonly #replaced = new Map<string, { times: number; atMs: number }>();
  /** Of which it could not be told how they fare when the daemon began. */
  readonly #undecided = new Set<string>();
  #hasEnded = false;
  #sweeper: Ticker | undefined;

  constructor(options: WantedStateOptions) {
    this.#options = options;
  }

  /** Begins. @param ended those that are meant to run, and did not when the daemon looked */
  async start(ended: readonly string[]): Promise<void> {
    const { registry, runtimes, runtimeOf } = this.#options;
    if (this.#hasEnded) return;
    for (const app of registry.all()) {
      if (app.desired === "running" && isUnknown(runtimeOf(app).status(app.id))) this.#undecided.add(app.id);
    }
    for (const runtime of runtimes) this.#subscriptions.push(runtime.onChange((id) => this.#look(id)));
    this.#sweeper = new Ticker(sweepIntervalMs, () => this.#endUnwanted());
    await mapBounded(ended, startedAtOnce, (id) => this.#start(id));
  }

  /** Ends what runs and is not meant to: a stop came to nothing, or somebody else has started it. */
  async #endUnwanted(): Promise<void> {
    const { registry, runtimeOf, lifecycle, log } = this.#options;
    try {
      const apps = registry.all();
      const up = new Map([...new Set(apps.map(runtimeOf))].map((runtime) => [runtime, runtime.upNow?.()]));
      for (const app of apps) {
        if (app.desired === "running" || up.get(runtimeOf(app))?.has(app.id) !== true) continue;
        if (!this.#hasEnded && registry.operationOf(app.id) === undefined) await lifecycle.bringDown(app);
      }
    } catch (error) {
      log.warn({ err: error }, "an app that is not meant to run could not be stopped");
    }
  }

  #look(id: string): void {
    const status = this.#statusOf(id);
    if (this.#hasEnded || isUnknown(status)) return;
    // Now it shows what the daemon could not see when it began.
    if (this.#undecided.delete(id)) void this.#start(id);
    else if (status?.isLost === true && !this.#timers.has(id)) this.#replaceSoon(id);
  }

  #replaceSoon(id: string): void {
    const timer = setTimeout(() => {
      this.#timers.delete(id);
      if (this.#statusOf(id)?.isLost === true) void this.#start(id);
    }, this.#nextDelayMs(id));
    this.#timers.set(id, timer.unref());
  }

  #statusOf(id: string): RuntimeStatus | undefined {
    const app = this.#options.registry.get(id);
    return app && this.#options.runtimeOf(app).status(id);
  }

  /** Doubles while it is lost again and again. */
  #nextDelayMs(id: string): number {
    const atMs = this.#options.now();
    const before = this.#replaced.get(id);
    const times = before === undefined || atMs - before.atMs > 2 * maxDelayMs ? 0 : before.times;
    this.#replaced.set(id, { times: times + 1, atMs });
    return Math.min(maxDelayMs, firstDelayMs * 2 ** times);
  }

  async #start(id: string): Promise<void> {
    const { registry, runtimeOf, lifecycle, log } = this.#options;
    const app = registry.get(id);
    if (this.#hasEnded || app?.desired !== "running" || isUp(runtimeOf(app).status(id)?.state)) return;
    const start = lifecycle.bringUp(app).catch((error: unknown) => {
      log.warn({ err: error, appId: id }, "an app that is meant to run could not be started");
    });
    this.#starts.add(start);
    await start;
    this.#starts.delete(start);
  }

  /** Nothing is started from now on. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#hasEnded = true;
    for (const subscription of this.#subscriptions) subscription[Symbol.dispose]();
    for (const timer of this.#timers.values()) clearTimeout(timer);
    const ended = this.#sweeper?.[Symbol.asyncDispose]() ?? Promise.resolve();
    await Promise.race([Promise.all([...this.#starts, ended]), wait(endMs, undefined, { ref: false })]);
  }
}

function isUnknown(status: RuntimeStatus | undefined): boolean {
  return status?.state === "UNKNOWN";
}
