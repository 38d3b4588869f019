/**
 * From one version to the next, or back to the old one as it was. The new checkout is built beside the old one, which goes on
 * running. Then the app is stopped, the old checkout set aside and the new one put in its place, both by a rename, and
 * started on trial; only the last write makes it the app's version.
 */
import { SvcError } from "../errors.ts";
import type { OwnedTree } from "../identity/owned-tree.ts";
import type { ResolvedPackage } from "../packages/resolved-package.ts";
import { isUp, type AppRuntime, type RunnableApp } from "../runtimes/runtime.ts";
import { whyNotStarted } from "../runtimes/start-failed.ts";
import { requireDirectory } from "./app-directory.ts";
import { acknowledgementOf, requireAcknowledgement, type Consent } from "./acknowledgement.ts";
import { patchApp, type AppRecord } from "./app-record.ts";
import type { AppSettings } from "./app-settings.ts";
import { comingUpMs } from "./coming-up.ts";
import type { Lifecycle } from "./lifecycle.ts";
import { appTree } from "../runtimes/app-tree.ts";
import type { Operation } from "./operations.ts";
import type { WorkOptions } from "./progress.ts";
import { buildInPlace, layOutBeside, runStep } from "./release.ts";
import { writeSettingsFiles } from "./settings-files.ts";
import type { AppsContext } from "./apps-context.ts";
import { isMissed } from "./wanted-state.ts";

/** Whereto, see `UpgradeAppRequest`. */
export interface UpgradeRequest extends Consent {
  /** The tag to go to; empty for the newest tag, or the head of the tracked branch. */
  version: string;
  /** Stops an app that runs and cannot be replaced bit by bit, and starts it again whatever becomes of the upgrade. */
  stopApp: boolean;
  /** What comes before anything changes; when it throws, nothing does. */
  before?: () => Promise<unknown>;
}

export interface UpgradeResult {
  id: string;
  upToDate: boolean;
  from: string;
  to: string;
  /** It ran before, and was started again. */
  restarted: boolean;
}

export interface UpgraderOptions extends AppsContext {
  lifecycle: Lifecycle;
  settings: AppSettings;
}

/**
 * How far an upgrade is. In `fetch` nothing has changed, in `prepare` the new version is made ready beside the old one, in
 * `switch` it takes its place, from `done` on it is the app's.
 */
type UpgradePhase = "fetch" | "prepare" | "switch" | "done";

/** Of the data until it is whole, so that a copy cut short is never put back over them. */
const unfinishedCopy = `${appTree.previousData}.copying`;

export class Upgrader {
  readonly #options: UpgraderOptions;

  constructor(options: UpgraderOptions) {
    this.#options = options;
  }

  /**
   * @throws SvcError `app_running` without `stopApp`, `app_busy`, `license_required`, `package_invalid`, `git_failed`,
   *   `build_failed`, `start_failed` with the last lines of the trial, and `invalid_request` when the new version refuses the
   *   kept settings; the old version stays as it was then. `start_failed` also when an app that was stopped for it does not
   *   start again, whichever version it is at.
   */
  async upgrade(app: AppRecord, request: UpgradeRequest, work: WorkOptions): Promise<UpgradeResult> {
    const { operations } = this.#options;
    try {
      await this.#requireReady(app, request);
    } catch (error) {
      // Nobody has to stop an app to hear that there is nothing newer, or nothing of that name.
      if (await this.#isThere(app, request, work)) return upToDate(app);
      throw error;
    }
    await request.before?.();
    const operation = await operations.begin({
      appId: app.id,
      kind: "upgrade",
      phase: "fetch" satisfies UpgradePhase,
      detail: { runUid: app.runUid, restart: this.#isMissed(app) },
      cancel: work.cancel,
    });
    try {
      const result = await this.#run(operation, request, work).catch(async (error: unknown) => {
        const afterwards = await this.restore(operation).then(
          () => undefined,
          (failure: unknown) => failure,
        );
        throw asRefused(app, error, afterwards);
      });
      await this.#giveBack(operation);
      return result;
    } finally {
      // Not before: a sweep would end it, too, at the same time.
      operations.release(operation);
    }
  }

