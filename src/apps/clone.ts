/** A full copy of an app under the next free `<id>-N`, always stopped (specification 4.1, decisions 14). */
import type { Identities } from "../identity/identity.ts";
import { isUp, type AppRuntime } from "../runtimes/runtime.ts";
import type { AppRecord } from "./app-record.ts";
import type { AppPaths } from "./app-paths.ts";
import { appTree } from "../runtimes/app-tree.ts";
import type { AppRegistry } from "./app-registry.ts";
import type { Installer } from "./install.ts";
import type { Operations } from "./operations.ts";
import type { WorkOptions } from "./progress.ts";

export interface CloneResult {
  id: string;
  name: string;
  copiedBytes: number;
  sourceRunning: boolean;
}

export interface ClonerOptions {
  registry: AppRegistry;
  operations: Operations;
  installer: Installer;
  identities: Identities;
  paths: AppPaths;
  runtimeOf: (app: AppRecord) => AppRuntime;
  now: () => number;
}

/** What a clone copies; its logs begin empty. */
const copiedTrees = [appTree.repo, appTree.data, appTree.volumes];

export class Cloner {
  readonly #options: ClonerOptions;

  constructor(options: ClonerOptions) {
    this.#options = options;
  }

  /**
   * @param name display name of the copy; its id when empty
   * @throws SvcError `app_busy`, `disk_full`; nothing of the copy stays then.
   */
  async clone(app: AppRecord, name: string, work: WorkOptions): Promise<CloneResult> {
    const { operations, installer, registry, now } = this.#options;
    // Held, so that nobody upgrades or removes what is being copied.
    const lock = await operations.begin({
      appId: app.id,
      kind: "clone",
      phase: "copy",
      detail: { lockOnly: true },
    });
    try {
      const sourceRunning = isUp(this.#options.runtimeOf(app).status(app.id)?.state);
      let copiedBytes = 0;
      const nowMs = now();
      const { rowVersion: _, ...source } = app;
      const id = await installer.create(
        // Root may copy anybody's app; the copy stays with the owner of the files.
        (copyId) => ({
          ...source,
          id: copyId,
          name: name === "" ? copyId : name,
          desired: "stopped",
          state: "INSTALLING",
          stateReason: "",
          createdAtMs: nowMs,
          changedAtMs: nowMs,
          startedSettings: null,
          failure: null,
        }),
        "clone",
        app.id,
        async (copy) => {
          copiedBytes = await this.#copy(app, copy.directory, work);
        },
        work,
      );
      return { id, name: name === "" ? id : name, copiedBytes, sourceRunning };
    } finally {
      await operations.end(lock);
      registry.invalidate();
    }
  }

  async #copy(app: AppRecord, to: string, { signal, onProgress }: WorkOptions): Promise<number> {
    const { identities, paths } = this.#options;
    const identity = await identities.as(app.runUid);
    const from = paths.appDir(app.id);
    let doneBytes = 0;
    for (const tree of copiedTrees) {
      if ((await identity.stat(from, tree)) === undefined) continue;
      const { copiedBytes } = await identity.copyTree(
        { root: from, path: tree },
        { root: to, path: tree },
        {
          ...(signal && { signal }),
          onProgress: (progress) =>
            onProgress?.({
              step: "copy",
              message: `Copying ${tree}`,
              doneBytes: BigInt(doneBytes + progress.doneBytes),
              ...(progress.totalBytes !== undefined && {
                totalBytes: BigInt(doneBytes + progress.totalBytes),
              }),
            }),
        },
      );
      doneBytes += copiedBytes;
    }
    await identity.makeDirs(to, [appTree.logs]);
    return doneBytes;
  }
}
