/** Replaces the version of an app by the next one, which is built beside it and started on trial. */
import type { Manifest } from "../../packages/manifest/manifest.ts";
import type { ResolvedPackage } from "../../packages/resolved-package.ts";
import { appTree } from "../../runtimes/app-tree.ts";
import type { AppRuntime } from "../../runtimes/contract.ts";
import type { RunnableApp } from "../../runtimes/runnable-app.ts";
import type { OwnedTree } from "../../run-as/owned-tree.ts";
import type { WorkOptions } from "../../work/progress.ts";
import type { AppsContext } from "../apps-context.ts";
import { maxStartMs } from "../lifecycle/start-wait.ts";
import type { Operation } from "../lifecycle/operations.ts";
import type { AppRecord } from "../records/app-record.ts";
import { writeSettingsFiles } from "../records/settings-files.ts";
import { buildInPlace, checkOutBeside, runStep } from "./release.ts";
import { SvcError } from "../../errors.ts";

/** Suffix of an unfinished data copy, so that a rollback never restores a partial copy. */
export const unfinishedCopy = `${appTree.previousData}.copying`;

/** Number of last lines in the error of a failed trial. */
const maxErrorLines = 20;

/** A version that is checked out beside the current one. */
export interface Release extends Pick<ResolvedPackage, "version"> {
  /** With the ports of its files. */
  readonly manifest: Manifest;
  readonly isBuilt: boolean;
}

/** Whether a running app may be stopped for the upgrade. */
interface StopConsent {
  stopApp: boolean;
}

export class VersionSwitch {
  readonly #options: AppsContext;

  constructor(options: AppsContext) {
    this.#options = options;
  }

  /** Upgrades without a stop, if the versions do not need the same resources at once. */
  async canRoll(app: AppRecord, { manifest }: Release): Promise<boolean> {
    // First, because it also rejects what would prevent a stop.
    return (await this.supportsRolling(app)) && manifest.migrate === undefined;
  }

  /** The version that the app's record names. */
  async supportsRolling(app: AppRecord): Promise<boolean> {
    const { runtimeOf, runnable } = this.#options;
    return canTestVersion(app) && (await runtimeOf(app).rolling?.canRoll(runnable(app))) === true;
  }

  /** Prepares the new version beside the running old one. */
  async prepare(app: AppRecord, resolved: ResolvedPackage, work: WorkOptions): Promise<Release> {
    const { userHelpers, paths, runtimeOf } = this.#options;
    const { version } = resolved;
    const next = { ...this.#next(app, resolved), checkout: appTree.nextRepo };
    const tree = await userHelpers.tree(paths.appDir(app.id), app.runUid);
    await tree.remove(appTree.nextRepo);
    // Left over from an earlier upgrade: if this upgrade failed, a rollback would restore them over the current version.
    await tree.remove(appTree.previousRepo);
    await tree.remove(appTree.previousData);
    const isBuilt = await checkOutBeside(this.#options, next, resolved, work);
    const current = await runtimeOf(app).projects?.currentManifest(next, work.signal);
    for (const message of current?.notes ?? []) work.onProgress?.({ step: "ports", message });
    const { manifest } = current ?? resolved;
    if (canTestVersion(app)) await runtimeOf(app).prepare({ ...next, manifest }, work);
    return { manifest, version, isBuilt };
  }

  #next(app: AppRecord, { manifest, version }: Pick<Release, "manifest" | "version">): RunnableApp {
    return this.#options.runnable({ ...app, manifest, version });
  }

  /** Replaces the old version by the new one, and checks that the new one works. */
  async switch(
    app: AppRecord,
    release: Release,
    how: Operation["detail"] & StopConsent,
    work: WorkOptions,
  ): Promise<void> {
    const { userHelpers, runtimeOf, runnable } = this.#options;
    const { restart: staysUp = false, rolls = false } = how;
    const { manifest, isBuilt } = release;
    const next = this.#next(app, release);
    const keepsData = canTestVersion(app) || manifest.migrate !== undefined;
    await runtimeOf(app).data?.preserveData(runnable(app));
    const tree = await userHelpers.tree(next.directory, app.runUid);
    await this.#moveToBackup(tree, keepsData);
    await tree.rename(appTree.nextRepo, appTree.repo);
    if (!isBuilt) await buildInPlace(this.#options, next, work);
    // The trial is a start, which writes the app's run specification.
    if (!canTestVersion(app)) await runtimeOf(app).prepare(next, work);
    if (manifest.migrate !== undefined) await runStep(this.#options, next, manifest.migrate, "migrate", work);
    if (!canTestVersion(app)) return;
    if (rolls && (await runtimeOf(app).rolling?.canRoll(next)) === true) {
      work.onProgress?.({
        step: "trial",
        message: `Replacing the running version with ${next.version}, task by task`,
      });
      await writeSettingsFiles(userHelpers, next);
      await runtimeOf(app).rolling?.roll(next, { signal: work.signal });
      return;
    }
    if (rolls) {
      requireStop(app, release, how);
      await runtimeOf(app).stop(runnable(app));
    }
    await this.#startOnTrial(runtimeOf(app), next, work);
    // Starts that are planned anyway continue.
    if (!staysUp) await runtimeOf(app).stop(next);
  }

  /** Starts the new version on trial. @throws SvcError `start_failed` with its last lines; it is stopped then */
  async #startOnTrial(
    runtime: AppRuntime,
    next: RunnableApp,
    { signal, onProgress }: WorkOptions,
  ): Promise<void> {
    onProgress?.({ step: "trial", message: `Starting ${next.version} on trial` });
    await this.#options.ports.requireFree(next, () => runtime.stop(next));
    await writeSettingsFiles(this.#options.userHelpers, next);
    try {
      await runtime.start(next);
      await runtime.waitHealthy(next.id, maxStartMs(next.manifest.health), signal);
    } catch (error) {
      const explained = await withLastLines(error, runtime, next);
      await runtime.stop(next);
      throw explained;
    }
  }

  /** Renames the old checkout, and copies the data if the new version will change it. */
  async #moveToBackup(tree: OwnedTree, keepsData: boolean): Promise<void> {
    if (keepsData) {
      await tree.remove(unfinishedCopy);
      await tree.copy(appTree.data, tree, unfinishedCopy);
      await tree.rename(unfinishedCopy, appTree.previousData);
    }
    await tree.rename(appTree.repo, appTree.previousRepo);
  }
}

/** The error of a trial; the log of the version that stays lacks the trial's output. */
async function withLastLines(error: unknown, runtime: AppRuntime, next: RunnableApp): Promise<unknown> {
  if (!(error instanceof SvcError) || error.reason !== "start_failed") return error;
  const failed = error as SvcError<"start_failed">;
  if ((failed.payload?.lastLines ?? []).length > 0) return error;
  const { lines } = await runtime.logs(next, { tail: maxErrorLines }).catch(() => ({ lines: [] }));
  const payload = { ...failed.payload, lastLines: lines.map(({ text }) => text) };
  return new SvcError("start_failed", failed.message, { payload, cause: error });
}

/** @throws SvcError `app_running` if this version cannot be installed in a rolling way and the request does not allow a stop */
export function requireStop({ id }: AppRecord, { version }: Release, { stopApp }: StopConsent): void {
  if (stopApp) return;
  const message = `app "${id}" is running, and ${version} cannot run at the same time as the installed version; stop the app before the upgrade`;
  throw new SvcError("app_running", message);
}

/** An app that was never up with its settings, or not the last time, proves nothing about a version. */
export function canTestVersion({ startedSettings, failure }: AppRecord): boolean {
  return startedSettings !== null && failure === null;
}
