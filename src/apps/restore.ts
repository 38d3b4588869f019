/**
 * An app's files from a backup, put in place of what it has, or back again as they were. What is restored is laid out and
 * checked beside the app; each tree is then swapped by two renames, and only the last write makes it the app's.
 */
import { join } from "node:path";
import type { Readable } from "node:stream";
import { invalidField, SvcError } from "../errors.ts";
import type { Identity } from "../identity/identity.ts";
import type { OwnedTree } from "../identity/owned-tree.ts";
import { isInside } from "../lib/is-inside.ts";
import type { JsonObject } from "../lib/json.ts";
import type { Manifest } from "../packages/manifest.ts";
import type { PackageOrigin } from "../packages/resolved-package.ts";
import { appTree } from "../runtimes/app-tree.ts";
import { isUp, type AppRuntime, type EngineVolumes, type RunnableApp } from "../runtimes/runtime.ts";
import type { Acknowledgement } from "./acknowledgement.ts";
import { newApp, patchApp, type AppRecord, type NewApp } from "./app-record.ts";
import type { AppCaller } from "./app-registry.ts";
import type { AppSettings } from "./app-settings.ts";
import type { FreePorts } from "./free-ports.ts";
import type { Installer } from "./install.ts";
import type { Lifecycle } from "./lifecycle.ts";
import type { Operation } from "./operations.ts";
import type { WorkOptions } from "./progress.ts";
import { rebuildCopy, runStep } from "./release.ts";
import type { AppsContext } from "./apps-context.ts";
import { isMissed } from "./wanted-state.ts";
import { volumeTree } from "./backed-up-trees.ts";

/** What a backup says of the app beside its files. */
export interface AppImage {
  name: string;
  origin: PackageOrigin;
  version: string;
  manifest: Manifest;
  settings: JsonObject;
  accepted: Acknowledgement;
  /** Paths beneath the app's directory that it holds. */
  trees: readonly string[];
  /** Volumes of the container engine that it holds, by their names within the app. */
  volumes: readonly string[];
}

/** Where the trees of a backup are laid out, as whom. */
export interface LayOutPlace {
  identity: Identity;
  root: string;
  /** A directory beneath the root for each tree; they are there. */
  into: readonly string[];
  /** Lays a volume of the container engine out. */
  takeVolume: (key: string, tar: Readable) => Promise<void>;
}

/** Lays the trees of a backup out; throws when anything about it is not right. */
export type LayOut = (place: LayOutPlace, work: WorkOptions) => Promise<void>;

export interface RestorerOptions extends AppsContext {
  installer: Installer;
  freePorts: FreePorts;
  lifecycle: Lifecycle;
  settings: AppSettings;
}

export interface RestoreOptions {
  /** Stops an app that runs, and starts it again. */
  stopApp: boolean;
  /** Only these paths, with all beneath; the rest of the app stays as it is, its version and settings too. */
  paths: readonly string[];
}

export interface NewAppOptions {
  /** The id that it gets when that is free. */
  baseId: string;
  /** Display name; what the backup says when empty. */
  name: string;
  ownerUid: number;
  caller: AppCaller;
  /** It comes beside the one that the backup was taken of: ports that are taken give way to free ones, as with a clone. */
  isCopy: boolean;
}

/** How far a restore is. Before `swap` nothing has changed; from `done` on what was restored is the app's. */
export type RestorePhase = "stage" | "swap" | "done";

const staged = (tree: string): string => `${tree}.restored`;
const setAside = (tree: string): string => `${tree}.replaced`;

export class Restorer {
  readonly #options: RestorerOptions;

  constructor(options: RestorerOptions) {
    this.#options = options;
  }

