/** Ends an upgrade in any phase: only one version stays on the disk and on the engine. */
import { SvcError } from "../../errors.ts";
import { appTree } from "../../runtimes/app-tree.ts";
import type { AppsContext } from "../apps-context.ts";
import type { Operation } from "../lifecycle/operations.ts";
import type { AppRecord } from "../records/app-record.ts";
import { writeSettingsFiles } from "../records/settings-files.ts";
import { canTestVersion, unfinishedCopy } from "./version-switch.ts";

/**
 * The phase of an upgrade. In `fetch` nothing has changed; in `prepare` the new version is built beside the old one; in `switch` it
 * replaces the old one; from `done` on it is the app's version.
 */
export type UpgradePhase = "fetch" | "prepare" | "switch" | "done";

export class UpgradeRollback {
  readonly #options: AppsContext;

  constructor(options: AppsContext) {
    this.#options = options;
  }

  /** Removes the version that is not used from the disk. */
  async removeUnused(operation: Operation): Promise<void> {
    const { registry, userHelpers, paths, runtimeOf, runnable } = this.#options;
    const runUid = operation.detail.runUid ?? userHelpers.selfUid;
    const tree = await userHelpers.tree(paths.appDir(operation.appId), runUid);
    const phase = operation.phase as UpgradePhase;
    const { rolls = false } = operation.detail;
    const app = registry.get(operation.appId);
    if (phase === "prepare") {
      await tree.remove(appTree.nextRepo);
      if (app !== undefined) await this.#forgetNext(app, operation);
      return;
    }
    if (phase === "switch") {
      // The daemon may have been killed during the trial.
      if (app !== undefined && !rolls) await runtimeOf(app).stop(runnable(app));
      await tree.moveBack(appTree.previousRepo, appTree.repo);
      await tree.moveBack(appTree.previousData, appTree.data);
      await tree.remove(unfinishedCopy);
      await tree.remove(appTree.nextRepo);
      if (app !== undefined) await this.#prepareAgain(app);
      if (app !== undefined && rolls) await this.#rollBack(app);
    }
    if (phase === "done") {
      await tree.remove(appTree.previousRepo);
      await tree.remove(appTree.previousData);
    }
    if (app !== undefined && phase !== "fetch") await runtimeOf(app).settle(runnable(app));
  }

  /** The image of the new version may have taken the name of the old version's image. */
  async #prepareAgain(app: AppRecord): Promise<void> {
    const { runtimeOf, runnable, log } = this.#options;
    try {
      await runtimeOf(app).prepare(runnable(app), {});
    } catch (error) {
      log.warn({ err: error, appId: app.id }, "failed to prepare the previous version after an upgrade");
    }
  }

  /** Makes all running parts the old version again. */
  async #rollBack(app: AppRecord): Promise<void> {
    const { userHelpers, runtimeOf, runnable, log } = this.#options;
    try {
      await writeSettingsFiles(userHelpers, runnable(app));
      await runtimeOf(app).rolling?.roll(runnable(app), { isBack: true });
    } catch (error) {
      // When the engine can be reached again, the replaced parts are restored while the rest runs.
      if (error instanceof SvcError && error.code === "unavailable") throw error;
      log.warn(
        { err: error, appId: app.id },
        "failed to roll back an upgrade without a restart: restarting the app",
      );
      await runtimeOf(app).stop(runnable(app));
    }
  }

  /** Removes engine objects of a version that was never used; the app itself may run. */
  async #forgetNext(app: AppRecord, { detail }: Operation): Promise<void> {
    const { runtimeOf, runnable, log } = this.#options;
    if (!canTestVersion(app)) return;
    if (detail.sameName === true) await this.#prepareAgain(app);
    try {
      await runtimeOf(app).settle(runnable(app));
    } catch (error) {
      log.warn(
        { err: error, appId: app.id },
        "what was made for a version that was given up could not be removed",
      );
    }
  }
}
