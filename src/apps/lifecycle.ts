/** Start, stop and restart: one operation each, under the app's lock, never cancelled by a client that goes away. */
import { SvcError } from "../errors.ts";
import type { Identities } from "../identity/identity.ts";
import { mergeDefaults } from "../packages/settings.ts";
import { isUp, type AppRuntime, type RunnableApp } from "../runtimes/runtime.ts";
import { patchApp, type AppPatch, type AppRecord, type StartFailure } from "./app-record.ts";
import type { AppRegistry } from "./app-registry.ts";
import type { Operation, Operations } from "./operations.ts";
import { writeSettingsFiles } from "./settings-files.ts";

export interface LifecycleOptions {
  registry: AppRegistry;
  operations: Operations;
  runtimeOf: (app: AppRecord) => AppRuntime;
  runnable: (app: AppRecord) => RunnableApp;
  identities: Identities;
}

export class Lifecycle {
  readonly #registry: AppRegistry;
  readonly #operations: Operations;
  readonly #runtimeOf: (app: AppRecord) => AppRuntime;
  readonly #runnable: (app: AppRecord) => RunnableApp;
  readonly #identities: Identities;

  constructor(options: LifecycleOptions) {
    this.#registry = options.registry;
    this.#operations = options.operations;
    this.#runtimeOf = options.runtimeOf;
    this.#runnable = options.runnable;
    this.#identities = options.identities;
  }

  /**
   * Starts the app; one that runs stays as it is.
   * @throws SvcError `app_busy`, `start_failed` with its last lines.
   */
  async start(app: AppRecord): Promise<void> {
    if (this.#isRunning(app)) return;
    const operation = await this.#operations.begin({
      appId: app.id,
      kind: "start",
      phase: "start",
      statements: [patchApp(app.id, { desired: "running" })],
    });
    await this.finishStart(operation);
  }

  /**
   * Ends every process of the app; a stopped one stays as it is.
   * @throws SvcError `app_busy`
   */
  async stop(app: AppRecord): Promise<void> {
    if (app.state === "STOPPED" && app.desired === "stopped" && !this.#isActive(app)) return;
    const operation = await this.#operations.begin({
      appId: app.id,
      kind: "stop",
      phase: "stop",
      statements: [patchApp(app.id, { desired: "stopped" })],
    });
    await this.finishStop(operation);
  }

  /** Stops the app, if it runs, and starts it. */
  async restart(app: AppRecord): Promise<void> {
    const operation = await this.#operations.begin({
      appId: app.id,
      kind: "restart",
      phase: "stop",
      statements: [patchApp(app.id, { desired: "running" })],
    });
    await this.finishRestart(operation);
  }

  /** The rest of a start under its lock; also what recovery does with one that was left behind. */
  async finishStart(operation: Operation): Promise<void> {
    await this.#settle(operation, async (app) => {
      const runtime = this.#runtimeOf(app);
      if (!isUp(runtime.status(app.id)?.state)) {
        const runnable = this.#runnable(app);
        await writeSettingsFiles(this.#identities, runnable);
        await runtime.start(runnable);
      }
      const startedSettings = mergeDefaults(app.manifest, app.settings);
      return { state: "RUNNING", stateReason: "", failure: null, startedSettings };
    });
  }

  async finishStop(operation: Operation): Promise<void> {
    await this.#settle(operation, async (app) => {
      await this.#runtimeOf(app).stop(this.#runnable(app));
      return { state: "STOPPED", stateReason: "", failure: null };
    });
  }

  async finishRestart(operation: Operation): Promise<void> {
    const app = this.#held(operation);
    try {
      if (operation.phase === "stop") {
        await this.#runtimeOf(app).stop(this.#runnable(app));
        await this.#operations.enter(operation, "start");
      }
    } catch (error) {
      await this.#operations.end(operation);
      throw error;
    }
    await this.finishStart(operation);
  }

  /** Runs the work and ends the operation with the state that it came to. */
  async #settle(operation: Operation, work: (app: AppRecord) => Promise<AppPatch>): Promise<void> {
    const app = this.#held(operation);
    let patch: AppPatch = {};
    try {
      patch = await work(app);
    } catch (error) {
      const failure = failureOf(error);
      if (failure !== undefined) patch = { state: "FAILED", desired: "stopped", ...failure };
      throw error;
    } finally {
      const statements = Object.keys(patch).length === 0 ? [] : [patchApp(app.id, patch)];
      await this.#operations.end(operation, statements);
      this.#registry.invalidate();
    }
  }

  /** The app as it is under the lock: what was read before may be older. */
  #held(operation: Operation): AppRecord {
    this.#registry.invalidate();
    const app = this.#registry.get(operation.appId);
    if (app === undefined) throw new Error(`operation ${operation.kind} holds no app "${operation.appId}"`);
    return app;
  }

  #isRunning(app: AppRecord): boolean {
    return isUp(this.#runtimeOf(app).status(app.id)?.state) && app.desired === "running";
  }

  #isActive(app: AppRecord): boolean {
    const state = this.#runtimeOf(app).status(app.id)?.state;
    return state !== undefined && state !== "STOPPED";
  }
}

/** What a start that failed leaves in the record; undefined for any other error. */
function failureOf(error: unknown): { stateReason: string; failure: StartFailure } | undefined {
  if (!isStartFailed(error)) return undefined;
  const { message, payload } = error;
  const failure: StartFailure = { lastLines: [...(payload?.lastLines ?? [])] };
  if (payload?.exitCode !== undefined) failure.exitCode = payload.exitCode;
  if (payload?.signal !== undefined && payload.signal !== "") failure.signal = payload.signal;
  return { stateReason: message, failure };
}

function isStartFailed(error: unknown): error is SvcError<"start_failed"> {
  return error instanceof SvcError && error.reason === "start_failed";
}
