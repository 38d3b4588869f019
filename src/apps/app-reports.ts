/** What apps take and use: disk, ports, statistics. */
import { statfs } from "node:fs/promises";
import { join } from "node:path";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type {
  AppDiskSchema,
  AppStatsSchema,
  DiskReportSchema,
  PortReportSchema,
} from "../../gen/svc/v1/app_pb.ts";
import type { Identities } from "../identity/identity.ts";
import { mapBounded } from "../lib/map-bounded.ts";
import { resolvePorts } from "../packages/settings.ts";
import type { AppRuntime, RunnableApp, RuntimeStack, RuntimeUsage } from "../runtimes/runtime.ts";
import type { AppRecord } from "./app-record.ts";
import type { AppPaths } from "./app-paths.ts";
import { appTree } from "../runtimes/app-tree.ts";

export interface AppReportsOptions {
  identities: Identities;
  paths: AppPaths;
  runtimes: readonly AppRuntime[];
  runtimeOf: (app: AppRecord) => AppRuntime;
  runnable: (app: AppRecord) => RunnableApp;
  now: () => number;
}

/** Trees measured at once, so that a report over many apps does not take the disk from everybody else. */
const measuredAtOnce = 4;

export class AppReports {
  readonly #options: AppReportsOptions;

  constructor(options: AppReportsOptions) {
    this.#options = options;
  }

  /** Allocated bytes, measured now with the identity of the app. */
  async disk(app: AppRecord, signal?: AbortSignal): Promise<MessageInitShape<typeof AppDiskSchema>> {
    const { identities, paths, runtimeOf, runnable } = this.#options;
    const identity = await identities.as(app.runUid);
    const volumePaths = app.manifest.volumes.map((volume) => join(appTree.volumes, volume.path));
    const own = [appTree.repo, appTree.previousRepo, appTree.data, appTree.previousData, appTree.logs];
    const options = { ...(signal && { signal }) };
    const [sizes, [runBytes = 0], beside] = await Promise.all([
      identity.measure(paths.appDir(app.id), [...own, ...volumePaths], options),
      identity.measure(paths.appRunDir(app.id), ["."], options),
      runtimeOf(app).images?.disk(runnable(app), signal),
    ]);
    const [repo = 0, previousRepo = 0, data = 0, previousData = 0, logs = 0, ...volumeSizes] = sizes;
    const volumes = [
      ...app.manifest.volumes.map(({ name }, at) => ({ name, sizeBytes: volumeSizes[at] ?? 0 })),
      ...(beside?.volumes ?? []),
    ];
    const repositoryBytes = repo + previousRepo;
    const dataBytes = data + previousData + logs + runBytes;
    const volumesBytes = volumes.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
    const imageBytes = beside?.imageBytes;
    return {
      id: app.id,
      name: app.name,
      ...(imageBytes !== undefined && { imageBytes: BigInt(imageBytes) }),
      repositoryBytes: BigInt(repositoryBytes),
      dataBytes: BigInt(dataBytes),
      volumesBytes: BigInt(volumesBytes),
      volumes: volumes.map(({ name, sizeBytes }) => ({ name, sizeBytes: BigInt(sizeBytes) })),
      totalBytes: BigInt((imageBytes ?? 0) + repositoryBytes + dataBytes + volumesBytes),
    };
  }

  /** The footprints of these apps, largest first, and the filesystem of the app store. */
  async diskReport(
    apps: readonly AppRecord[],
    signal?: AbortSignal,
  ): Promise<MessageInitShape<typeof DiskReportSchema>> {
    const disks = await mapBounded(apps, measuredAtOnce, (app) => this.disk(app, signal));
    const { bsize, blocks, bfree, bavail } = await statfs(this.#options.paths.appsDir, { bigint: true });
    return {
      apps: disks.toSorted((a, b) => Number((b.totalBytes ?? 0n) - (a.totalBytes ?? 0n))),
      filesystem: {
        sizeBytes: blocks * bsize,
        usedBytes: (blocks - bfree) * bsize,
        availableBytes: bavail * bsize,
      },
    };
  }

  portReport(apps: readonly AppRecord[]): MessageInitShape<typeof PortReportSchema> {
    return {
      apps: apps.map((app) => ({
        id: app.id,
        name: app.name,
        ports: resolvePorts(app.manifest, app.settings),
      })),
    };
  }

  /** The compose projects of these apps, by name. */
  async stacks(apps: readonly AppRecord[]): Promise<RuntimeStack[]> {
    const { runtimes, runtimeOf, runnable } = this.#options;
    const found = await Promise.all(
      runtimes.map(async (runtime) => {
        const own = apps.filter((app) => runtimeOf(app) === runtime).map(runnable);
        return own.length === 0 ? [] : ((await runtime.images?.stacks(own)) ?? []);
      }),
    );
    return found.flat().toSorted((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** The running ones of these apps, all sampled in one window of about 500 ms. */
  async stats(
    apps: readonly AppRecord[],
    signal?: AbortSignal,
  ): Promise<MessageInitShape<typeof AppStatsSchema>[]> {
    const { runtimes, runtimeOf, runnable, now } = this.#options;
    const sampled = await Promise.all(
      runtimes.map((runtime) =>
        runtime.stats(apps.filter((app) => runtimeOf(app) === runtime).map(runnable), signal),
      ),
    );
    const sampledAt = timestampFromMs(now());
    const usageOf = new Map(sampled.flatMap((usages) => [...usages]));
    return apps.flatMap(({ id }) => {
      const usage = usageOf.get(id);
      return usage === undefined ? [] : [{ id, sampledAt, ...statsOf(usage) }];
    });
  }
}

function statsOf(usage: RuntimeUsage): MessageInitShape<typeof AppStatsSchema> {
  return {
    ...(usage.cpuPercent !== undefined && { cpuPercent: usage.cpuPercent }),
    ...(usage.processes !== undefined && { processes: usage.processes }),
    ...(usage.memoryBytes !== undefined && { memoryBytes: BigInt(usage.memoryBytes) }),
    ...(usage.diskReadBytes !== undefined && { diskReadBytes: BigInt(usage.diskReadBytes) }),
    ...(usage.diskWrittenBytes !== undefined && { diskWrittenBytes: BigInt(usage.diskWrittenBytes) }),
    ...(usage.networkReceivedBytes !== undefined && {
      networkReceivedBytes: BigInt(usage.networkReceivedBytes),
    }),
    ...(usage.networkSentBytes !== undefined && { networkSentBytes: BigInt(usage.networkSentBytes) }),
  };
}
