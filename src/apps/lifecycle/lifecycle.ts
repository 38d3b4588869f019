/**
 * Start, stop and restart: one operation each, under the app's lock. A client that disconnects does not cancel them. A start takes as
 * long as the app needs; a stop, a removal or {@link Operations.cancel} can end it at any time.
 */
import type { AppOperationKind } from "../../../gen/svc/v1/values.ts";
import { isDiskFull, SvcError } from "../../errors.ts";
import { mergeDefaults } from "../../packages/settings/settings.ts";
import type { AppRuntime } from "../../runtimes/contract.ts";
import { isUp, isUpNow } from "../../runtimes/runtime-status.ts";
import type { RunnableApp } from "../../runtimes/runnable-app.ts";
import { explainFailedStart } from "../../runtimes/start-failed.ts";
import {
  patchApp,
  requireDesired,
  type AppPatch,
  type AppRecord,
  type StartFailure,
} from "../records/app-record.ts";
import type { WorkOptions } from "../../work/progress.ts";
import { waitUntilUp } from "./start-wait.ts";
import type { Operation } from "./operations.ts";
import { writeSettingsFiles } from "../records/settings-files.ts";
import type { AppsContext } from "../apps-context.ts";
import { isReadable } from "../records/unreadable-app.ts";

interface SettleOptions {
  /** The values to record after a failure; default: none. */
  afterError?: (app: AppRecord, error: unknown) => AppPatch;
  /** The next phase of the operation; without one, and after an error, the operation ends. */
  next?: string | undefined;
}

export class Lifecycle {
  readonly #options: AppsContext;

  constructor(options: AppsContext) {
    this.#options = options;
  }

