/**
 * Reconciles apps with their desired state. At its start the daemon starts every app that should run and does not. Later it restarts
 * apps that were lost without exiting by themselves, and retries failed starts. The restart policy decides about exits of the app
 * itself; the result of a user's start is left to the user.
 */
import { setTimeout as wait } from "node:timers/promises";
import type { AppOperationKind } from "../../../gen/svc/v1/values.ts";
import { type Clock, Ticker } from "../../lib/clock.ts";
import { Limiter } from "../../lib/limiter.ts";
import { onShareOf, rootShare } from "../../lib/share-owner.ts";
import { isUp, type RuntimeStatus } from "../../runtimes/runtime-status.ts";
import type { Lifecycle } from "./lifecycle.ts";
import type { AppRecord } from "../records/app-record.ts";
import type { AppsContext } from "../apps-context.ts";
import { StartRetries } from "./start-retries.ts";
import type { Operation, OperationListener } from "./operations.ts";
import { isReadable } from "../records/unreadable-app.ts";

export interface ReconcilerOptions extends Pick<AppsContext, "registry" | "runtimes" | "runtimeOf" | "log"> {
  lifecycle: Pick<Lifecycle, "bringUp" | "bringDown">;
  clock: Clock;
}

/**
 * Maximum parallel starts at the daemon's start, because each uses a core for a moment. Root has reserved slots; one user gets half of the rest.
 */
const initialStartLimits = { total: 8, perKey: 3, reserved: 2 };
/** After this time a start counts as waiting, such as for a health check, and the next one starts. */
const busyStartMs = 10_000;
const sweepIntervalMs = 5_000;
/** How long running starts may take when the daemon stops; the next daemon finishes the rest. */
const endMs = 5_000;

const keepsReconciling: ReadonlySet<AppOperationKind> = new Set(["settings", "backup"]);
/** Operations whose result a user sees; that user decides about the app. */
const decidedByUser: ReadonlySet<AppOperationKind> = new Set(["start", "stop", "restart", "remove"]);

