/** Holds an app still for a backup: under its lock, and as its mode says stopped or running meanwhile. */
import type { BackupPolicy } from "../packages/manifest.ts";
import { isUp, type RunnableApp } from "../runtimes/runtime.ts";
import type { AppRecord } from "./app-record.ts";
import type { Lifecycle } from "./lifecycle.ts";
import type { Operation } from "./operations.ts";
import type { WorkOptions } from "./progress.ts";
import { runStep } from "./release.ts";
import type { AppsContext } from "./apps-context.ts";

/** What the app does while it is read. */
export type BackupMode = BackupPolicy["mode"];

export interface BackupHoldOptions extends AppsContext {
  lifecycle: Lifecycle;
}

/** From `away` on the app has to be brought back to what it did before. */
type HoldPhase = "read" | "away";

export class BackupHold {
  readonly #options: BackupHoldOptions;

  constructor(options: BackupHoldOptions) {
    this.#options = options;
  }

  /**
   * Runs the package's dump, and then `read` while nobody upgrades or removes the app.
   * @throws SvcError `app_busy`, `build_failed` for the dump; whatever `read` throws. The app goes on in any case.
   */
  async hold<T>(
    id: string,
    mode: BackupMode,
    read: (app: AppRecord, runnable: RunnableApp) => Promise<T>,
    work: WorkOptions,
  ): Promise<T> {
    const { operations, registry, runtimeOf, runnable } = this.#options;
    const operation = await operations.begin({
      appId: id,
      kind: "backup",
      phase: "read" satisfies HoldPhase,
    });
    try {
      const app = registry.get(id);
      if (app === undefined) throw new Error(`the backup holds no app "${id}"`);
      const held = runnable(app);
      const dump = app.manifest.backup?.dump;
      if (dump !== undefined) await runStep(this.#options, held, dump, "dump", work);
      if (mode === "stop" && isUp(runtimeOf(app).status(id)?.state)) {
        await operations.enter(operation, "away" satisfies HoldPhase);
        await runtimeOf(app).stop(held);
      }
      return await read(app, held);
    } finally {
      await this.release(operation);
    }
  }

  /** Brings the app back; also what recovery does with a backup that was left behind. */
  async release(operation: Operation): Promise<void> {
    const { operations, registry, lifecycle } = this.#options;
    const phase = operation.phase as HoldPhase;
    if (phase === "away" && registry.get(operation.appId) !== undefined) {
      await lifecycle.finishStart(operation);
    } else {
      await operations.end(operation);
    }
  }
}
