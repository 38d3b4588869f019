/** Keeps the status of a runtime's apps and notifies listeners of changes. */
import { appNotRunning } from "./status-changes.ts";
import type { RuntimeStatus } from "./runtime-status.ts";

export interface FollowedApp {
  /** The same object until the status changes. */
  readonly status: RuntimeStatus;
  waitHealthy(timeoutMs: number, signal?: AbortSignal): Promise<void>;
  /** Stops following the app, which keeps running. */
  detach(): void;
}

/** The part of a runtime that follows the apps it has started or reattached to. */
export abstract class FollowingRuntime<App extends FollowedApp> {
  readonly #apps = new Map<string, App>();
  readonly #listeners = new Set<(id: string) => void>();
  #revision = 0;

  protected get apps(): ReadonlyMap<string, App> {
    return this.#apps;
  }

  protected follow(id: string, app: App): void {
    this.#apps.set(id, app);
    this.changed();
  }

  /** Stops following the app. */
  protected unfollow(id: string): void {
    this.#apps.get(id)?.detach();
    if (this.#apps.delete(id)) this.changed();
  }

  /** Stops following all apps, which keep running. */
  async [Symbol.asyncDispose](): Promise<void> {
    for (const id of [...this.#apps.keys()]) this.unfollow(id);
    await Promise.resolve();
  }

  /** An app was added, removed, or changed its status. */
  protected changed(): void {
    this.#revision++;
  }

  protected notify(id: string): void {
    for (const listener of this.#listeners) listener(id);
  }

  protected notifyChanged(id: string): void {
    this.changed();
    this.notify(id);
  }

  status(id: string): App["status"] | undefined {
    return this.#apps.get(id)?.status;
  }

  get revision(): number {
    return this.#revision;
  }

  onChange(listener: (id: string) => void): Disposable {
    this.#listeners.add(listener);
    return { [Symbol.dispose]: () => void this.#listeners.delete(listener) };
  }

  async waitHealthy(id: string, timeoutMs: number, signal?: AbortSignal): Promise<void> {
    const app = this.#apps.get(id);
    if (app === undefined) throw appNotRunning(id);
    await app.waitHealthy(timeoutMs, signal);
  }
}