  /**
   * Starts the app. Resolves with false if it runs already.
   * @throws SvcError `app_busy`, `start_failed` with its last lines, `canceled`
   */
  async start(app: AppRecord): Promise<boolean> {
    if (this.#isRunning(app)) return false;
    const operation = await this.#options.operations.begin({
      appId: app.id,
      kind: "start",
      phase: "start",
      statements: [patchApp(app.id, { desired: "running", ownerName: await this.#ownerNameNow(app) })],
    });
    await this.finishStart(operation);
    return true;
  }

  /**
   * Starts an app whose desired state is running, like {@link start}. Later requests of users take precedence.
   * @throws SvcError `app_busy`, `not_found` if it should no longer run, `start_failed`
   */
  async bringUp({ id: appId }: AppRecord): Promise<void> {
    const statements = [requireDesired(appId, "running")];
    await this.finishStart(
      await this.#options.operations.begin({ appId, kind: "start", phase: "start", statements }),
    );
  }

  /**
   * Stops an app whose desired state is stopped: a stop failed, or another program has started it.
   * @throws SvcError `app_busy`, `not_found` if it should run now
   */
  async bringDown({ id: appId }: AppRecord): Promise<void> {
    const statements = [requireDesired(appId, "stopped")];
    await this.finishStop(
      await this.#options.operations.begin({ appId, kind: "stop", phase: "stop", statements }),
    );
  }

  /**
   * Ends every process of the app. Resolves with false if it is stopped already.
   * @throws SvcError `app_busy`
   */
  async stop(app: AppRecord): Promise<boolean> {
    if (app.state === "STOPPED" && app.desired === "stopped" && !this.#isActive(app)) return false;
    const operation = await this.#options.operations.begin({
      appId: app.id,
      kind: "stop",
      phase: "stop",
      statements: [patchApp(app.id, { desired: "stopped" })],
    });
    await this.finishStop(operation);
    return true;
  }

  /**
   * Stops the app if it runs, and starts it. A running app is not stopped if a check shows that it would not start.
   * @throws SvcError `app_busy`, `start_failed` with its last lines, and what {@link AppRuntime.check} throws
   */
  async restart(app: AppRecord): Promise<void> {
    const operation = await this.#options.operations.begin({
      appId: app.id,
      kind: "restart",
      phase: "stop",
      statements: [patchApp(app.id, { desired: "running", ownerName: await this.#ownerNameNow(app) })],
    });
    await this.finishRestart(operation);
  }

  /**
   * Starts the app under an operation that stays, whatever the outcome; resolves to the values to record.
   * @throws SvcError as {@link start}
   */
  async startWithin(operation: Operation, app: AppRecord, signal: AbortSignal): Promise<AppPatch> {
    await this.#bringUp(operation, app, signal);
    return this.#startedPatch(app);
  }

  /** Resolves when the app is up. @throws SvcError as {@link waitUntilUp} */
  waitUntilUp(app: AppRecord, work: WorkOptions): Promise<void> {
    return waitUntilUp(app, this.#options.runtimeOf(app), work);
  }

  /**
   * The rest of a start under its lock; recovery uses it, too.
   * @param next the next phase of an operation that keeps the lock after the app is up
   */
  async finishStart(operation: Operation, next?: string): Promise<void> {
    using cancellation = this.#cancellationOf(operation);
    await this.#finishStart(operation, cancellation.signal, next);
  }

  async #finishStart(operation: Operation, signal: AbortSignal, next?: string): Promise<void> {
    const start = async (app: AppRecord): Promise<AppPatch> => {
      const runtime = this.#options.runtimeOf(app);
      if (!isUpNow(runtime.status(app.id))) await this.#bringUp(operation, app, signal);
      return this.#startedPatch(app);
    };
    const afterError = (app: AppRecord, error: unknown): AppPatch =>
      isCanceledStart(operation, signal) ? { desired: "stopped", ...stopped } : this.#failed(app, error);
    await this.#settle(operation, start, { afterError, next });
  }

  async #bringUp(operation: Operation, app: AppRecord, signal: AbortSignal): Promise<void> {
    const runtime = this.#options.runtimeOf(app);
    const runnable = this.#options.runnable(app);
    try {
      await this.#requireSameOwner(app);
      await this.#requireFreePorts(operation, runtime, runnable);
      await writeSettingsFiles(this.#options.userHelpers, runnable);
      signal.throwIfAborted();
      await runtime.start(runnable, signal);
      // Not every runtime follows the signal.
      signal.throwIfAborted();
    } catch (error) {
      if (!signal.aborted) throw error;
      if (isCanceledStart(operation, signal)) await runtime.stop(runnable);
      throw signal.reason;
    }
    await this.#settleRuntime(runtime, runnable);
  }

  /**
   * The host may reuse the uid of a deleted account for another user, as whom the app of the former one must not run without
   * their consent: their own start of the app.
   */
  async #requireSameOwner(app: AppRecord): Promise<void> {
    const [before, now] = [app.ownerName, await this.#ownerNameNow(app)];
    if (before === "" || now === "" || before === now) return;
    const message = `the owner ${before} of app "${app.id}" no longer exists: uid ${app.ownerUid} is ${now} now; to run it as ${now}: svc start ${app.id}`;
    throw new SvcError("not_possible", message);
  }

  /** Empty if the host has no name for the uid, and for the daemon's own apps, which belong to the store. */
  async #ownerNameNow({ ownerUid }: AppRecord): Promise<string> {
    const { userHelpers, userName } = this.#options;
    return ownerUid === userHelpers.selfUid ? "" : userName(ownerUid);
  }

  async #startedPatch(app: AppRecord): Promise<AppPatch> {
    const startedSettings = mergeDefaults(app.manifest, app.settings);
    const ownerName = app.ownerName === "" ? await this.#ownerNameNow(app) : app.ownerName;
    return { state: "RUNNING", stateReason: "", failure: null, startedSettings, ownerName };
  }

