/** Finds installed apps. A caller finds only apps that it may see; another user's app is not found. */
import type { EngineNeeds } from "../../engine/protection.ts";
import type { RunnableApp } from "../../runtimes/runnable-app.ts";
import type { AppsContext } from "../apps-context.ts";
import type { Reattachment } from "./reattachment.ts";
import type { AppRecord } from "./app-record.ts";
import type { AppCaller } from "./app-registry.ts";
import { isReadable, requireReadable } from "./unreadable-app.ts";

export interface AppFinderOptions extends Pick<AppsContext, "registry" | "runtimeOf" | "runnable"> {
  reattachment: Reattachment;
}

export class AppFinder {
  readonly #options: AppFinderOptions;

  constructor(options: AppFinderOptions) {
    this.#options = options;
  }

  /** The app, once it is reattached. @throws SvcError `not_found`; `store_damaged` if its row cannot be read */
  async find(id: string, caller: AppCaller): Promise<AppRecord> {
    const app = await this.any(id, caller);
    requireReadable(app);
    return app;
  }

  /** Like {@link find}, but also returns apps whose row cannot be read. */
  async any(id: string, caller: AppCaller): Promise<AppRecord> {
    const { registry, reattachment } = this.#options;
    registry.find(id, caller);
    await reattachment.of(id);
    return registry.find(id, caller);
  }

  /** Like {@link find}; undefined if the caller may not see an app with that ID. */
  async findIfInstalled(id: string, caller: AppCaller): Promise<AppRecord | undefined> {
    return this.has(id, caller) ? this.find(id, caller) : undefined;
  }

  /** The app's directory, and the uid that owns its files. */
  async location(id: string, caller: AppCaller): Promise<Pick<RunnableApp, "directory" | "uid">> {
    return this.#options.runnable(await this.find(id, caller));
  }

  /** Whether there is such an app that the caller may see. */
  has(id: string, caller: AppCaller): boolean {
    return this.#options.registry.has(id, caller);
  }

  /** The owner of an app; undefined for an app that is not installed. */
  ownerOf(id: string): number | undefined {
    return this.#options.registry.get(id)?.ownerUid;
  }

  /** The apps that the caller may see, by ID, reattached or not. */
  visible(caller: Pick<AppCaller, "uid" | "root">): AppRecord[] {
    return this.#options.registry.visible(caller);
  }

  visibleIds(caller: Pick<AppCaller, "uid" | "root">): ReadonlySet<string> {
    return new Set(this.visible(caller).map(({ id }) => id));
  }

  /** IDs of all installed apps. */
  ids(): string[] {
    return this.#options.registry.all().map(({ id }) => id);
  }

  /** All readable apps, after reattachment. */
  async all(): Promise<readonly AppRecord[]> {
    await this.#options.reattachment.untilCompleted();
    return this.#options.registry.all().filter(isReadable);
  }

  /** Resolves when all apps are reattached, or after a grace period. */
  untilSettled(): Promise<void> {
    return this.#options.reattachment.untilSettled();
  }

  /** Grows whenever an app or an operation on one was added, changed or removed. */
  get revision(): number {
    return this.#options.registry.revision;
  }

  /** Needs of the installed apps from the container engine, by ID. */
  async engineNeeds(): Promise<Map<string, EngineNeeds>> {
    const { registry, runtimeOf, runnable } = this.#options;
    const needs = new Map<string, EngineNeeds>();
    for (const app of registry.all()) {
      const { images } = runtimeOf(app);
      if (images !== undefined) needs.set(app.id, await images.needs(runnable(app)));
    }
    return needs;
  }
}
