/**
 * Upgrades an app, or rolls the upgrade back. The new checkout is built beside the old one while the app runs. Then the app is
 * stopped, the two checkouts are swapped by renames, and the new version is started on trial; only the last write commits it.
 */
import { SvcError } from "../../errors.ts";
import { SetOnce } from "../../lib/set-once.ts";
import type { ResolvedPackage } from "../../packages/resolved-package.ts";
import { isUp } from "../../runtimes/runtime-status.ts";
import { explainFailedStart } from "../../runtimes/start-failed.ts";
import { requireDirectory } from "../records/app-directory.ts";
import { acknowledgementOf, requireAcknowledgement, type Consent } from "./acknowledgement.ts";
import { patchApp, type AppRecord } from "../records/app-record.ts";
import type { AppFinder } from "../records/app-finder.ts";
import type { AppCaller } from "../records/app-registry.ts";
import type { InstallLimiter } from "./install-limiter.ts";
import type { AppSettings } from "../records/app-settings.ts";
import type { Lifecycle } from "../lifecycle/lifecycle.ts";
import type { Operation } from "../lifecycle/operations.ts";
import { cancelably, type WorkOptions } from "../../work/progress.ts";
import { withStepNumbers } from "../../work/step-numbers.ts";
import type { AppsContext } from "../apps-context.ts";
import { UpgradeRollback, type UpgradePhase } from "./upgrade-rollback.ts";
import { firstSteps, upgradePlan } from "./step-plans.ts";
import { canTestVersion, requireStop, VersionSwitch } from "./version-switch.ts";
import { needsStart } from "../lifecycle/reconciler.ts";

/** Target version and options; see `UpgradeAppRequest`. */
export interface UpgradeRequest extends Consent {
  /** The target tag; empty for the newest tag, or the head of the tracked branch. */
  version: string;
  /** Stops a running app that cannot be upgraded in a rolling way, and starts it again whether or not the upgrade succeeds. */
  stopApp: boolean;
  /** Whether a backup is made before anything changes; if that fails, nothing does. Default: the configuration's. */
  backup?: boolean | undefined;
}

/** Makes a backup of an app. */
export type BackUp = (app: AppRecord, caller: AppCaller, work: WorkOptions) => Promise<void>;

export interface UpgradeResult {
  id: string;
  upToDate: boolean;
  from: string;
  to: string;
  /** Whether the app ran before the upgrade and was started again. */
  restarted: boolean;
}

export interface UpgraderOptions extends AppsContext {
  lifecycle: Lifecycle;
  settings: AppSettings;
  finder: Pick<AppFinder, "find">;
  installLimiter: InstallLimiter;
  /** Whether a backup is made first if the request leaves that open. */
  backUpBeforeUpgrade: () => boolean;
}

export class Upgrader {
  readonly #options: UpgraderOptions;
  readonly #switch: VersionSwitch;
  readonly #rollback: UpgradeRollback;
  /** Set once, by the part that makes backups. */
  readonly beforeUpgrade = new SetOnce<BackUp>("the backup before an upgrade");

  constructor(options: UpgraderOptions) {
    this.#options = options;
    this.#switch = new VersionSwitch(options);
    this.#rollback = new UpgradeRollback(options);
  }

