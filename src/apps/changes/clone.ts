/** Makes a full copy of an app under another name. The copy is stopped. */
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { SvcError } from "../../errors.ts";
import { resolvePorts, type ResolvedPort } from "../../packages/settings/settings.ts";
import { isUp } from "../../runtimes/runtime-status.ts";
import type { RunnableApp } from "../../runtimes/runnable-app.ts";
import { requireAccess, requireDirectory } from "../records/app-directory.ts";
import { newApp, type AppRecord, type NewApp } from "../records/app-record.ts";
import { appTree } from "../../runtimes/app-tree.ts";
import type { AppCaller } from "../records/app-registry.ts";
import type { FreePorts } from "../ports/free-ports.ts";
import type { Installer } from "./install.ts";
import { cancelably, type WorkOptions } from "../../work/progress.ts";
import { withStepNumbers } from "../../work/step-numbers.ts";
import { rebuildCopy } from "./release.ts";
import { clonePlan } from "./step-plans.ts";
import type { AppsContext } from "../apps-context.ts";

export interface CloneRequest {
  /** Name and ID of the copy; empty for the next free `<id>-N`. */
  readonly name: string;
  /** Whether the original and the copy may share what is not copied. */
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

/** The parts that a clone copies; its logs start empty. */
const copiedTrees = [appTree.repo, appTree.data, appTree.volumes];

/** The message of the step. @param part of an app's directory */
function copying(part: string): string {
  return `Copying ${part === appTree.repo ? "the package" : part}`;
}

export class Cloner {
  readonly #options: ClonerOptions;

  constructor(options: ClonerOptions) {
    this.#options = options;
  }