export class Reconciler implements AsyncDisposable, OperationListener {
  readonly #options: ReconcilerOptions;
  readonly #subscriptions: Disposable[] = [];
  readonly #retries: StartRetries;
  /** Running starts, by app. */
  readonly #starts = new Map<string, Promise<void>>();
  /** Apps whose status was unknown at the daemon's start. */
  readonly #undecided = new Set<string>();
  /** Apps whose status is unknown because their engine cannot be reached. */
  readonly #unknown = new Set<string>();
  /** Apps whose planned start was dropped for another operation. */
  readonly #interrupted = new Set<string>();
  readonly #initialStarts = new Limiter<number>({
    ...initialStartLimits,
    isReserved: (uid) => uid === rootShare,
  });
  #hasEnded = false;
  #sweeper: Ticker | undefined;

  constructor(options: ReconcilerOptions) {
    this.#options = options;
    this.#retries = new StartRetries(options.clock);
  }

  /** Planned starts, for the views of apps. */
  get startRetries(): Pick<StartRetries, "revision" | "atMs"> {
    return this.#retries;
  }

  /** Suspends reconciling of an app while another operation runs on it. */
  began({ appId, kind, detail }: Operation): void {
    if (this.#starts.has(appId) || keepsReconciling.has(kind) || detail.lockOnly === true) return;
    if (this.#retries.atMs(appId) !== undefined && !decidedByUser.has(kind)) this.#interrupted.add(appId);
    if (kind === "remove") this.#retries.remove(appId);
    else this.#retries.forget(appId);
  }

  /**
   * Resumes reconciling after an operation. An app that waited for its start is started, unless the operation did that. An app that
   * could not be restarted because its port was in use is started when the port may be free.
   */
  ended({ appId, kind, detail }: Operation): void {
    const wasInterrupted = this.#interrupted.delete(appId);
    if (this.#hasEnded) return;
    if (kind !== "start" && detail.portInUse === true)
      this.#retries.afterFailure(appId, () => void this.#start(appId));
    else if (wasInterrupted) void this.#start(appId);
  }

  /** Starts reconciling. @param ended apps that should run and did not at the daemon's start */
  async start(ended: readonly string[]): Promise<void> {
    const { registry, runtimes, runtimeOf } = this.#options;
    if (this.#hasEnded) return;
    for (const app of registry.all()) {
      if (app.desired === "running" && isUnknown(runtimeOf(app).status(app.id))) this.#undecided.add(app.id);
    }
    for (const runtime of runtimes)
      this.#subscriptions.push(runtime.onChange((id) => this.#onStatusChange(id)));
    this.#sweeper = new Ticker(sweepIntervalMs, () => this.#stopUndesired());
    await Promise.all(ended.map((id) => this.#startInTurn(id)));
  }

  async #startInTurn(id: string): Promise<void> {
    const owner = this.#options.registry.get(id)?.ownerUid ?? rootShare;
    using _slot = await this.#initialStarts.acquire(owner);
    await Promise.race([this.#start(id), wait(busyStartMs, undefined, { ref: false })]);
  }

  /** Stops apps that should not run: a stop failed, or another program has started them. */
  async #stopUndesired(): Promise<void> {
    const { registry, runtimeOf, lifecycle, log } = this.#options;
    try {
      const apps = registry.all();
      const up = new Map(
        [...new Set(apps.map(runtimeOf))].map((runtime) => [runtime, runtime.external?.upNow()]),
      );
      for (const app of apps) {
        if (app.desired === "running" || up.get(runtimeOf(app))?.has(app.id) !== true) continue;
        if (!this.#hasEnded && registry.operationOf(app.id) === undefined)
          await onShareOf(app.ownerUid, () => lifecycle.bringDown(app));
      }
    } catch (error) {
      log.warn({ err: error }, "failed to stop an app whose desired state is stopped");
    }
  }

  #onStatusChange(id: string): void {
    const status = this.#statusOf(id);
    if (this.#hasEnded) return;
    if (isUnknown(status)) {
      this.#unknown.add(id);
      return;
    }
    // The resource that it waited for may be available again.
    const isKnownAgain = this.#unknown.delete(id);
    const isDue = this.#retries.atMs(id) !== undefined && !isKnownAgain;
    // The status that was unknown at the daemon's start is known now.
    if (this.#undecided.delete(id)) void this.#start(id);
    else if (isUp(status?.state)) this.#retries.forget(id);
    else if (status?.isLost === true && !isDue && !this.#starts.has(id)) {
      this.#retries.afterLoss(id, () => {
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
    const shouldRun = app?.desired === "running" && isReadable(app);
    if (!shouldRun || isUp(runtimeOf(app).status(id)?.state)) {
      this.#retries.forget(id);
      return;
    }
    const start = onShareOf(app.ownerUid, () => lifecycle.bringUp(app)).then(
      () => this.#retries.forget(id),
      (error: unknown) => {
        log.warn({ err: error, appId: id }, "failed to start an app whose desired state is running");
        if (!this.#hasEnded) this.#retries.afterFailure(id, () => void this.#start(id));
      },
    );
    this.#starts.set(id, start);
    await start;
    this.#starts.delete(id);
  }

  /** Stops planning and starting. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#hasEnded = true;
    for (const subscription of this.#subscriptions) subscription[Symbol.dispose]();
    this.#retries[Symbol.dispose]();
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
 * Whether an app that should run was lost, or its engine cannot be reached. An operation that takes over such an app must start it
 * again, because its planned start is dropped.
 */
export function needsStart(
  { desired }: Pick<AppRecord, "desired">,
  status: RuntimeStatus | undefined,
): boolean {
  return desired === "running" && (status?.isLost === true || isUnknown(status));
}