  async #run(operation: Operation, request: UpgradeRequest, work: WorkOptions): Promise<UpgradeResult> {
    const { operations, registry, packages, settings, runtimeOf, runnable, now, log } = this.#options;
    const app = registry.held(operation);
    // Somebody may have started it between the first look and the lock.
    await this.#requireReady(app, request);
    await requireDirectory(this.#options, app);
    await using resolved = await packages.resolveUpgrade(app, request.version, app.ownerUid, work);
    if (isSameRelease(app, resolved)) {
      resolved.keep();
      return upToDate(app);
    }
    this.#requireSamePackage(app, resolved);
    const { ownerUid, accepted } = app;
    requireAcknowledgement(resolved, { ...request, ownerUid, accepted, again: "upgrade" });
    await settings.validate(resolved.manifest, app.settings, ownerUid);
    const wasUp = this.#isUp(app);
    const restarted = wasUp || operation.detail.restart === true || this.#isMissed(app);
    operation.detail.sameName = app.version === resolved.version;
    await operations.enter(operation, "prepare" satisfies UpgradePhase);
    const isBuilt = await this.#prepare(app, resolved, work);
    operation.detail.restart = restarted;
    operation.detail.rolls = wasUp && (await this.#canRoll(app, resolved));
    if (wasUp && !operation.detail.rolls) requireStop(app, resolved, request);
    await operations.enter(operation, "switch" satisfies UpgradePhase);
    if (!operation.detail.rolls) await runtimeOf(app).stop(runnable(app));
    await this.#switch(app, resolved, { ...operation.detail, ...request, isBuilt }, work);
    // The new version is the app's from this write on; a client that goes away changes nothing any more.
    work.signal?.throwIfAborted();
    await operations.enter(operation, "done" satisfies UpgradePhase, [
      patchApp(app.id, {
        origin: resolved.origin,
        version: resolved.version,
        manifest: resolved.manifest,
        accepted: acknowledgementOf(resolved),
        changedAtMs: now(),
        state: "STOPPED",
        stateReason: "",
        failure: null,
      }),
    ]);
    resolved.keep();
    try {
      await this.#tidy(operation);
    } catch (error) {
      // The upgrade holds; only the old version is still on the disk. The next upgrade removes it.
      log.warn({ err: error, appId: app.id }, "the version before an upgrade could not be removed");
    }
    return { id: app.id, upToDate: false, from: app.version, to: resolved.version, restarted };
  }

  /**
   * Ends an upgrade wherever it is: before `done` the old version is put back, from then on what is left of it is removed; an
   * app that ran is started again. Also what recovery does with one that was left behind; doing it twice does no harm.
   */
  async restore(operation: Operation): Promise<void> {
    await this.#tidy(operation);
    await this.#giveBack(operation);
  }

  /** Leaves one version alone on the disk. */
  async #tidy(operation: Operation): Promise<void> {
    const { registry, identities, paths, runtimeOf, runnable } = this.#options;
    const runUid = operation.detail.runUid ?? identities.selfUid;
    const tree = await identities.tree(paths.appDir(operation.appId), runUid);
    const phase = operation.phase as UpgradePhase;
    const { rolls = false } = operation.detail;
    const app = registry.get(operation.appId);
    if (phase === "prepare") {
      await tree.remove(appTree.nextRepo);
      if (app !== undefined) await this.#forgetNext(app, operation);
      return;
    }
    if (phase === "switch") {
      // It may have been killed in the middle of its trial.
      if (app !== undefined && !rolls) await runtimeOf(app).stop(runnable(app));
      await tree.putBack(appTree.previousRepo, appTree.repo);
      await tree.putBack(appTree.previousData, appTree.data);
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

  /** Ends the operation, with a start of what was stopped for it. @throws SvcError `start_failed` */
  async #giveBack(operation: Operation): Promise<void> {
    const { operations, registry, lifecycle } = this.#options;
    const { restart } = operation.detail;
    if (restart === true && registry.get(operation.appId) !== undefined)
      await lifecycle.finishStart(operation);
    else await operations.end(operation);
  }

  /** What was built for the new version may have taken the name of what was built for the old one. */
  async #prepareAgain(app: AppRecord): Promise<void> {
    const { runtimeOf, runnable, log } = this.#options;
    try {
      await runtimeOf(app).prepare(runnable(app), {});
    } catch (error) {
      log.warn({ err: error, appId: app.id }, "the version before an upgrade could not be made ready again");
    }
  }

  /** Without an end of it, where there is nothing that both versions could want at a time. */
  async #canRoll(app: AppRecord, { manifest }: ResolvedPackage): Promise<boolean> {
    // First, as it refuses what is in the way of a stop, too.
    return (await this.#mayRoll(app)) && manifest.migrate === undefined;
  }

