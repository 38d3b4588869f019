/** Apps without an installation: rows of the store, and a runtime with statuses set by the test. */
import { createAppPaths } from "../../src/apps/records/app-paths.ts";
import type { NewApp } from "../../src/apps/records/app-record.ts";
import { AppRegistry } from "../../src/apps/records/app-registry.ts";
import { FoundUpdates } from "../../src/apps/records/found-updates.ts";
import { AppViews, type AppStartRetries } from "../../src/apps/records/app-views.ts";
import type { AppRuntime } from "../../src/runtimes/contract.ts";
import type { RuntimeStatus } from "../../src/runtimes/runtime-status.ts";
import type { Store } from "../../src/store/store.ts";

/** An app as an install would leave it. */
export function newApp(id: string, ownerUid: number, createdAtMs = 1_700_000_000_000): NewApp {
  return {
    id,
    ownerUid,
    name: `The app ${id}`,
    runtime: "process",
    packageId: "web",
    settings: {},
    desired: "stopped",
    state: "STOPPED",
    stateReason: "",
    createdAtMs,
    runUid: ownerUid,
    origin: {
      kind: "git",
      url: "https://example.org/web.git",
      commit: "",
      tag: "v1.0.0",
      ...{ branch: "", source: "" },
    } as never,
    version: "v1.0.0",
    manifest: {
      id: "web",
      name: "web",
      version: "1.0.0",
      summary: "Answers with what it was given.",
      homepage: "https://example.org/web",
      runtime: { kind: "process" } as never,
      ports: [{ name: "http", protocol: "tcp", default: 8080 }],
      volumes: [],
      stop: { signal: "SIGTERM", graceMs: 10_000 },
      restart: { policy: "never", delayMs: 0, maxDelayMs: 0, maxAttempts: 0, resetAfterMs: 0 },
      limits: {},
      permissions: [],
    },
    changedAtMs: createdAtMs,
    ownerName: "",
    startedSettings: null,
    failure: null,
    accepted: { licenses: [], permissions: [] },
    placement: null,
    adopted: null,
  };
}

/** The part of a runtime that views use. */
export class FakeStatusRuntime implements Pick<AppRuntime, "revision" | "status" | "usage"> {
  revision = 0;
  readonly #statuses = new Map<string, RuntimeStatus>();

  status(id: string): RuntimeStatus | undefined {
    return this.#statuses.get(id);
  }

  readonly usage = { limits: () => [], stats: () => Promise.resolve(new Map()) };

  /** @param status undefined: forgets the app */
  tell(id: string, status: RuntimeStatus | undefined): void {
    if (status === undefined) this.#statuses.delete(id);
    else this.#statuses.set(id, status);
    this.revision++;
  }
}

/** The status of other apps. */
export const noBackups = { revision: 0, of: () => undefined };

/** Due starts by app ID. */
export class FakeStartRetries implements AppStartRetries {
  revision = 0;
  readonly #due = new Map<string, number>();

  atMs(id: string): number | undefined {
    return this.#due.get(id);
  }

  /** @param atMs undefined: not due any more */
  tell(id: string, atMs: number | undefined): void {
    if (atMs === undefined) this.#due.delete(id);
    else this.#due.set(id, atMs);
    this.revision++;
  }
}

/** Views of a store with such a runtime. */
export function createViews(
  store: Store,
  runtime: FakeStatusRuntime,
  userName: (uid: number) => Promise<string>,
  dueStarts: AppStartRetries = new FakeStartRetries(),
): AppViews & Disposable {
  const registry = new AppRegistry(store);
  const views = new AppViews({
    registry,
    finder: { untilSettled: () => Promise.resolve(), any: async (id, caller) => registry.find(id, caller) },
    runtimes: [runtime as unknown as AppRuntime],
    runtimeOf: () => runtime as unknown as AppRuntime,
    runnable: (app) => app as never,
    paths: createAppPaths("/var/lib/svc"),
    backups: noBackups,
    updates: new FoundUpdates(),
    startRetries: dueStarts,
    userName,
  });
  return Object.assign(views, { [Symbol.dispose]: () => registry[Symbol.dispose]() });
}
