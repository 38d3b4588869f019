/**
 * Brings apps to their wanted state (decisions 35): whatever was meant to run when the daemon began and does not is
 * started, and so is, from then on, what did not end by itself; a start that fails is tried again. What an app's own end
 * leads to is its restart policy's, and what a person's start leads to is that person's.
 */
import { setTimeout as wait } from "node:timers/promises";
import type { AppOperationKind } from "../../gen/svc/v1/words.ts";
import type { Clock } from "../lib/clock.ts";
import { mapBounded } from "../lib/map-bounded.ts";
import { Ticker } from "../lib/ticker.ts";
import { isUp, type RuntimeStatus } from "../runtimes/runtime.ts";
import type { Lifecycle } from "./lifecycle.ts";
import type { AppRecord } from "./app-record.ts";
import type { AppsContext } from "./apps-context.ts";
import { DueStarts } from "./due-starts.ts";
import type { Operation } from "./operations.ts";
import { isReadable } from "./unreadable-app.ts";

export interface WantedStateOptions extends Pick<AppsContext, "registry" | "runtimes" | "runtimeOf" | "log"> {
  lifecycle: Pick<Lifecycle, "bringUp" | "bringDown">;
  clock: Clock;
}

/** A start keeps a core busy for a moment, and a host that boots has more to do. */
const startedAtOnce = 8;
const sweepIntervalMs = 5_000;
/** How long starts under way may take when the daemon ends; the next one finishes what is left. */
const endMs = 5_000;

const leavesItAsItIs: ReadonlySet<AppOperationKind> = new Set(["settings", "backup"]);
/** Of these a person is told how they end, and what becomes of the app is that person's. */
const decides: ReadonlySet<AppOperationKind> = new Set(["start", "stop", "restart", "remove"]);

export class WantedState implements AsyncDisposable {
  readonly #options: WantedStateOptions;
  readonly #subscriptions: Disposable[] = [];
  readonly #due: DueStarts;
  /** Under way, by app. */
  readonly #starts = new Map<string, Promise<void>>();
  /** Of which it could not be told how they fare when the daemon began. */
  readonly #undecided = new Set<string>();
  /** Of which it cannot be told now, as their engine is away. */
  readonly #unknown = new Set<string>();
  /** Whose due start was forgotten for work on them. */
  readonly #setAside = new Set<string>();
  #hasEnded = false;
  #sweeper: Ticker | undefined;

  constructor(options: WantedStateOptions) {
    this.#options = options;
    this.#due = new DueStarts(options.clock);
  }

  /** For the views of apps. */
  get dueStarts(): Pick<DueStarts, "revision" | "atMs"> {
    return this.#due;
  }

  /** Whoever starts, stops or replaces an app decides what becomes of it; that of its own doing is passed over. */
  giveWay({ appId, kind, detail }: Operation): void {
    if (this.#starts.has(appId) || leavesItAsItIs.has(kind) || detail.lockOnly === true) return;
    if (this.#due.atMs(appId) !== undefined && !decides.has(kind)) this.#setAside.add(appId);
    if (kind === "remove") this.#due.remove(appId);
    else this.#due.forget(appId);
  }

  /** Work on an app is over: one that waited for its start is started, should the work not have done so. */
  takeBack({ appId }: Operation): void {
    if (this.#setAside.delete(appId)) void this.#start(appId);
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
    if (this.#hasEnded) return;
    if (isUnknown(status)) {
      this.#unknown.add(id);
      return;
    }
    // What it waited for may be there again: then it waits no longer.
    const isKnownAgain = this.#unknown.delete(id);
    const isDue = this.#due.atMs(id) !== undefined && !isKnownAgain;
    // Now it shows what the daemon could not see when it began.
    if (this.#undecided.delete(id)) void this.#start(id);
    else if (isUp(status?.state)) this.#due.forget(id);
    else if (status?.isLost === true && !isDue && !this.#starts.has(id)) {
      this.#due.afterLoss(id, () => {
        if (this.#statusOf(id)?.isLost === true) void this.#start(id);
      });
    }
  }

  #statusOf(id: string): RuntimeStatus | undefined {
    const app = this.#options.registry.get(id);
    return app && this.#options.runtimeOf(app).status(id);
  }

  async #start(id: string): Promise<void> {
    const { registry, runtimeOf, lifecycle, log } = this.#options;
    const app = registry.get(id);
    if (this.#hasEnded || this.#starts.has(id)) return;
    const isWanted = app?.desired === "running" && isReadable(app);
    if (!isWanted || isUp(runtimeOf(app).status(id)?.state)) {
      this.#due.forget(id);
      return;
    }
    const start = lifecycle.bringUp(app).then(
      () => this.#due.forget(id),
      (error: unknown) => {
        log.warn({ err: error, appId: id }, "an app that is meant to run could not be started");
        if (!this.#hasEnded) this.#due.afterFailure(id, () => void this.#start(id));
      },
    );
    this.#starts.set(id, start);
    await start;
    this.#starts.delete(id);
  }

  /** Nothing is started from now on. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#hasEnded = true;
    for (const subscription of this.#subscriptions) subscription[Symbol.dispose]();
    this.#due[Symbol.dispose]();
    const ended = this.#sweeper?.[Symbol.asyncDispose]() ?? Promise.resolve();
    await Promise.race([
      Promise.all([...this.#starts.values(), ended]),
      wait(endMs, undefined, { ref: false }),
    ]);
  }
}

function isUnknown(status: RuntimeStatus | undefined): boolean {
  return status?.state === "UNKNOWN";
}

/**
 * Whether an app does not run that is meant to, by no end of its own: it was lost, or its engine is away. Who takes it over has it
 * run again, as the start that was due of it is forgotten then.
 */
export function isMissed(
  { desired }: Pick<AppRecord, "desired">,
  status: RuntimeStatus | undefined,
): boolean {
  return desired === "running" && (status?.isLost === true || isUnknown(status));
}
