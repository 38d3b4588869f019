/**
 * Restores an app's files from a backup, or rolls the restore back. The files are unpacked and checked beside the app; each tree is
 * then swapped by two renames, and only the last write commits the restore.
 */
import { join } from "node:path";
import type { Readable } from "node:stream";
import { invalidField, SvcError } from "../../errors.ts";
import type { UserHelper } from "../../run-as/user-helper.ts";
import type { OwnedTree } from "../../run-as/owned-tree.ts";
import { isInside } from "../../lib/paths.ts";
import type { JsonObject } from "../../lib/json.ts";
import type { Manifest } from "../../packages/manifest/manifest.ts";
import type { PackageOrigin } from "../../packages/resolved-package.ts";
import { appTree } from "../../runtimes/app-tree.ts";
import type { AppRuntime } from "../../runtimes/contract.ts";
import type { EngineVolumes } from "../../runtimes/capabilities.ts";
import { isUp } from "../../runtimes/runtime-status.ts";
import type { RunnableApp } from "../../runtimes/runnable-app.ts";
import type { Acknowledgement } from "./acknowledgement.ts";
import { newApp, patchApp, type AppRecord, type NewApp } from "../records/app-record.ts";
import type { AppCaller } from "../records/app-registry.ts";
import type { AppSettings } from "../records/app-settings.ts";
import type { FreePorts } from "../ports/free-ports.ts";
import type { Installer } from "./install.ts";
import type { Lifecycle } from "../lifecycle/lifecycle.ts";
import type { Operation } from "../lifecycle/operations.ts";
import type { RestorePhase } from "../lifecycle/phases.ts";
import type { WorkOptions } from "../../work/progress.ts";
import { withStepNumbers } from "../../work/step-numbers.ts";
import { rebuildCopy, runStep } from "./release.ts";
import { restorePlan } from "./step-plans.ts";
import type { AppsContext } from "../apps-context.ts";
import { needsStart } from "../lifecycle/reconciler.ts";
import { volumeTree } from "../lifecycle/backed-up-trees.ts";

/** The description of the app in a backup. */
export interface AppImage {
  name: string;
  origin: PackageOrigin;
  version: string;
  manifest: Manifest;
  settings: JsonObject;
  /** The licenses and permissions that were accepted for the restored app. */
  accepted: Acknowledgement;
  /** Paths below the app's directory that the backup contains. */
  trees: readonly string[];
  /** Engine volumes that the backup contains, by their names within the app. */
  volumes: readonly string[];
}

/** The destination of a backup's trees, and the user that unpacks them. */
export interface UnpackTarget {
  userHelper: UserHelper;
  root: string;
  /** An existing directory below the root for each tree. */
  into: readonly string[];
  /** Unpacks an engine volume. */
  takeVolume: (key: string, tar: Readable) => Promise<void>;
}

/** Unpacks the trees of a backup; throws if the backup is not valid. */
export type Unpack = (target: UnpackTarget, work: WorkOptions) => Promise<void>;

export interface RestorerOptions extends AppsContext {
  installer: Installer;
  freePorts: FreePorts;
  lifecycle: Lifecycle;
  settings: AppSettings;
}

export interface RestoreOptions {
  /** Stops a running app, and starts it again afterwards. */
  stopApp: boolean;
  /** Only these paths and everything below them; the rest of the app, its version and its settings stay unchanged. */
  paths: readonly string[];
}

export interface NewAppOptions {
  /** The ID if no name is chosen; a number is added if it is taken. */
  baseId: string;
  /** Name and ID of the new app; empty for none. */
  name: string;
  ownerUid: number;
  caller: AppCaller;
  /** True if the original app may still exist: ports in use are replaced by free ones, as in a clone. */
  isCopy: boolean;
}

const staged = (tree: string): string => `${tree}.restored`;
const backupOf = (tree: string): string => `${tree}.replaced`;

export class Restorer {
  readonly #options: RestorerOptions;

  constructor(options: RestorerOptions) {
    this.#options = options;
  }

