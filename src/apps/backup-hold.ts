/** Holds an app for a backup: under its lock, and as its mode says running, frozen or stopped meanwhile. */
import { SvcError } from "../errors.ts";
import type { BackupPolicy } from "../packages/manifest.ts";
import { isUp, type EngineVolumes, type RunnableApp } from "../runtimes/runtime.ts";
import { requireDirectory } from "./app-directory.ts";
import type { AppRecord } from "./app-record.ts";
import type { Lifecycle } from "./lifecycle.ts";
import type { Operation } from "./operations.ts";
import type { WorkOptions } from "./progress.ts";
import { runStep } from "./release.ts";
import type { AppsContext } from "./apps-context.ts";

/** What the app does while it is read. */
export type BackupMode = BackupPolicy["mode"];

/** Reads an app while it is held. @param volumes of the engine, where its runtime has some */
export type ReadHeld<T> = (
  app: AppRecord,
  runnable: RunnableApp,
  volumes: EngineVolumes | undefined,
) => Promise<T>;

/** What was read, and what went wrong that spoils nothing of it. */
export interface HeldResult<T> {
  result: T;
  warnings: string[];
}

export interface BackupHoldOptions extends AppsContext {
  lifecycle: Lifecycle;
}

/** From `away` or `frozen` on the app has to be brought back to what it did before. */
export type HoldPhase = "read" | "away" | "frozen";

export class BackupHold {
  readonly #options: BackupHoldOptions;

  constructor(options: BackupHoldOptions) {
    this.#options = options;
  }

  /**
   * Runs the package's dump, then `read`, then what the package does after it, while nobody upgrades or removes the app.
   * @throws SvcError `app_busy`, `build_failed` for the dump, `unavailable` when it cannot be frozen, or did not stand still
   *   until all was read; whatever `read` throws. The app goes on in any case.
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
        // Where it could not be brought back, the next sweep tries again.
        operations.release(operation);
      }
    }
    if (stoodStill) return { result, warnings };
    const message = `app "${id}" was let go on by something else before all of it was read`;
    throw new SvcError("unavailable", message);
  }

  async #read<T>(operation: Operation, mode: BackupMode, read: ReadHeld<T>, work: WorkOptions): Promise<T> {
    const { operations, registry, runtimeOf, runnable } = this.#options;
    const app = registry.held(operation);
    await requireDirectory(this.#options, app);
    const held = runnable(app);
    const runtime = runtimeOf(app);
    const dump = app.manifest.backup?.dump;
    if (dump !== undefined) await runStep(this.#options, held, dump, "dump", work);
    const isRunning = isUp(runtime.status(app.id)?.state);
    if (isRunning && mode === "stop") {
      await operations.enter(operation, "away" satisfies HoldPhase);
      await runtime.stop(held);
    }
    if (isRunning && mode === "pause") {
      operation.detail.frozen = await runtime.freezable(held);
      // Before it happens: whoever finds this afterwards lets the app go on.
      await operations.enter(operation, "frozen" satisfies HoldPhase);
      await runtime.freeze(held, operation.detail.frozen);
    }
    return await read(app, held, runtime.volumes);
  }

  /** Whoever gave up waiting has left a dump all the same. @returns what went wrong, which spoils no archive */
  async #after({ appId: id }: Operation, { onProgress }: WorkOptions): Promise<string[]> {
    const { registry, runnable, log } = this.#options;
    const app = registry.get(id);
    const step = app?.manifest.backup?.after;
    if (app === undefined || step === undefined) return [];
    try {
      await runStep(this.#options, runnable(app), step, "after", { onProgress });
      return [];
    } catch (error) {
      log.warn({ err: error, app: id }, "what an app does after its backup failed");
      return [
        error instanceof SvcError ? error.message : "the after step failed; the daemon's log has the reason",
      ];
    }
  }

  /** Brings the app of a backup back that was left behind. */
  async release(operation: Operation): Promise<void> {
    await this.#bringBack(operation);
    await this.#options.operations.end(operation);
  }

  /**
   * The app does what it did before, and is still held.
   * @returns false when it was frozen, and did not stand still until now
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
    const stoodStill = await runtimeOf(app).thaw(runnable(app), operation.detail.frozen ?? []);
    await operations.enter(operation, "read" satisfies HoldPhase);
    return stoodStill;
  }
}