  /**
   * @throws SvcError `app_running` without `stopApp`, `app_busy`, `license_required`, `package_invalid`, `git_failed`,
   *   `build_failed`, `start_failed` with the last lines of the trial, and `invalid_request` if the new version rejects the
   *   current settings; the old version is unchanged then. `start_failed` also if an app that was stopped does not start again,
   *   at either version.
   */
  async upgrade(
    { id }: AppRecord,
    request: UpgradeRequest,
    caller: AppCaller,
    work: WorkOptions,
  ): Promise<UpgradeResult> {
    const { finder, installLimiter, backUpBeforeUpgrade } = this.#options;
    using _slot = await installLimiter.take(caller, work);
    const app = await finder.find(id, caller);
    const backup = request.backup ?? backUpBeforeUpgrade();
    const before = async (): Promise<void> => {
      if (!backup) return;
      const first = withStepNumbers(work, firstSteps.upgrade(backup), { isComplete: false });
      first.onProgress?.({ step: "backup", message: `Backing up ${app.name} ${app.version} first` });
      await this.beforeUpgrade.get()(app, caller, first);
    };
    return await cancelably(work, (within) => this.#upgrade(app, { ...request, backup }, before, within));
  }

  async #upgrade(
    app: AppRecord,
    request: UpgradeRequest & { backup: boolean },
    before: () => Promise<void>,
    work: WorkOptions,
  ): Promise<UpgradeResult> {
    const { operations } = this.#options;
    try {
      await this.#requireReady(app, request);
    } catch (error) {
      // Check for the version before requiring a stop.
      if (await this.#isInstalled(app, request, work)) return upToDate(app);
      throw error;
    }
    await before();
    const operation = await operations.begin({
      appId: app.id,
      kind: "upgrade",
      phase: "fetch" satisfies UpgradePhase,
      detail: { runUid: app.runUid, restart: this.#needsStart(app) },
      cancel: work.cancel,
    });
    try {
      const result = await this.#run(operation, request, work).catch(async (error: unknown) => {
        const afterwards = await this.restore(operation).then(
          () => undefined,
          (failure: unknown) => failure,
        );
        throw describeFailure(app, error, afterwards);
      });
      await this.#restartIfNeeded(operation);
      return result;
    } finally {
      // Not earlier: a recovery sweep would end it at the same time.
      operations.release(operation);
    }
  }