  /** As far as the version says that it is at. */
  async #mayRoll(app: AppRecord): Promise<boolean> {
    const { runtimeOf, runnable } = this.#options;
    return canProve(app) && (await runtimeOf(app).canRoll?.(runnable(app))) === true;
  }

  /** Has all that runs be the old version again. */
  async #rollBack(app: AppRecord): Promise<void> {
    const { identities, runtimeOf, runnable, log } = this.#options;
    try {
      await writeSettingsFiles(identities, runnable(app));
      await runtimeOf(app).roll?.(runnable(app), { isBack: true });
    } catch (error) {
      // Once its engine can be asked again, what was replaced comes back while the rest runs.
      if (error instanceof SvcError && error.code === "unavailable") throw error;
      log.warn(
        { err: error, appId: app.id },
        "what an upgrade had replaced did not come back: the app is started anew",
      );
      await runtimeOf(app).stop(runnable(app));
    }
  }

  /** What is left on the engine of a version that never took its place; the app itself may run. */
  async #forgetNext(app: AppRecord, { detail }: Operation): Promise<void> {
    const { runtimeOf, runnable, log } = this.#options;
    if (!canProve(app)) return;
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

  /** Makes the new version ready beside the old one, which goes on. @returns whether it is built */
  async #prepare(app: AppRecord, resolved: ResolvedPackage, work: WorkOptions): Promise<boolean> {
    const { identities, paths, runtimeOf } = this.#options;
    const next = { ...this.#next(app, resolved), checkout: appTree.nextRepo };
    const tree = await identities.tree(paths.appDir(app.id), app.runUid);
    await tree.remove(appTree.nextRepo);
    // Of an upgrade that could not remove them: if this one failed they would be put back over what the app is now.
    await tree.remove(appTree.previousRepo);
    await tree.remove(appTree.previousData);
    const isBuilt = await layOutBeside(this.#options, next, resolved, work);
    if (canProve(app)) await runtimeOf(app).prepare(next, work);
    return isBuilt;
  }

  #next(app: AppRecord, { manifest, version }: ResolvedPackage): RunnableApp {
    return this.#options.runnable({ ...app, manifest, version });
  }

  /** Puts the new version in the place of the old one, which is set aside, and proves that it works. */
  async #switch(
    app: AppRecord,
    resolved: ResolvedPackage,
    how: Operation["detail"] & Pick<UpgradeRequest, "stopApp"> & { isBuilt: boolean },
    work: WorkOptions,
  ): Promise<void> {
    const { identities, runtimeOf, runnable } = this.#options;
    const { isBuilt, restart: staysUp = false, rolls = false } = how;
    const { manifest } = resolved;
    const next = this.#next(app, resolved);
    const keepsData = canProve(app) || manifest.migrate !== undefined;
    await runtimeOf(app).keepData?.(runnable(app));
    const tree = await identities.tree(next.directory, app.runUid);
    await this.#setAside(tree, keepsData);
    await tree.rename(appTree.nextRepo, appTree.repo);
    if (!isBuilt) await buildInPlace(this.#options, next, work);
    // The trial is a start, which makes the description that it runs by.
    if (!canProve(app)) await runtimeOf(app).prepare(next, work);
    if (manifest.migrate !== undefined) await runStep(this.#options, next, manifest.migrate, "migrate", work);
    if (!canProve(app)) return;
    if (rolls && (await runtimeOf(app).canRoll?.(next)) === true) {
      work.onProgress?.({ step: "trial", message: `Replacing what runs by ${next.version}, bit by bit` });
      await writeSettingsFiles(identities, next);
      await runtimeOf(app).roll?.(next, { signal: work.signal });
      return;
    }
    if (rolls) {
      requireStop(app, resolved, how);
      await runtimeOf(app).stop(runnable(app));
    }
    await this.#prove(runtimeOf(app), next, work);
    // What is going to be started anyway goes on.
    if (!staysUp) await runtimeOf(app).stop(next);
  }

  /** Starts the new version on trial. @throws SvcError `start_failed` with its last lines; it does not run then */
  async #prove(runtime: AppRuntime, next: RunnableApp, { signal, onProgress }: WorkOptions): Promise<void> {
    onProgress?.({ step: "trial", message: `Starting ${next.version} on trial` });
    await this.#options.ports.requireFree(next, () => runtime.stop(next));
    await writeSettingsFiles(this.#options.identities, next);
    try {
      await runtime.start(next);
      await runtime.waitHealthy(next.id, comingUpMs(next.manifest.health), signal);
    } catch (error) {
      await runtime.stop(next);
      throw error;
    }
  }

  /** Renames the old checkout aside, and copies the data if the new version is going to touch them. */
  async #setAside(tree: OwnedTree, keepsData: boolean): Promise<void> {
    if (keepsData) {
      await tree.remove(unfinishedCopy);
      await tree.copy(appTree.data, tree, unfinishedCopy);
      await tree.rename(unfinishedCopy, appTree.previousData);
    }
    await tree.rename(appTree.repo, appTree.previousRepo);
  }

  /** @throws SvcError `app_running` for an app that would have to be stopped, which nobody asked for */
  async #requireReady(app: AppRecord, { stopApp }: UpgradeRequest): Promise<void> {
    const state = this.#options.runtimeOf(app).status(app.id)?.state ?? "STOPPED";
    if (state === "STOPPED" || state === "FAILED" || state === "CRASHED") return;
    if (isUp(state) && (stopApp || (await this.#mayRoll(app)))) return;
    throw new SvcError("app_running", `app "${app.id}" is running; stop it before upgrading it`);
  }

  /**
   * Whether the app is what it would be upgraded to; false where that cannot be found out.
   * @throws SvcError where there is no such version
   */
  async #isThere(app: AppRecord, { version }: UpgradeRequest, work: WorkOptions): Promise<boolean> {
    try {
      const { packages } = this.#options;
      await using resolved = await packages.resolveUpgrade(app, version, app.ownerUid, work);
      return isSameRelease(app, resolved);
    } catch (error) {
      work.signal?.throwIfAborted();
      // To stop it would not help.
      if (error instanceof SvcError && ["not_found", "invalid_argument"].includes(error.code)) throw error;
      return false;
    }
  }

  #isUp(app: AppRecord): boolean {
    return isUp(this.#options.runtimeOf(app).status(app.id)?.state);
  }

  #isMissed(app: AppRecord): boolean {
    return isMissed(app, this.#options.runtimeOf(app).status(app.id));
  }

  #requireSamePackage(app: AppRecord, resolved: ResolvedPackage): void {
    const { id, runtime } = resolved.manifest;
    if (id === app.packageId && runtime.kind === app.runtime) return;
    throw new SvcError(
      "package_invalid",
      `version ${resolved.version} of "${app.packageId}" says it is "${id}" on the ${runtime.kind} runtime; ` +
        `it cannot replace an app on the ${app.runtime} runtime`,
    );
  }
}

