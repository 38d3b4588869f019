/** A full copy of an app under the next free `<id>-N`, always stopped (specification 4.1, decisions 14). */
import { SvcError } from "../errors.ts";
import { resolvePorts, type ResolvedPort } from "../packages/settings.ts";
import { isUp } from "../runtimes/runtime.ts";
import { requireDirectory } from "./app-directory.ts";
import { newApp, type AppRecord, type NewApp } from "./app-record.ts";
import { appTree } from "../runtimes/app-tree.ts";
import type { AppCaller } from "./app-registry.ts";
import type { FreePorts } from "./free-ports.ts";
import type { Installer } from "./install.ts";
import type { WorkOptions } from "./progress.ts";
import { rebuildCopy } from "./release.ts";
import type { AppsContext } from "./apps-context.ts";

export interface CloneRequest {
  /** Display name of the copy; its id when empty. */
  readonly name: string;
  /** Whether both may use what is not copied. */
  readonly shareVolumes: boolean;
}

export interface CloneResult {
  id: string;
  name: string;
  copiedBytes: number;
  sourceRunning: boolean;
  ports: ResolvedPort[];
}

export interface ClonerOptions extends AppsContext {
  installer: Installer;
  freePorts: FreePorts;
}

/** What a clone copies; its logs begin empty. */
const copiedTrees = [appTree.repo, appTree.data, appTree.volumes];

export class Cloner {
  readonly #options: ClonerOptions;

  constructor(options: ClonerOptions) {
    this.#options = options;
  }

  /**
   * @throws SvcError `app_busy`, `disk_full`, `volumes_shared`; nothing of the copy stays then.
   */
  async clone(
    app: AppRecord,
    { name, shareVolumes }: CloneRequest,
    caller: AppCaller,
    work: WorkOptions,
  ): Promise<CloneResult> {
    const { operations, installer, freePorts, runtimeOf, runnable, now } = this.#options;
    // Held, so that nobody upgrades or removes what is being copied.
    const lock = await operations.begin({
      appId: app.id,
      kind: "clone",
      phase: "copy",
      detail: { lockOnly: true },
      cancel: work.cancel,
    });
    try {
      await requireDirectory(this.#options, app);
      if (!shareVolumes) refuseShared(app, (await runtimeOf(app).sharedData?.(app.id)) ?? []);
      const sourceRunning = isUp(runtimeOf(app).status(app.id)?.state);
      let copiedBytes = 0;
      const nowMs = now();
      const { rowVersion: _, ...source } = app;
      using chosen = await freePorts.choose(app.manifest, app.settings);
      const { settings } = chosen;
      const describe = (copyId: string): NewApp =>
        newApp({ ...source, settings, id: copyId, name: name === "" ? copyId : name }, nowMs);
      const id = await installer.create(
        // Root may copy anybody's app; the copy stays with the owner of the files.
        { caller, ownerUid: app.ownerUid, kind: "clone", baseId: app.id, describe },
        async (copy) => {
          copiedBytes = await this.#copy(app, copy.directory, work);
          copiedBytes += (await runtimeOf(app).copyData?.(runnable(app), copy, work)) ?? 0;
          await rebuildCopy(this.#options, copy, work);
        },
        work,
      );
      const ports = resolvePorts(app.manifest, settings);
      return { id, name: name === "" ? id : name, copiedBytes, sourceRunning, ports };
    } finally {
      await operations.end(lock);
    }
  }

  async #copy(app: AppRecord, to: string, { signal, onProgress }: WorkOptions): Promise<number> {
    const { identities, paths } = this.#options;
    const from = await identities.tree(paths.appDir(app.id), app.runUid);
    const target = await identities.tree(to, app.runUid);
    let doneBytes = 0;
    for (const part of copiedTrees) {
      doneBytes += await from.copy(part, target, part, {
        signal,
        onProgress: (progress) =>
          onProgress?.({
            step: "copy",
            message: `Copying ${part}`,
            doneBytes: BigInt(doneBytes + progress.doneBytes),
            ...(progress.totalBytes !== undefined && {
              totalBytes: BigInt(doneBytes + progress.totalBytes),
            }),
          }),
      });
    }
    await target.makeDirs([appTree.logs]);
    return doneBytes;
  }
}

/** @throws SvcError `volumes_shared` when there are some */
function refuseShared({ id }: AppRecord, volumes: readonly string[]): void {
  if (volumes.length === 0) return;
  const what = volumes.length === 1 ? "volume" : "volumes";
  const why = "which are not copied as they have a driver or a name of their own";
  throw new SvcError(
    "volumes_shared",
    `app "${id}" and its copy would both use the ${what} ${volumes.join(", ")}, ${why}; allow that with share_volumes`,
  );
}