  async #run(
    operation: Operation,
    request: UpgradeRequest & { backup: boolean },
    work: WorkOptions,
  ): Promise<UpgradeResult> {
    const { operations, registry, packages, settings, runtimeOf, runnable, now, log } = this.#options;
    const app = registry.lockedApp(operation);
    // The app may have been started between the first check and the lock.
    await this.#requireReady(app, request);
    await requireDirectory(this.#options, app);
    const first = withStepNumbers(work, firstSteps.upgrade(request.backup), { isComplete: false });
    await using resolved = await packages.resolveUpgrade(app, request.version, app.ownerUid, first);
    if (isSameRelease(app, resolved)) {
      resolved.retain();
      return upToDate(app);
    }
    this.#requireSamePackage(app, resolved);
    const { ownerUid, accepted } = app;
    requireAcknowledgement(resolved, { ...request, ownerUid, accepted, again: "upgrade" });
    await settings.validate(resolved.manifest, app.settings, ownerUid, work.signal);
    const wasUp = this.#isUp(app);
    const restarted = wasUp || operation.detail.restart === true || this.#needsStart(app);
    operation.detail.sameName = app.version === resolved.version;
    await operations.enter(operation, "prepare" satisfies UpgradePhase);
    const plan = upgradePlan(resolved.manifest, { backup: request.backup, trial: canTestVersion(app) });
    const numbered = withStepNumbers(work, plan);
    const release = await this.#switch.prepare(app, resolved, numbered);
    operation.detail.restart = restarted;
    operation.detail.rolls = wasUp && (await this.#switch.canRoll(app, release));
    if (wasUp && !operation.detail.rolls) requireStop(app, release, request);
    await operations.enter(operation, "switch" satisfies UpgradePhase);
    if (!operation.detail.rolls) {
      if (wasUp) numbered.onProgress?.({ step: "stop", message: `Stopping ${app.name} ${app.version}` });
      await runtimeOf(app).stop(runnable(app));
    }
    await this.#switch.switch(app, release, { ...operation.detail, ...request }, numbered);
    // This write commits the new version; a client that disconnects changes nothing from here on.
    work.signal?.throwIfAborted();
    await operations.enter(operation, "done" satisfies UpgradePhase, [
      patchApp(app.id, {
        origin: resolved.origin,
        version: resolved.version,
        manifest: release.manifest,
        accepted: acknowledgementOf(resolved),
        changedAtMs: now(),
        state: "STOPPED",
        stateReason: "",
        failure: null,
      }),
    ]);
    resolved.retain();
    try {
      await this.#rollback.removeUnused(operation);
    } catch (error) {
      // The upgrade is committed, but the old version is still on the disk. The next upgrade removes it.
      log.warn({ err: error, appId: app.id }, "failed to remove the version before an upgrade");
    }
    return { id: app.id, upToDate: false, from: app.version, to: resolved.version, restarted };
  }

  /**
   * Ends an upgrade in any phase. Before `done` the old version is moved back; from then on its rest is removed. An app that ran is
   * started again. Recovery uses it, too; calling it twice is harmless.
   */
  async restore(operation: Operation): Promise<void> {
    await this.#rollback.removeUnused(operation);
    await this.#restartIfNeeded(operation);
  }

  /** Ends the operation, and starts an app that was stopped for it. @throws SvcError `start_failed` */
  async #restartIfNeeded(operation: Operation): Promise<void> {
    const { operations, registry, lifecycle } = this.#options;
    const { restart } = operation.detail;
    if (restart === true && registry.get(operation.appId) !== undefined)
      await lifecycle.finishStart(operation);
    else await operations.end(operation);
  }

  /**
   * @throws SvcError `app_running` if the app would have to be stopped and the request does not allow it; `unavailable`
   *   while its state is unknown
   */
  async #requireReady(app: AppRecord, { stopApp }: UpgradeRequest): Promise<void> {
    const { state = "STOPPED", reason = "" } = this.#options.runtimeOf(app).status(app.id) ?? {};
    if (state === "UNKNOWN")
      throw new SvcError("unavailable", `app "${app.id}" cannot be upgraded now: ${reason}`);
    if (state === "STOPPED" || state === "FAILED" || state === "CRASHED") return;
    if (isUp(state) && (stopApp || (await this.#switch.supportsRolling(app)))) return;
    throw new SvcError("app_running", `app "${app.id}" is running; stop it before upgrading it`);
  }

  /**
   * Whether the app already has the target version; false if that is unknown.
   * @throws SvcError if there is no such version
   */
  async #isInstalled(app: AppRecord, { version }: UpgradeRequest, work: WorkOptions): Promise<boolean> {
    try {
      const { packages } = this.#options;
      await using resolved = await packages.resolveUpgrade(app, version, app.ownerUid, work);
      return isSameRelease(app, resolved);
    } catch (error) {
      work.signal?.throwIfAborted();
      // A stop would not help.
      if (error instanceof SvcError && ["not_found", "invalid_argument"].includes(error.code)) throw error;
      return false;
    }
  }

  #isUp(app: AppRecord): boolean {
    return isUp(this.#options.runtimeOf(app).status(app.id)?.state);
  }

  #needsStart(app: AppRecord): boolean {
    return needsStart(app, this.#options.runtimeOf(app).status(app.id));
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

function upToDate({ id, version }: AppRecord): UpgradeResult {
  return { id, upToDate: true, from: version, to: version, restarted: false };
}

/**
 * The error of a failed upgrade, which also says which version the app has now.
 * @param afterwards why the old version could not be restored or started again
 */
function describeFailure({ id, version }: AppRecord, error: unknown, afterwards: unknown): unknown {
  if (afterwards !== undefined && !(afterwards instanceof SvcError)) return afterwards;
  if (!(error instanceof SvcError)) return error;
  const { reason, message, payload, cause } = error as SvcError;
  if (userReasons.has(reason)) return error;
  const stays = `${message}; app "${id}" stays at ${version}`;
  const why = afterwards === undefined ? "" : explainFailedStart(id, afterwards as SvcError);
  const explained = why === "" ? stays : `${stays}, which could not be started again: ${why}`;
  return new SvcError(reason, explained, { payload, cause });
}

/** Reasons with which nothing was tried yet, because the user must decide or do something first. */
const userReasons: ReadonlySet<string> = new Set(["license_required", "app_running"]);

/** Files of a directory may change without a new version, so it is installed again unless a source lists its version. */
function isSameRelease(app: AppRecord, { origin, version }: ResolvedPackage): boolean {
  if (origin.kind === "git") return origin.commit === app.origin.commit;
  return origin.source !== "" && version === app.version;
}