  /**
   * Restores into an existing app; a running app runs again afterwards.
   * @throws SvcError `app_running` without `stopApp`, `app_busy`, `build_failed` for the package's restore step, errors of
   *   `unpack`; the app is unchanged then. `start_failed` if it does not start with the restored data.
   */
  async restore(
    app: AppRecord,
    image: AppImage,
    unpack: Unpack,
    options: RestoreOptions,
    work: WorkOptions,
  ): Promise<{ restarted: boolean }> {
    const { operations, runtimeOf } = this.#options;
    this.requireRestorable(app, image, options);
    const { volumes } = affectedTrees(image, options.paths);
    const restart = this.#isUp(app) || needsStart(app, runtimeOf(app).status(app.id));
    const operation = await operations.begin({
      appId: app.id,
      kind: "restore",
      phase: "stage" satisfies RestorePhase,
      detail: { runUid: app.runUid, trees: [...image.trees], volumes, restart },
      cancel: work.cancel,
    });
    try {
      const numbered = withStepNumbers(work, restorePlan(image.manifest));
      await this.#run(operation, image, unpack, options, numbered).catch(async (error: unknown) => {
        await this.settle(operation);
        throw error;
      });
      await this.settle(operation);
    } finally {
      // Not earlier: a recovery sweep would settle it at the same time.
      operations.release(operation);
    }
    return { restarted: operation.detail.restart === true };
  }

  /**
   * @throws SvcError `package_invalid` for another package's backup, `app_running`, `invalid_request` for a path in a volume
   *   of the engine
   */
  requireRestorable(app: AppRecord, image: AppImage, { stopApp, paths }: RestoreOptions): void {
    const { manifest } = image;
    if (manifest.id !== app.packageId || manifest.runtime.kind !== app.runtime) {
      const message = `the backup is of "${manifest.id}", and app "${app.id}" is "${app.packageId}"; restore it as a new app`;
      throw new SvcError("package_invalid", message);
    }
    volumesOf(this.#options.runtimeOf(app), affectedTrees(image, paths).volumes);
    if (!stopApp && this.#isUp(app)) {
      const message = `app "${app.id}" is running; stop it before restoring it`;
      throw new SvcError("app_running", message);
    }
  }

  /**
   * Creates a stopped app from a backup. Resolves to its ID.
   * @throws SvcError as `unpack`; `invalid_request` for settings that its manifest rejects. Nothing remains then.
   */
  async restoreAsNew(
    image: AppImage,
    unpack: Unpack,
    { baseId, name, ownerUid, caller, isCopy }: NewAppOptions,
    work: WorkOptions,
  ): Promise<string> {
    const { installer, freePorts, settings, userHelpers, runUidOf, now } = this.#options;
    const { manifest, origin, version, accepted, trees } = image;
    const numbered = withStepNumbers(work, restorePlan(manifest));
    const runUid = await runUidOf(ownerUid);
    installer.requireRuntime(manifest);
    await settings.validate(manifest, image.settings, ownerUid, work.signal);
    using chosen = isCopy
      ? await freePorts.choose(manifest, image.settings, { ownerUid, uid: runUid })
      : undefined;
    for (const message of chosen?.notes ?? []) work.onProgress?.({ step: "ports", message });
    const values = chosen?.settings ?? image.settings;
    const nowMs = now();
    const describe = (id: string, displayedName: string): NewApp =>
      newApp(
        {
          ...{ id, ownerUid, runUid, origin, version, manifest, accepted, settings: values },
          name: displayedName,
          runtime: manifest.runtime.kind,
          packageId: manifest.id,
        },
        nowMs,
      );
    const names = { baseId, name, defaultName: image.name };
    // Awaited, so that other apps cannot get the ports before they are written.
    const { id } = await installer.create(
      { caller, ownerUid, kind: "install", phase: "create", ...names, describe },
      async (app) => {
        const [userHelper, tree] = [
          await userHelpers.as(app.uid),
          await userHelpers.tree(app.directory, app.uid),
        ];
        await tree.makeDirs(trees);
        const volumes = volumesOf(this.#options.runtimeOf(describe(app.id, app.name)), image.volumes);
        const takeVolume: UnpackTarget["takeVolume"] = async (key, tar) =>
          volumes?.create(app.id, key, tar, work.signal);
        await unpack({ userHelper, root: app.directory, into: trees, takeVolume }, numbered);
        await rebuildCopy(this.#options, app, numbered);
        await this.#complete(tree, app, numbered);
      },
      numbered,
    );
    return id;
  }

  /**
   * Ends a restore in any phase. Before `done` the previous data is moved back; from then on it is removed. An app that ran is
   * started again. Recovery uses it, too; calling it twice is harmless.
   */
  async settle(operation: Operation): Promise<void> {
    const { operations, registry, userHelpers, paths, lifecycle } = this.#options;
    const { runUid = userHelpers.selfUid, trees = [], restart } = operation.detail;
    const { volumes = [], kept = [] } = operation.detail;
    const app = registry.get(operation.appId);
    const phase = operation.phase as RestorePhase;
    const tree = await userHelpers.tree(paths.appDir(operation.appId), runUid);
    for (const path of trees) {
      if (phase === "swap") await tree.moveBack(backupOf(path), path);
      await tree.remove(staged(path));
      if (phase === "done") await tree.remove(backupOf(path));
    }
    // The trees of a removed app were removed with it.
    const engine = app && volumesOf(this.#options.runtimeOf(app), volumes);
    if (phase === "swap") for (const key of kept) await engine?.rollBack(operation.appId, key);
    for (const key of volumes) await engine?.settle(operation.appId, key);
    if (phase !== "stage" && restart === true && app !== undefined) await lifecycle.finishStart(operation);
    else await operations.end(operation);
  }

  async #run(
    operation: Operation,
    image: AppImage,
    unpack: Unpack,
    options: RestoreOptions,
    work: WorkOptions,
  ): Promise<void> {
    const { operations, registry, userHelpers, paths, settings, runtimeOf, runnable, now } = this.#options;
    const app = registry.lockedApp(operation);
    // The app may have been started between the first check and the lock.
    this.requireRestorable(app, image, options);
    const isFull = options.paths.length === 0;
    const { origin, version, manifest, accepted } = isFull ? image : app;
    const restored = {
      ...app,
      origin,
      version,
      manifest,
      accepted,
      ...(isFull && { settings: image.settings }),
    };
    await settings.validate(manifest, restored.settings, app.ownerUid, work.signal);
    const userHelper = await userHelpers.as(app.runUid);
    const tree = await userHelpers.tree(paths.appDir(app.id), app.runUid);
    // A missing tree is normal: data loss is why people restore.
    if (!(await tree.exists())) await tree.create();
    for (const path of image.trees) {
      await tree.remove(staged(path));
      await tree.makeDirs([staged(path)]);
      if (!isFull) await copyRest(userHelper, tree, path, options.paths, work);
    }
    const into = image.trees.map(staged);
    const runtime = runtimeOf(app);
    const parts = affectedTrees(image, options.paths);
    const volumes = volumesOf(runtime, parts.volumes);
    const takeVolume: UnpackTarget["takeVolume"] = async (key, tar) =>
      volumes?.stage(app.id, key, tar, work.signal);
    await unpack({ userHelper, root: tree.root, into, takeVolume }, work);
    work.signal?.throwIfAborted();
    await operations.enter(operation, "swap" satisfies RestorePhase);
    await runtime.stop(runnable(app));
    for (const path of parts.trees) {
      // Always created, so that a rollback restores exactly the previous state.
      await tree.makeDirs([path]);
      await tree.rename(path, backupOf(path));
      await tree.rename(staged(path), path);
    }
    for (const key of parts.volumes) {
      await volumes?.backUp(app.id, key, work.signal);
      operation.detail.kept = [...(operation.detail.kept ?? []), key];
      await operations.enter(operation, "swap" satisfies RestorePhase);
      await volumes?.swap(app.id, key, work.signal);
    }
    const current = await runtime.projects?.currentManifest(runnable(restored), work.signal);
    const next = { ...restored, ...(current && { manifest: current.manifest }) };
    await this.#complete(tree, runnable(next), work);
    await runtimeOf(next).prepare(runnable(next), work);
    await operations.enter(operation, "done" satisfies RestorePhase, [
      patchApp(app.id, {
        ...{ origin, version, accepted, manifest: next.manifest, settings: next.settings },
        changedAtMs: now(),
        state: "STOPPED",
        stateReason: "",
        failure: null,
      }),
    ]);
  }

  /** Creates directories that backups do not contain, and runs the package's restore step. */
  async #complete(tree: OwnedTree, app: RunnableApp, work: WorkOptions): Promise<void> {
    const { manifest } = app;
    const volumes = manifest.volumes.map(({ path }) => join(appTree.volumes, path));
    await tree.makeDirs([appTree.data, appTree.logs, appTree.volumes, ...volumes]);
    const step = manifest.backup?.restore;
    if (step !== undefined) await runStep(this.#options, app, step, "restore", work);
  }

  #isUp(app: AppRecord): boolean {
    return isUp(this.#options.runtimeOf(app).status(app.id)?.state);
  }
}

/**
 * The trees that a restore of these paths swaps; all trees if there are no paths.
 * @throws SvcError `invalid_request` for a path in an engine volume, which can only be restored as a whole
 */
function affectedTrees(
  image: Pick<AppImage, "trees" | "volumes">,
  paths: readonly string[],
): { trees: string[]; volumes: string[] } {
  if (paths.length === 0) return { trees: [...image.trees], volumes: [...image.volumes] };
  for (const key of image.volumes) {
    const tree = volumeTree(key);
    const within = paths.find((path) => path !== tree && isInside(tree, path));
    if (within === undefined) continue;
    const message = `volumes of the container engine can only be restored completely: use "${tree}" instead of "${within}"`;
    throw invalidField("paths", message);
  }
  return {
    trees: image.trees.filter((tree) => paths.some((path) => isInside(tree, path))),
    volumes: image.volumes.filter((key) => paths.includes(volumeTree(key))),
  };
}

/** @throws SvcError `package_invalid` for engine volumes if the runtime does not support them */
function volumesOf(runtime: AppRuntime, volumeKeys: readonly string[]): EngineVolumes | undefined {
  if (volumeKeys.length === 0) return undefined;
  if (runtime.volumes !== undefined) return runtime.volumes;
  const message = "the backup has volumes of the container engine, and is of an app that can have none";
  throw new SvcError("package_invalid", message);
}

/** Everything in a tree except the paths to restore. */
async function copyRest(
  userHelper: UserHelper,
  { root }: OwnedTree,
  path: string,
  chosen: readonly string[],
  { signal }: WorkOptions,
): Promise<void> {
  const inTree = chosen.filter((each) => isInside(path, each));
  if (inTree.length === 0 || inTree.includes(path)) return;
  if ((await userHelper.stat(root, path)) === undefined) return;
  const exclude = inTree.map((each) => each.slice(path.length + 1));
  const target = { root, path: staged(path) };
  await userHelper.copyTree({ root, path }, target, { exclude, signal });
}
