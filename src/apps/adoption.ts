/**
 * Apps outlive the daemon (decisions 15): what an earlier one left running is taken over, and from then on the record
 * follows what the runtime sees.
 */
import { setTimeout as wait } from "node:timers/promises";
import { mapBounded } from "../lib/map-bounded.ts";
import type { RuntimeStatus } from "../runtimes/runtime.ts";
import { patchApp, type AppPatch, type AppRecord } from "./app-record.ts";
import type { AppsContext } from "./apps-context.ts";
import type { Recovery } from "./recovery.ts";
import { isReadable } from "./unreadable-app.ts";

const adoptedAtOnce = 32;
/** How long a listing waits for adoption before it shows what was last known. */
const listingGraceMs = 2_000;

export interface AdoptionOptions extends AppsContext {
  recovery: Pick<Recovery, "leftHalf">;
}

export class Adoption implements Disposable {
  readonly #options: AdoptionOptions;
  readonly #subscriptions: Disposable[] = [];
  readonly #pending = new Map<string, Promise<unknown>>();
  #all: Promise<unknown> = Promise.resolve();

  constructor(options: AdoptionOptions) {
    this.#options = options;
  }

  /** Begins; resolves when every app is taken over, with those that are meant to run and do not. Never rejects. */
  async start(): Promise<string[]> {
    const { registry, runtimes } = this.#options;
    for (const runtime of runtimes) {
      this.#subscriptions.push(
        runtime.onChange((id) => {
          // Until an app is taken over, what its runtime says of it is not the last word.
          if (!this.#pending.has(id)) this.#follow(id);
        }),
      );
    }
    // Whoever was stopped stays stopped: there is nothing to find out, and a thousand of them cost nothing.
    const wanted = registry.all().filter((app) => app.desired === "running");
    const all = mapBounded(wanted, adoptedAtOnce, (app) => this.#adopt(app));
    this.#all = all;
    const runs = await all;
    return wanted.filter((_, at) => runs[at] !== true).map(({ id }) => id);
  }

  /** Resolves when it is known what runs of this app. */
  async of(id: string): Promise<void> {
    await this.#pending.get(id);
  }

  /** Resolves when it is known what runs, or after a grace. */
  async settled(): Promise<void> {
    if (this.#pending.size === 0) return;
    await Promise.race([this.#all, wait(listingGraceMs, undefined, { ref: false })]);
  }

  /** Whether it runs. */
  async #adopt(app: AppRecord): Promise<boolean> {
    const { runtimeOf, runnable, recovery, log } = this.#options;
    const adopted = recovery
      .leftHalf(app.id)
      .then((wasCut) => runtimeOf(app).adopt(runnable(app), wasCut))
      .then(
        (found) => {
          this.#follow(app.id);
          return found === "running";
        },
        (error: unknown) => {
          log.warn({ err: error, appId: app.id }, "an app that should run could not be taken over");
          return false;
        },
      );
    this.#pending.set(app.id, adopted);
    const runs = await adopted;
    this.#pending.delete(app.id);
    return runs;
  }

  /** Writes down what the runtime says, so that the next daemon and the other commands know it. */
  #follow(id: string): void {
    const { store, registry, runtimeOf, log } = this.#options;
    const app = registry.get(id);
    if (app === undefined || registry.operationOf(id) !== undefined) return;
    const status = runtimeOf(app).status(id);
    const patch = status === undefined ? undefined : settledPatch(app, status);
    if (patch === undefined) return;
    store.write([patchApp(id, patch)], { essential: true }).catch((error: unknown) => {
      log.warn({ err: error, appId: id }, "the state of an app could not be recorded");
    });
  }

  [Symbol.dispose](): void {
    for (const subscription of this.#subscriptions) subscription[Symbol.dispose]();
  }
}

/** What of a status is worth a write: a settled state other than the recorded one. */
function settledPatch(app: AppRecord, { state, reason }: RuntimeStatus): AppPatch | undefined {
  if (app.state === "INSTALLING" || state === app.state || !isReadable(app)) return undefined;
  if (state === "RUNNING") return { state, stateReason: reason };
  // Nothing runs of what could not be started; that it failed is what its owner has to know.
  if (app.state === "FAILED") return undefined;
  if (state === "STOPPED" || state === "CRASHED") return { state, stateReason: reason };
  return undefined;
}
