/** Disk usage of apps. A problem with one app does not hide the others. */
import { statfs } from "node:fs/promises";
import { join } from "node:path";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { AppDiskSchema, DiskReportSchema } from "../../../gen/svc/v1/app_pb.ts";
import { SvcError } from "../../errors.ts";
import type { UserHelper } from "../../run-as/user-helper.ts";
import { mapBounded } from "../../lib/map-bounded.ts";
import { appTree } from "../../runtimes/app-tree.ts";
import type { AppRecord } from "./app-record.ts";
import type { AppCaller } from "./app-registry.ts";
import type { AppsContext } from "../apps-context.ts";
import { HelperWatch } from "../lifecycle/helper-watch.ts";
import { isReadable } from "./unreadable-app.ts";

type AppDisk = MessageInitShape<typeof AppDiskSchema>;

/** Maximum users whose trees are measured at once, so that a report over many apps does not use the whole disk bandwidth. */
const usersAtOnce = 4;

/** Bytes of an app's directories. */
interface TreeSizes {
  repositoryBytes: number;
  dataBytes: number;
  volumes: { name: string; sizeBytes: number }[];
  /** The reason why a part of the usage was not measured. */
  problem: string | undefined;
}

export class DiskReports {
  readonly #options: AppsContext;

  constructor(options: AppsContext) {
    this.#options = options;
  }

  /** Allocated bytes, measured now as the app's user. */
  async disk(app: AppRecord, signal?: AbortSignal): Promise<AppDisk> {
    const [row = { id: app.id, name: app.name }] = await this.#rowsOf(app.runUid, [app], signal);
    return row;
  }

  /** The footprints of the caller's apps, largest first, and the filesystem of the app store. */
  async report(caller: AppCaller, signal?: AbortSignal): Promise<MessageInitShape<typeof DiskReportSchema>> {
    const { packages, registry } = this.#options;
    const cacheBytes = await packages.cacheBytes(caller.root ? undefined : caller.uid);
    const apps = registry.visible(caller);
    // The owner of a damaged app's files is unknown.
    const [known, damaged] = [apps.filter(isReadable), apps.filter((app) => !isReadable(app))];
    const users = [...Map.groupBy(known, (app) => app.runUid)];
    const rows = await mapBounded(users, usersAtOnce, ([uid, own]) => this.#rowsOf(uid, own, signal));
    const { bsize, blocks, bfree, bavail } = await statfs(this.#options.paths.appsDir, { bigint: true });
    return {
      apps: [...rows.flat(), ...damaged.map((app) => rowOf(app, nothing(app.stateReason)))].toSorted((a, b) =>
        Number((b.totalBytes ?? 0n) - (a.totalBytes ?? 0n)),
      ),
      filesystem: {
        sizeBytes: blocks * bsize,
        usedBytes: (blocks - bfree) * bsize,
        availableBytes: bavail * bsize,
      },
      cacheBytes: BigInt(cacheBytes),
    };
  }

  /** @param apps all of one user */
  async #rowsOf(uid: number, apps: readonly AppRecord[], signal?: AbortSignal): Promise<AppDisk[]> {
    let userHelper: UserHelper;
    try {
      userHelper = await this.#options.userHelpers.as(uid);
    } catch (error) {
      const problem = this.#reasonOf(error, uid);
      return apps.map((app) => rowOf(app, nothing(problem)));
    }
    using watch = new HelperWatch(userHelper);
    const rows: AppDisk[] = [];
    for (const app of apps) rows.push(await this.#row(app, userHelper, watch, signal));
    return rows;
  }

  async #row(
    app: AppRecord,
    userHelper: UserHelper,
    watch: HelperWatch,
    signal: AbortSignal | undefined,
  ): Promise<AppDisk> {
    const { runtimeOf, runnable } = this.#options;
    const [trees, beside] = await Promise.allSettled([
      watch.during((ending) => this.#measure(app, userHelper, ending), signal),
      runtimeOf(app).images?.disk(runnable(app), signal),
    ]);
    signal?.throwIfAborted();
    const sizes = trees.status === "fulfilled" ? trees.value : nothing(this.#reasonOf(trees.reason, app.id));
    const own = beside.status === "fulfilled" ? beside.value : undefined;
    const problems = [
      sizes.problem,
      beside.status === "rejected" ? this.#reasonOf(beside.reason, app.id) : undefined,
    ].filter((problem) => problem !== undefined);
    return rowOf(
      app,
      {
        ...sizes,
        volumes: [...sizes.volumes, ...(own?.volumes ?? [])],
        problem: problems.length === 0 ? undefined : problems.join("; "),
      },
      own?.imageBytes,
    );
  }

  async #measure(app: AppRecord, userHelper: UserHelper, signal: AbortSignal): Promise<TreeSizes> {
    const { paths } = this.#options;
    const { volumes } = app.manifest;
    const volumePaths = volumes.map((volume) => join(appTree.volumes, volume.path));
    const { repo: current, previousRepo: previous, nextRepo: next } = appTree;
    const own = [current, previous, next, appTree.data, appTree.previousData, appTree.logs];
    const [tree, run] = await Promise.all([
      userHelper.measure(paths.appDir(app.id), [...own, ...volumePaths], { signal }),
      userHelper.measure(paths.appRunDir(app.id), ["."], { signal }),
    ]);
    const [repo = 0, oldRepo = 0, newRepo = 0, data = 0, previousData = 0, logs = 0, ...volumeSizes] =
      tree.sizes;
    return {
      repositoryBytes: repo + oldRepo + newRepo,
      dataBytes: data + previousData + logs + (run.sizes[0] ?? 0),
      volumes: volumes.map(({ name }, at) => ({ name, sizeBytes: volumeSizes[at] ?? 0 })),
      problem:
        tree.isComplete && run.isComplete
          ? undefined
          : `user "${userHelper.user.name}" may not read some directories of the app`,
    };
  }

  /** The text for an error. Internal errors are logged instead of shown. */
  #reasonOf(error: unknown, subject: string | number): string {
    if (error instanceof SvcError) return error.message;
    this.#options.log.warn({ err: error, subject }, "failed to measure an app");
    return "the disk usage could not be measured; see the daemon's log";
  }
}

function nothing(problem: string): TreeSizes {
  return { repositoryBytes: 0, dataBytes: 0, volumes: [], problem };
}

function rowOf(
  { id, name, adopted }: AppRecord,
  { repositoryBytes, dataBytes, volumes, problem }: TreeSizes,
  imageBytes?: number,
): AppDisk {
  const adoptedVolumes = new Set(Object.values(adopted?.volumes ?? {}));
  const volumesBytes = sumOf(volumes);
  const keptBytes = sumOf(volumes.filter((volume) => adoptedVolumes.has(volume.name)));
  const totalBytes = (imageBytes ?? 0) + repositoryBytes + dataBytes + volumesBytes;
  return {
    id,
    name,
    ...(imageBytes !== undefined && { imageBytes: BigInt(imageBytes) }),
    repositoryBytes: BigInt(repositoryBytes),
    dataBytes: BigInt(dataBytes),
    volumesBytes: BigInt(volumesBytes),
    volumes: volumes.map((volume) => ({ name: volume.name, sizeBytes: BigInt(volume.sizeBytes) })),
    totalBytes: BigInt(totalBytes),
    removableBytes: BigInt(totalBytes - keptBytes),
    ...(problem !== undefined && { unknown: problem }),
  };
}

function sumOf(sizes: readonly { readonly sizeBytes: number }[]): number {
  return sizes.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
}