  /**
   * @throws SvcError `app_busy`, `disk_full`, `volumes_shared`; no part of the copy remains then.
   */
  clone(app: AppRecord, request: CloneRequest, caller: AppCaller, work: WorkOptions): Promise<CloneResult> {
    const numbered = withStepNumbers(work, clonePlan(app.manifest));
    return cancelably(numbered, (within) => this.#clone(app, request, caller, within));
  }

  async #clone(
    app: AppRecord,
    { name, shareVolumes }: CloneRequest,
    caller: AppCaller,
    work: WorkOptions,
  ): Promise<CloneResult> {
    const { operations, installer, freePorts, runtimeOf, runnable, now } = this.#options;
    // The lock prevents an upgrade or removal of the original during the clone.
    const lock = await operations.begin({
      appId: app.id,
      kind: "clone",
      phase: "copy",
      detail: { lockOnly: true },
      cancel: work.cancel,
    });
    try {
      await requireDirectory(this.#options, app);
      await requireAccess(this.#options, app, "cloned");
      if (!shareVolumes) rejectShared(app, (await runtimeOf(app).data?.sharedData(app.id)) ?? []);
      const ownerUid = newOwnerOf(app.ownerUid, caller);
      const runUid = ownerUid === app.ownerUid ? app.runUid : await this.#options.runUidOf(ownerUid);
      if (runUid !== app.runUid) await this.#requireNoVolumes(app);
      const sourceRunning = isUp(runtimeOf(app).status(app.id)?.state);
      let copiedBytes = 0;
      const nowMs = now();
      const { rowVersion: _, ...source } = app;
      using chosen = await freePorts.choose(app.manifest, app.settings, { ownerUid, uid: runUid });
      for (const message of chosen.notes) work.onProgress?.({ step: "ports", message });
      const { settings } = chosen;
      // The copy has its own volumes and networks. Another owner may not mount the directories.
      const isSameOwner = ownerUid === app.ownerUid;
      const adopted = isSameOwner && app.adopted ? { ...app.adopted, volumes: {}, networks: {} } : null;
      const owned = { ownerUid, runUid, settings, adopted };
      const describe = (copyId: string, copyName: string): NewApp =>
        newApp({ ...source, ...owned, id: copyId, name: copyName }, nowMs);
      const made = await installer.create(
        { caller, ownerUid, kind: "clone", phase: "create", baseId: app.id, name, defaultName: "", describe },
        async (copy) => {
          copiedBytes =
            runUid === app.runUid
              ? await this.#copy(app, copy.directory, work)
              : await this.#copyToOther(app, copy, work);
          copiedBytes += (await runtimeOf(app).data?.copyData(runnable(app), copy, work)) ?? 0;
          await rebuildCopy(this.#options, copy, work);
        },
        work,
      );
      const ports = resolvePorts(app.manifest, settings);
      return { id: made.id, name: made.name, copiedBytes, sourceRunning, ports };
    } finally {
      await operations.end(lock);
    }
  }

  async #copy(app: AppRecord, to: string, { signal, onProgress }: WorkOptions): Promise<number> {
    const { userHelpers, paths } = this.#options;
    const from = await userHelpers.tree(paths.appDir(app.id), app.runUid);
    const target = await userHelpers.tree(to, app.runUid);
    let doneBytes = 0;
    for (const part of copiedTrees) {
      doneBytes += await from.copy(part, target, part, {
        signal,
        onProgress: (progress) =>
          onProgress?.({
            step: "copy",
            message: copying(part),
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

  /** Each side works as its own user: the old owner packs the files, the new owner unpacks them. */
  async #copyToOther(
    app: AppRecord,
    { directory, uid }: RunnableApp,
    { signal, onProgress }: WorkOptions,
  ): Promise<number> {
    const { userHelpers, paths } = this.#options;
    const from = await userHelpers.tree(paths.appDir(app.id), app.runUid);
    const target = await userHelpers.tree(directory, uid);
    const [reader, writer] = [await userHelpers.as(app.runUid), await userHelpers.as(uid)];
    await target.makeDirs([...copiedTrees, appTree.logs]);
    let copiedBytes = 0;
    for (const part of copiedTrees) {
      if (!(await from.has(part))) continue;
      onProgress?.({ step: "copy", message: copying(part), doneBytes: BigInt(copiedBytes) });
      const cwd = { root: from.root, path: part };
      const [packed, abort] = [new PassThrough(), new AbortController()];
      const either = AbortSignal.any([...(signal ? [signal] : []), abort.signal]);
      // Without set-user-ID bits, which would let the old owner run programs as the new one.
      const argv = ["tar", "--create", "--mode=ug-s", "--file=-", "."];
      const packing = reader
        .runCommand(argv, { cwd, stdout: packed, signal: either })
        .then(({ exitCode, stderr }) => {
          if (exitCode !== 0)
            throw new SvcError("not_possible", `${part} of "${app.id}" cannot be read: ${stderr.trim()}`);
          packed.end();
        });
      const unpacking = writer.extractTar(target.root, part, packed, { signal: either, maxBytes: Infinity });
      try {
        await Promise.all([packing, unpacking]);
      } catch (error) {
        abort.abort(error);
        await Promise.allSettled([packing, unpacking]);
        throw error;
      }
      copiedBytes += (await writer.measure(target.root, [part], { signal })).sizes[0] ?? 0;
    }
    return copiedBytes;
  }

  /** @throws SvcError `not_possible` if the app has engine volumes, because their files keep their owner */
  async #requireNoVolumes(app: AppRecord): Promise<void> {
    const { own = [] } = (await this.#options.runtimeOf(app).volumes?.list(app.id)) ?? {};
    if (own.length === 0) return;
    throw new SvcError(
      "not_possible",
      `app "${app.id}" cannot be cloned for another user: its volumes ${own.join(", ")} keep files of their owner; clone it without sudo`,
    );
  }
}

/** The owner of a clone: the invoking user if root clones through sudo, else the owner of the original. */
export function newOwnerOf(originalOwnerUid: number, caller: Pick<AppCaller, "uid" | "ownerUid">): number {
  return caller.ownerUid === caller.uid ? originalOwnerUid : caller.ownerUid;
}

/** @throws SvcError `volumes_shared` if there are shared volumes or adopted paths */
function rejectShared({ id, adopted }: AppRecord, volumes: readonly string[]): void {
  const paths = (adopted?.binds ?? []).map((path) => join(adopted?.directory ?? "", path));
  const shared = [
    ...(volumes.length > 0 ? [`volumes with a driver or a name of their own (${volumes.join(", ")})`] : []),
    ...(paths.length > 0 ? [`adopted paths (${paths.join(", ")})`] : []),
  ];
  if (shared.length === 0) return;
  throw new SvcError(
    "volumes_shared",
    `app "${id}" and its copy would both use data that svc does not copy: ${shared.join(", and ")}; allow that with share_volumes`,
  );
}