  /**
   * Restores into an app that is there; one that ran runs again afterwards.
   * @throws SvcError `app_running` without `stopApp`, `app_busy`, `build_failed` for the package's own restore step, what
   *   `layOut` throws; the app is as it was then. `start_failed` when it does not start with what was restored.
   */
  async restore(
    app: AppRecord,
    image: AppImage,
    layOut: LayOut,
    options: RestoreOptions,
    work: WorkOptions,
  ): Promise<{ restarted: boolean }> {
    const { operations, runtimeOf } = this.#options;
    this.requireRestorable(app, image, options);
    const { volumes } = touched(image, options.paths);
    const restart = this.#isUp(app) || isMissed(app, runtimeOf(app).status(app.id));
    const operation = await operations.begin({
      appId: app.id,
      kind: "restore",
      phase: "stage" satisfies RestorePhase,
      detail: { runUid: app.runUid, trees: [...image.trees], volumes, restart },
      cancel: work.cancel,
    });
    try {
      await this.#run(operation, image, layOut, options, work).catch(async (error: unknown) => {
        await this.settle(operation);
        throw error;
      });
      await this.settle(operation);
    } finally {
      // Not before: a sweep would settle it, too, at the same time.
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
    volumesOf(this.#options.runtimeOf(app), touched(image, paths).volumes);
    if (!stopApp && this.#isUp(app)) {
      const message = `app "${app.id}" is running; stop it before restoring it`;
      throw new SvcError("app_running", message);
    }
  }

  /**
   * Makes an app of a backup, stopped. Resolves with its id.
   * @throws SvcError what `layOut` throws, `invalid_request` for settings that its own manifest refuses; nothing stays then.
   */
  async restoreAsNew(
    image: AppImage,
    layOut: LayOut,
    { baseId, name, ownerUid, caller, isCopy }: NewAppOptions,
    work: WorkOptions,
  ): Promise<string> {
    const { installer, freePorts, settings, identities, runUidOf, now } = this.#options;
    const { manifest, origin, version, accepted, trees } = image;
    const runUid = await runUidOf(ownerUid);
    installer.requireRuntime(manifest);
    await settings.validate(manifest, image.settings, ownerUid);
    using chosen = isCopy ? await freePorts.choose(manifest, image.settings) : undefined;
    for (const message of chosen?.notes ?? []) work.onProgress?.({ step: "ports", message });
    const values = chosen?.settings ?? image.settings;
    const nowMs = now();
    const describe = (id: string): NewApp =>
      newApp(
        {
          ...{ id, ownerUid, runUid, origin, version, manifest, accepted, settings: values },
          name: name === "" ? image.name : name,
          runtime: manifest.runtime.kind,
          packageId: manifest.id,
        },
        nowMs,
      );
    // Awaited, so that nobody else is given the ports before they are written down.
    return await installer.create(
      { caller, ownerUid, kind: "install", baseId, describe },
      async (app) => {
        const [identity, tree] = [
          await identities.as(app.uid),
          await identities.tree(app.directory, app.uid),
        ];
        await tree.makeDirs(trees);
        const volumes = volumesOf(this.#options.runtimeOf(describe(app.id)), image.volumes);
        const takeVolume: LayOutPlace["takeVolume"] = async (key, tar) =>
          volumes?.create(app.id, key, tar, work.signal);
        await layOut({ identity, root: app.directory, into: trees, takeVolume }, work);
        await rebuildCopy(this.#options, app, work);
        await this.#complete(tree, app, work);
      },
      work,
    );
  }

  /**
   * Ends a restore wherever it is: before `done` what was set aside is put back, from then on it is removed; an app that
   * ran is started again. Also what recovery does with one that was left behind; doing it twice does no harm.
   */
  async settle(operation: Operation): Promise<void> {
    const { operations, registry, identities, paths, lifecycle } = this.#options;
    const { runUid = identities.selfUid, trees = [], restart } = operation.detail;
    const { volumes = [], kept = [] } = operation.detail;
    const app = registry.get(operation.appId);
    const phase = operation.phase as RestorePhase;
    const tree = await identities.tree(paths.appDir(operation.appId), runUid);
    for (const path of trees) {
      if (phase === "swap") await tree.putBack(setAside(path), path);
      await tree.remove(staged(path));
      if (phase === "done") await tree.remove(setAside(path));
    }
    // Those of an app that is gone went with it.
    const engine = app && volumesOf(this.#options.runtimeOf(app), volumes);
    if (phase === "swap") for (const key of kept) await engine?.putBack(operation.appId, key);
    for (const key of volumes) await engine?.settle(operation.appId, key);
    if (phase !== "stage" && restart === true && app !== undefined) await lifecycle.finishStart(operation);
    else await operations.end(operation);
  }

  async #run(
    operation: Operation,
    image: AppImage,
    layOut: LayOut,
    options: RestoreOptions,
    work: WorkOptions,
  ): Promise<void> {
    const { operations, registry, identities, paths, settings, runtimeOf, runnable, now } = this.#options;
    const app = registry.held(operation);
    // Somebody may have started it between the first look and the lock.
    this.requireRestorable(app, image, options);
    const isWhole = options.paths.length === 0;
    const { origin, version, manifest, accepted } = isWhole ? image : app;
    const next = {
      ...app,
      origin,
      version,
      manifest,
      accepted,
      ...(isWhole && { settings: image.settings }),
    };
    await settings.validate(next.manifest, next.settings, app.ownerUid);
    const identity = await identities.as(app.runUid);
    const tree = await identities.tree(paths.appDir(app.id), app.runUid);
    // Whoever has lost all of it is the one who restores.
    if (!(await tree.isThere())) await tree.create();
    for (const path of image.trees) {
      await tree.remove(staged(path));
      await tree.makeDirs([staged(path)]);
      if (!isWhole) await copyRest(identity, tree, path, options.paths, work);
    }
    const into = image.trees.map(staged);
    const runtime = runtimeOf(app);
    const parts = touched(image, options.paths);
    const volumes = volumesOf(runtime, parts.volumes);
    const takeVolume: LayOutPlace["takeVolume"] = async (key, tar) =>
      volumes?.stage(app.id, key, tar, work.signal);
    await layOut({ identity, root: tree.root, into, takeVolume }, work);
    work.signal?.throwIfAborted();
    await operations.enter(operation, "swap" satisfies RestorePhase);
    await runtime.stop(runnable(app));
    for (const path of parts.trees) {
      // There is always one, so that what is put back is what was there.
      await tree.makeDirs([path]);
      await tree.rename(path, setAside(path));
      await tree.rename(staged(path), path);
    }
    for (const key of parts.volumes) {
      await volumes?.keep(app.id, key, work.signal);
      operation.detail.kept = [...(operation.detail.kept ?? []), key];
      await operations.enter(operation, "swap" satisfies RestorePhase);
      await volumes?.swap(app.id, key, work.signal);
    }
    await this.#complete(tree, runnable(next), work);
    await runtimeOf(next).prepare(runnable(next), work);
    await operations.enter(operation, "done" satisfies RestorePhase, [
      patchApp(app.id, {
        ...{ origin, version, manifest, accepted, settings: next.settings },
        changedAtMs: now(),
        state: "STOPPED",
        stateReason: "",
        failure: null,
      }),
    ]);
  }

  /** What an app has beside what was backed up, and what its package does after a restore. */
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
 * What a restore of these paths swaps; everything when there are none.
 * @throws SvcError `invalid_request` for a path in a volume of the engine, of which only all can be put back
 */
function touched(
  image: Pick<AppImage, "trees" | "volumes">,
  paths: readonly string[],
): { trees: string[]; volumes: string[] } {
  if (paths.length === 0) return { trees: [...image.trees], volumes: [...image.volumes] };
  for (const key of image.volumes) {
    const tree = volumeTree(key);
    const within = paths.find((path) => path !== tree && isInside(tree, path));
    if (within === undefined) continue;
    const message = `of a volume of the container engine only all can be restored: "${tree}" and not "${within}"`;
    throw invalidField("paths", message);
  }
  return {
    trees: image.trees.filter((tree) => paths.some((path) => isInside(tree, path))),
    volumes: image.volumes.filter((key) => paths.includes(volumeTree(key))),
  };
}

/** @throws SvcError `package_invalid` for volumes of the engine where the runtime can have none */
function volumesOf(runtime: AppRuntime, wanted: readonly string[]): EngineVolumes | undefined {
  if (wanted.length === 0) return undefined;
  if (runtime.volumes !== undefined) return runtime.volumes;
  const message = "the backup has volumes of the container engine, and is of an app that can have none";
  throw new SvcError("package_invalid", message);
}

/** All of a tree but the paths that are going to be restored. */
async function copyRest(
  identity: Identity,
  { root }: OwnedTree,
  path: string,
  chosen: readonly string[],
  { signal }: WorkOptions,
): Promise<void> {
  const inTree = chosen.filter((each) => isInside(path, each));
  if (inTree.length === 0 || inTree.includes(path)) return;
  if ((await identity.stat(root, path)) === undefined) return;
  const exclude = inTree.map((each) => each.slice(path.length + 1));
  const target = { root, path: staged(path) };
  await identity.copyTree({ root, path }, target, { exclude, signal });
}
