/** What apps use beside the disk: ports, stacks, statistics. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { AppStatsSchema, PortReportSchema } from "../../gen/svc/v1/app_pb.ts";
import type { RuntimeStack, RuntimeUsage } from "../runtimes/runtime.ts";
import type { AppRecord } from "./app-record.ts";
import type { AppsContext } from "./apps-context.ts";

export class AppReports {
  readonly #options: AppsContext;

  constructor(options: AppsContext) {
    this.#options = options;
  }

  async portReport(apps: readonly AppRecord[]): Promise<MessageInitShape<typeof PortReportSchema>> {
    const ports = await this.#options.ports.report(apps);
    return { apps: apps.map(({ id, name }, at) => ({ id, name, ports: ports[at] ?? [] })) };
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

  /** What the running ones of these apps use, by id. */
  async usages(apps: readonly AppRecord[], signal?: AbortSignal): Promise<Map<string, RuntimeUsage>> {
    const { runtimes, runtimeOf, runnable } = this.#options;
    const sampled = await Promise.all(
      runtimes.map((runtime) =>
        runtime.stats(apps.filter((app) => runtimeOf(app) === runtime).map(runnable), signal),
      ),
    );
    return new Map(sampled.flatMap((usages) => [...usages]));
  }

  /** The running ones of these apps, all sampled in one window of about 500 ms. */
  async stats(
    apps: readonly AppRecord[],
    signal?: AbortSignal,
  ): Promise<MessageInitShape<typeof AppStatsSchema>[]> {
    const usageOf = await this.usages(apps, signal);
    const sampledAt = timestampFromMs(this.#options.now());
    return apps.flatMap(({ id }) => {
      const usage = usageOf.get(id);
      return usage === undefined ? [] : [{ id, sampledAt, ...statsOf(usage) }];
    });
  }
}

export function statsOf(usage: RuntimeUsage): MessageInitShape<typeof AppStatsSchema> {
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
