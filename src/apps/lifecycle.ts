/** Start, stop and restart: one operation each, under the app's lock, never cancelled by a client that goes away. */
import { isDiskFull, SvcError } from "../errors.ts";
import { mergeDefaults } from "../packages/settings.ts";
import { isUp, isUpNow, type AppRuntime, type RunnableApp } from "../runtimes/runtime.ts";
import { whyNotStarted } from "../runtimes/start-failed.ts";
import { patchApp, requireDesired, type AppPatch, type AppRecord, type StartFailure } from "./app-record.ts";
import type { Operation } from "./operations.ts";
import { writeSettingsFiles } from "./settings-files.ts";
import type { AppsContext } from "./apps-context.ts";
import { isReadable } from "./unreadable-app.ts";

interface SettleOptions {
  /** What is recorded of a failure; default: nothing. */
  afterError?: (app: AppRecord, error: unknown) => AppPatch;
  /** The phase in which the operation goes on; it ends without one, and after an error. */
  next?: string | undefined;
}

export class Lifecycle {
  readonly #options: AppsContext;

  constructor(options: AppsContext) {
    this.#options = options;
  }

  /**
   * Starts the app; one that runs stays as it is.
   * @throws SvcError `app_busy`, `start_failed` with its last lines.
   */
  async start(app: AppRecord): Promise<void> {
    if (this.#isRunning(app)) return;
    const operation = await this.#options.operations.begin({
      appId: app.id,
      kind: "start",
      phase: "start",
      statements: [patchApp(app.id, { desired: "running" })],
    });
    await this.finishStart(operation);
  }

  /**
   * Starts an app that is meant to run, as {@link start}; what its people say meanwhile comes first.
   * @throws SvcError `app_busy`, `not_found` when it is not meant to run any more, `start_failed`
   */
  async bringUp({ id: appId }: AppRecord): Promise<void> {
    const statements = [requireDesired(appId, "running")];
    await this.finishStart(
      await this.#options.operations.begin({ appId, kind: "start", phase: "start", statements }),
    );
  }

  /**
   * Ends what runs of an app that is not meant to run: a stop came to nothing, or somebody else has started it.
   * @throws SvcError `app_busy`, `not_found` when it is meant to run now
   */
  async bringDown({ id: appId }: AppRecord): Promise<void> {
    const statements = [requireDesired(appId, "stopped")];
    await this.finishStop(
      await this.#options.operations.begin({ appId, kind: "stop", phase: "stop", statements }),
    );
  }

  /**
   * Ends every process of the app; a stopped one stays as it is.
   * @throws SvcError `app_busy`
   */
  async stop(app: AppRecord): Promise<void> {
    if (app.state === "STOPPED" && app.desired === "stopped" && !this.#isActive(app)) return;
    const operation = await this.#options.operations.begin({
      appId: app.id,
      kind: "stop",
      phase: "stop",
      statements: [patchApp(app.id, { desired: "stopped" })],
    });
    await this.finishStop(operation);
  }

  /**
   * Stops the app, if it runs, and starts it. One that runs goes on when it is known beforehand that it would not start.
   * @throws SvcError `app_busy`, `start_failed` with its last lines, and what {@link AppRuntime.check} throws
   */
  async restart(app: AppRecord): Promise<void> {
    const operation = await this.#options.operations.begin({
      appId: app.id,
      kind: "restart",
      phase: "stop",
      statements: [patchApp(app.id, { desired: "running" })],
    });
    await this.finishRestart(operation);
  }

  /**
   * The rest of a start under its lock; also what recovery does with one that was left behind.
   * @param next the phase in which an operation that is more than a start goes on holding the app, once that is up
   */
  async finishStart(operation: Operation, next?: string): Promise<void> {
    const start = async (app: AppRecord): Promise<AppPatch> => {
      const runtime = this.#options.runtimeOf(app);
      if (!isUpNow(runtime.status(app.id))) {
        const runnable = this.#options.runnable(app);
        await this.#options.ports.requireFree(runnable, () => stopToStart(runtime, runnable));
        await writeSettingsFiles(this.#options.identities, runnable);
        await runtime.start(runnable);
        await this.#settleRuntime(runtime, runnable);
      }
      const startedSettings = mergeDefaults(app.manifest, app.settings);
      return { state: "RUNNING", stateReason: "", failure: null, startedSettings };
    };
    await this.#settle(operation, start, { afterError: (app, error) => this.#failed(app, error), next });
  }

  /** What it ran as before is not needed any more; were it left, somebody could start it. */
  async #settleRuntime(runtime: AppRuntime, app: RunnableApp): Promise<void> {
    try {
      await runtime.settle(app);
    } catch (error) {
      this.#options.log.warn({ err: error, appId: app.id }, "what an app ran as before could not be removed");
    }
  }

  async finishStop(operation: Operation): Promise<void> {
    const stopped: AppPatch = { state: "STOPPED", stateReason: "", failure: null };
    const reached = { isDown: false };
    const stop = async (app: AppRecord): Promise<AppPatch> => {
      for (const runtime of this.#options.runtimesOf(app)) await runtime.stop(this.#options.runnable(app));
      reached.isDown = true;
      // Nothing can be changed within what cannot be read.
      return isReadable(app) ? stopped : {};
    };
    // Why it did not start is nothing any more to those who have it stopped; what runs of it all the same is ended later.
    const afterError = ({ state, failure }: AppRecord): AppPatch =>
      state === "FAILED" && failure !== null ? stopped : {};
    try {
      await this.#settle(operation, stop, { afterError });
    } catch (error) {
      // That it is not meant to run was written before.
      throw reached.isDown && isDiskFull(error) ? stoppedUnrecorded(operation.appId, error) : error;
    }
  }

  async finishRestart(operation: Operation): Promise<void> {
    const app = this.#options.registry.held(operation);
    try {
      if (operation.phase === "stop") {
        const [runtime, runnable] = [this.#options.runtimeOf(app), this.#options.runnable(app)];
        if (isUp(runtime.status(app.id)?.state)) await runtime.check(runnable);
        await stopToStart(runtime, runnable);
        await this.#options.operations.enter(operation, "start");
      }
    } catch (error) {
      if (!this.#options.operations.isLeaving) await this.#options.operations.end(operation);
      throw error;
    }
    await this.finishStart(operation);
  }

  /** What a start leaves in the record that failed, for whatever reason. */
  #failed(app: AppRecord, error: unknown): AppPatch {
    const state = this.#options.runtimeOf(app).status(app.id)?.state;
    // The last word is not spoken: it may run, and what is heard of it from now on tells.
    if (!isStartFailed(error) && (isUp(state) || state === "UNKNOWN")) return {};
    return { state: "FAILED", ...failureOf(app.id, error) };
  }

  /**
   * Runs the work and ends the operation with the state that it came to. One that the end of this process cuts short stays: the
   * next process resumes it.
   * @param afterError the state where it fails; as before where that says nothing
   */
  async #settle(
    operation: Operation,
    work: (app: AppRecord) => Promise<AppPatch>,
    { afterError = () => ({}), next }: SettleOptions = {},
  ): Promise<void> {
    const app = this.#options.registry.held(operation);
    let patch: AppPatch = {};
    let phase: string | undefined;
    let isCut = false;
    try {
      patch = await work(app);
      phase = next;
    } catch (error) {
      isCut = this.#options.operations.isLeaving && !isStartFailed(error);
      patch = afterError(app, error);
      throw error;
    } finally {
      const statements = Object.keys(patch).length === 0 ? [] : [patchApp(app.id, patch)];
      if (phase !== undefined) await this.#options.operations.enter(operation, phase, statements);
      else if (!isCut) await this.#options.operations.end(operation, statements);
    }
  }

  #isRunning(app: AppRecord): boolean {
    return isUpNow(this.#options.runtimeOf(app).status(app.id)) && app.desired === "running";
  }

  #isActive(app: AppRecord): boolean {
    const state = this.#options.runtimeOf(app).status(app.id)?.state;
    return state !== undefined && state !== "STOPPED";
  }
}

