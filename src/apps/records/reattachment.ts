/**
 * Apps outlive the daemon. At its start the daemon reattaches to the apps that run, and from then on the record follows the status of
 * the runtime.
 */
import { setTimeout as wait } from "node:timers/promises";
import { mapBounded } from "../../lib/map-bounded.ts";
import type { RuntimeStatus } from "../../runtimes/runtime-status.ts";
import { patchApp, type AppPatch, type AppRecord } from "./app-record.ts";
import type { AppsContext } from "../apps-context.ts";
import { isLeftHalf } from "../lifecycle/phases.ts";
import { isReadable } from "./unreadable-app.ts";

const reattachedAtOnce = 32;
/** How long a listing waits for reattachment before it shows what was last known. */
const listingGraceMs = 2_000;

export class Reattachment implements Disposable {
  readonly #options: AppsContext;
  readonly #subscriptions: Disposable[] = [];
  readonly #pending = new Map<string, Promise<unknown>>();
  #all: Promise<unknown> = Promise.resolve();

  constructor(options: AppsContext) {
    this.#options = options;
  }

  /** Starts reattachment. Resolves when every app is reattached, to the apps that should run and do not. Never rejects. */
  async start(): Promise<string[]> {
    const { registry, runtimes } = this.#options;
    for (const runtime of runtimes) {
      this.#subscriptions.push(
        runtime.onChange((id) => {
          // Until an app is reattached, the status of its runtime is preliminary.
          if (!this.#pending.has(id)) this.#follow(id);
        }),
      );
    }
    // Stopped apps stay stopped and need no check, so that a thousand of them cost nothing.
    const shouldRun = registry.all().filter((app) => app.desired === "running");
    const all = mapBounded(shouldRun, reattachedAtOnce, (app) => this.#reattach(app));
    this.#all = all;
    const runs = await all;
    return shouldRun.filter((_, at) => runs[at] !== true).map(({ id }) => id);
  }

  /** Resolves when this app is reattached. */
  async of(id: string): Promise<void> {
    await this.#pending.get(id);
  }

  /** Resolves when all apps are reattached, however long that takes. */
  async untilCompleted(): Promise<void> {
    await this.#all;
  }

  /** Resolves when all apps are reattached, or after a grace period. */
  async untilSettled(): Promise<void> {
    if (this.#pending.size === 0) return;
    await Promise.race([this.#all, wait(listingGraceMs, undefined, { ref: false })]);
  }

  /** Whether the app runs. */
  async #reattach(app: AppRecord): Promise<boolean> {
    const { runtimeOf, runnable, log } = this.#options;
    const reattached = isLeftHalf(this.#options, app.id)
      .then((wasCut) => runtimeOf(app).reattach(runnable(app), wasCut))
      .then(
        (found) => {
          this.#follow(app.id);
          return found === "running";
        },
        (error: unknown) => {
          log.warn({ err: error, appId: app.id }, "failed to reattach an app");
          return false;
        },
      );
    this.#pending.set(app.id, reattached);
    const runs = await reattached;
    this.#pending.delete(app.id);
    return runs;
  }

  /** Stores the status of the runtime for the next daemon and for commands without a daemon. */
  #follow(id: string): void {
    const { store, registry, runtimeOf, log } = this.#options;
    const app = registry.get(id);
    if (app === undefined || registry.operationOf(id) !== undefined) return;
    const status = runtimeOf(app).status(id);
    const patch = status === undefined ? undefined : settledPatch(app, status);
    if (patch === undefined) return;
    store.write([patchApp(id, patch)], { essential: true }).catch((error: unknown) => {
      log.warn({ err: error, appId: id }, "failed to record the state of an app");
    });
  }

  [Symbol.dispose](): void {
    for (const subscription of this.#subscriptions) subscription[Symbol.dispose]();
  }
}

/** The part of a status that is stored: a settled state that differs from the recorded one. */
function settledPatch(app: AppRecord, { state, reason }: RuntimeStatus): AppPatch | undefined {
  if (app.state === "INSTALLING" || state === app.state || !isReadable(app)) return undefined;
  if (state === "RUNNING") return { state, stateReason: reason };
  // An app that could not be started does not run, but its owner needs to see that it failed.
  if (app.state === "FAILED") return undefined;
  if (state === "STOPPED" || state === "CRASHED") return { state, stateReason: reason };
  return undefined;
}
