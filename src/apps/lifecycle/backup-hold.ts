/** Quiesces an app for a backup: takes its lock, and keeps it running, frozen or stopped, depending on the mode. */
import { SvcError } from "../../errors.ts";
import type { BackupPolicy } from "../../packages/manifest/manifest.ts";
import type { EngineVolumes } from "../../runtimes/capabilities.ts";
import { isUp } from "../../runtimes/runtime-status.ts";
import type { RunnableApp } from "../../runtimes/runnable-app.ts";
import { requireDirectory } from "../records/app-directory.ts";
import type { AppRecord } from "../records/app-record.ts";
import type { Lifecycle } from "./lifecycle.ts";
import type { Operation } from "./operations.ts";
import type { HoldPhase } from "./phases.ts";
import type { WorkOptions } from "../../work/progress.ts";
import { runStep } from "../changes/release.ts";
import type { AppsContext } from "../apps-context.ts";

/** The state of the app during the backup. */
export type BackupMode = BackupPolicy["mode"];

/** Reads a quiesced app. @param volumes engine volumes, if its runtime has them */
export type ReadHeld<T> = (
  app: AppRecord,
  runnable: RunnableApp,
  volumes: EngineVolumes | undefined,
) => Promise<T>;

/** The result, and problems that do not affect the archive. */
export interface HeldResult<T> {
  result: T;
  warnings: string[];
}

export interface BackupHoldOptions extends AppsContext {
  lifecycle: Lifecycle;
}

export class BackupHold {
  readonly #options: BackupHoldOptions;

  constructor(options: BackupHoldOptions) {
    this.#options = options;
  }

  /**
   * Runs the package's dump step, `read`, and the package's `after` step, while the app cannot be upgraded or removed.
   * @throws SvcError `app_busy`, `build_failed` for the dump, `unavailable` if it cannot be frozen, or did not stay frozen
   *   until everything was read; errors of `read`. The app continues in any case.
   */
  async hold<T>(id: string, mode: BackupMode, read: ReadHeld<T>, work: WorkOptions): Promise<HeldResult<T>> {
    const { operations } = this.#options;
    const operation = await operations.begin({
      appId: id,
      kind: "backup",
      phase: "read" satisfies HoldPhase,
      cancel: work.cancel,
    });
    let result: T;
    let stoodStill: boolean;
    const warnings: string[] = [];
    try {
      result = await this.#read(operation, mode, read, work);
    } finally {
      try {
        stoodStill = await this.#bringBack(operation);
        warnings.push(...(await this.#after(operation, work)));
        await operations.end(operation);
      } finally {
        // If it could not be resumed, the next sweep tries again.
        operations.release(operation);
      }
    }
    if (stoodStill) return { result, warnings };
    const message = `the backup of app "${id}" was discarded: another program resumed the paused app before all files were read; try again, or use the mode "stop"`;
    throw new SvcError("unavailable", message);
  }

  async #read<T>(operation: Operation, mode: BackupMode, read: ReadHeld<T>, work: WorkOptions): Promise<T> {
    const { operations, registry, runtimeOf, runnable } = this.#options;
    const app = registry.lockedApp(operation);
    await requireDirectory(this.#options, app);
    const target = runnable(app);
    const runtime = runtimeOf(app);
    const dump = app.manifest.backup?.dump;
    if (dump !== undefined) await runStep(this.#options, target, dump, "dump", work);
    const isRunning = isUp(runtime.status(app.id)?.state);
    if (isRunning && mode === "stop") {
      await operations.enter(operation, "away" satisfies HoldPhase);
      await runtime.stop(target);
    }
    if (isRunning && mode === "pause") {
      operation.detail.frozen = await runtime.freezing.freezable(target);
      // Recorded first, so that recovery resumes the app if this process ends.
      await operations.enter(operation, "frozen" satisfies HoldPhase);
      await runtime.freezing.freeze(target, operation.detail.frozen);
    }
    return await read(app, target, runtime.volumes);
  }

  /** Runs the `after` step even if the client has disconnected, because the dump exists. @returns problems that do not affect the archive */
  async #after({ appId: id }: Operation, { onProgress }: WorkOptions): Promise<string[]> {
    const { registry, runnable, log } = this.#options;
    const app = registry.get(id);
    const step = app?.manifest.backup?.after;
    if (app === undefined || step === undefined) return [];
    try {
      await runStep(this.#options, runnable(app), step, "after", { onProgress });
      return [];
    } catch (error) {
      log.warn({ err: error, app: id }, "failed to run the after step of an app's backup");
      return [
        error instanceof SvcError ? error.message : "the after step failed; the daemon's log has the reason",
      ];
    }
  }

  /** Resumes the app of an interrupted backup. */
  async release(operation: Operation): Promise<void> {
    await this.#bringBack(operation);
    await this.#options.operations.end(operation);
  }

  /**
   * Resumes the app, which stays locked.
   * @returns false if it was frozen and did not stay frozen until now
   */
  async #bringBack(operation: Operation): Promise<boolean> {
    const { operations, registry, lifecycle, runtimeOf, runnable } = this.#options;
    const phase = operation.phase as HoldPhase;
    const app = registry.get(operation.appId);
    if (phase === "read" || app === undefined) return true;
    if (phase === "away") {
      await lifecycle.finishStart(operation, "read" satisfies HoldPhase);
      return true;
    }
    const stoodStill = await runtimeOf(app).freezing.thaw(runnable(app), operation.detail.frozen ?? []);
    await operations.enter(operation, "read" satisfies HoldPhase);
    return stoodStill;
  }
}