/** What is left of the operation is cleared away by whoever wants the app next. */
function stoppedUnrecorded(appId: string, cause: SvcError<"disk_full">): SvcError {
  const message = `app "${appId}" is stopped and stays so, but how it ended could not be written down: ${cause.message}`;
  return new SvcError("disk_full", message, { cause });
}

/** Ends what runs of an app that is to be started. Where that fails it is followed all the same: it is meant to run. */
async function stopToStart(runtime: AppRuntime, app: RunnableApp): Promise<void> {
  try {
    await runtime.stop(app);
  } catch (error) {
    await runtime.adopt(app);
    throw error;
  }
}

/** How a start failed, as the record keeps it. */
function failureOf(appId: string, error: unknown): { stateReason: string; failure: StartFailure } {
  // What is no SvcError is nothing that its owner could make sense of.
  const stateReason =
    error instanceof SvcError ? whyNotStarted(appId, error as SvcError) : "svc could not start it";
  const payload = isStartFailed(error) ? error.payload : undefined;
  const failure: StartFailure = { lastLines: [...(payload?.lastLines ?? [])] };
  if (payload?.exitCode !== undefined) failure.exitCode = payload.exitCode;
  if (payload?.signal !== undefined && payload.signal !== "") failure.signal = payload.signal;
  return { stateReason, failure };
}

function isStartFailed(error: unknown): error is SvcError<"start_failed"> {
  return error instanceof SvcError && error.reason === "start_failed";
}