/** @throws SvcError `app_running` when nobody asked for that: what runs cannot be replaced bit by bit by this version */
function requireStop(
  { id }: AppRecord,
  { version }: ResolvedPackage,
  { stopApp }: Pick<UpgradeRequest, "stopApp">,
): void {
  if (stopApp) return;
  const message = `app "${id}" is running, and ${version} cannot run beside what it is now; stop it before upgrading it`;
  throw new SvcError("app_running", message);
}

function upToDate({ id, version }: AppRecord): UpgradeResult {
  return { id, upToDate: true, from: version, to: version, restarted: false };
}

/** What was never up as it is set, or not the last time, proves nothing about a version. */
function canProve({ startedSettings, failure }: AppRecord): boolean {
  return startedSettings !== null && failure === null;
}

/**
 * What failed, and what that leaves: who waited for the new version wonders which one is there now.
 * @param afterwards why the old version could not be put back or started again
 */
function asRefused({ id, version }: AppRecord, error: unknown, afterwards: unknown): unknown {
  if (afterwards !== undefined && !(afterwards instanceof SvcError)) return afterwards;
  if (!(error instanceof SvcError)) return error;
  const { reason, message, payload, cause } = error as SvcError;
  if (asking.has(reason)) return error;
  const stays = `${message}; app "${id}" stays at ${version}`;
  const why = afterwards === undefined ? "" : whyNotStarted(id, afterwards as SvcError);
  const says = why === "" ? stays : `${stays}, which could not be started again: ${why}`;
  return new SvcError(reason, says, { payload, cause });
}

/** Nothing was tried yet: something is to be said or done first. */
const asking: ReadonlySet<string> = new Set(["license_required", "app_running"]);

/** A directory has no history, so it is always taken afresh. */
function isSameRelease(app: AppRecord, resolved: ResolvedPackage): boolean {
  return resolved.origin.kind === "git" && resolved.origin.commit === app.origin.commit;
}