  async #requireFreePorts(operation: Operation, runtime: AppRuntime, app: RunnableApp): Promise<void> {
    try {
      await this.#options.ports.requireFree(app, () => stopToStart(runtime, app));
    } catch (error) {
      operation.detail.portInUse = isStartFailed(error);
      throw error;
    }
  }

  /** Until disposal, {@link Operations.cancel} can end the start if the app may stay stopped or its upgrade is rolled back. */
  #cancellationOf(operation: Operation): Disposable & { readonly signal: AbortSignal } {
    const controller = new AbortController();
    const reason = new SvcError("canceled", `the start of app "${operation.appId}" was canceled`);
    const registered = new DisposableStack();
    if (endsWithStart.has(operation.kind))
      registered.use(this.#options.operations.cancelWith(operation, () => controller.abort(reason)));
    return { signal: controller.signal, [Symbol.dispose]: () => registered.dispose() };
  }

  /** Removes the previous run objects, which are not needed and could be started by others. */
  async #settleRuntime(runtime: AppRuntime, app: RunnableApp): Promise<void> {
    try {
      await runtime.settle(app);
    } catch (error) {
      this.#options.log.warn(
        { err: error, appId: app.id },
        "failed to remove the previous containers or processes of an app",
      );
    }
  }

  async finishStop(operation: Operation): Promise<void> {
    const reached = { isDown: false };
    const stop = async (app: AppRecord): Promise<AppPatch> => {
      for (const runtime of this.#options.runtimesOf(app)) await runtime.stop(this.#options.runnable(app));
      reached.isDown = true;
      // The values of an unreadable row cannot be changed.
      return isReadable(app) ? stopped : {};
    };
    // The failure of the start no longer matters after a stop; parts that still run are ended later.
    const afterError = ({ state, failure }: AppRecord): AppPatch =>
      state === "FAILED" && failure !== null ? stopped : {};
    try {
      await this.#settle(operation, stop, { afterError });
    } catch (error) {
      // The desired state was written before.
      throw reached.isDown && isDiskFull(error) ? stoppedUnrecorded(operation.appId, error) : error;
    }
  }

  async finishRestart(operation: Operation): Promise<void> {
    const app = this.#options.registry.lockedApp(operation);
    using cancellation = this.#cancellationOf(operation);
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
    await this.#finishStart(operation, cancellation.signal);
  }

  /** The values that a failed start records. */
  #failed(app: AppRecord, error: unknown): AppPatch {
    const state = this.#options.runtimeOf(app).status(app.id)?.state;
    // The outcome is not known yet; later status events settle it.
    if (!isStartFailed(error) && (isUp(state) || state === "UNKNOWN")) return {};
    return { state: "FAILED", ...failureOf(app.id, error) };
  }

  /**
   * Runs the work and ends the operation with the resulting state. If this process ends in between, the operation stays, and the next
   * process resumes it.
   * @param afterError the state after a failure; default: unchanged
   */
  async #settle(
    operation: Operation,
    work: (app: AppRecord) => Promise<AppPatch>,
    { afterError = () => ({}), next }: SettleOptions = {},
  ): Promise<void> {
    const app = this.#options.registry.lockedApp(operation);
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

/** A backup and a restore always start the app again. */
const endsWithStart: ReadonlySet<AppOperationKind> = new Set(["start", "restart", "upgrade", "repull"]);

const stopped: AppPatch = { state: "STOPPED", stateReason: "", failure: null };

/** Whether a plain start was canceled, in which case the app is stopped. */
function isCanceledStart({ kind }: Operation, signal: AbortSignal): boolean {
  return signal.aborted && (kind === "start" || kind === "restart");
}

/** The next operation on the app recovers what is left. */
function stoppedUnrecorded(appId: string, cause: SvcError<"disk_full">): SvcError {
  const message = `app "${appId}" is stopped, but svc could not record how the app ended: ${cause.message}`;
  return new SvcError("disk_full", message, { cause });
}

/** Ends leftover parts of an app before its start. If that fails, the app is still followed, because it should run. */
async function stopToStart(runtime: AppRuntime, app: RunnableApp): Promise<void> {
  try {
    await runtime.stop(app);
  } catch (error) {
    await runtime.reattach(app);
    throw error;
  }
}

/** The failure of a start, as it is recorded. */
function failureOf(appId: string, error: unknown): { stateReason: string; failure: StartFailure } {
  // Only SvcErrors have messages for users.
  const stateReason =
    error instanceof SvcError
      ? explainFailedStart(appId, error as SvcError)
      : "svc could not start the app; the daemon's log has the reason";
  const payload = isStartFailed(error) ? error.payload : undefined;
  const failure: StartFailure = { lastLines: [...(payload?.lastLines ?? [])] };
  if (payload?.exitCode !== undefined) failure.exitCode = payload.exitCode;
  if (payload?.signal !== undefined && payload.signal !== "") failure.signal = payload.signal;
  return { stateReason, failure };
}

function isStartFailed(error: unknown): error is SvcError<"start_failed"> {
  return error instanceof SvcError && error.reason === "start_failed";
}
