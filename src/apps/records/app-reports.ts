/** Ports, images, compose projects and statistics of apps. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { AppStatsSchema, PortReportSchema } from "../../../gen/svc/v1/app_pb.ts";
import type { RuntimeImage, RuntimeStack, RuntimeUsage } from "../../runtimes/capabilities.ts";
import type { ReportedPort } from "../ports/port-holders.ts";
import type { AppFinder } from "./app-finder.ts";
import type { AppRecord } from "./app-record.ts";
import type { AppCaller } from "./app-registry.ts";
import type { AppsContext } from "../apps-context.ts";

export interface AppReportsOptions extends AppsContext {
  finder: AppFinder;
}

export class AppReports {
  readonly #options: AppReportsOptions;

  constructor(options: AppReportsOptions) {
    this.#options = options;
  }

  async ports(app: AppRecord): Promise<ReportedPort[]> {
    const [ports = []] = await this.#options.ports.report([app]);
    return ports;
  }

  async portReport(caller: AppCaller): Promise<MessageInitShape<typeof PortReportSchema>> {
    const apps = this.#options.finder.visible(caller);
    const ports = await this.#options.ports.report(apps);
    return { apps: apps.map(({ id, name }, at) => ({ id, name, ports: ports[at] ?? [] })) };
  }

  /** The image of an app; empty for an app that has none. @param checkRemote ask the registry how fresh it is */
  async image(app: AppRecord, checkRemote: boolean, signal: AbortSignal): Promise<RuntimeImage> {
    const { runtimeOf, runnable } = this.#options;
    return (await runtimeOf(app).images?.image(runnable(app), { checkRemote, signal })) ?? {};
  }

  /** The compose projects of the caller's apps, by name. */
  async stacks(caller: AppCaller): Promise<RuntimeStack[]> {
    const { finder, runtimes, runtimeOf, runnable } = this.#options;
    await finder.untilSettled();
    const apps = finder.visible(caller);
    const found = await Promise.all(
      runtimes.map(async (runtime) => {
        const own = apps.filter((app) => runtimeOf(app) === runtime).map(runnable);
        return own.length === 0 ? [] : ((await runtime.images?.stacks(own)) ?? []);
      }),
    );
    return found.flat().toSorted((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** Usage of all running apps, by ID. */
  async usages(signal: AbortSignal): Promise<ReadonlyMap<string, RuntimeUsage>> {
    const { finder, registry } = this.#options;
    await finder.untilSettled();
    return this.#usagesOf(registry.all(), signal);
  }

  /** Usage of those of these apps that run, by ID. */
  async #usagesOf(apps: readonly AppRecord[], signal?: AbortSignal): Promise<Map<string, RuntimeUsage>> {
    const { runtimes, runtimeOf, runnable } = this.#options;
    const sampled = await Promise.all(
      runtimes.map((runtime) =>
        runtime.usage.stats(apps.filter((app) => runtimeOf(app) === runtime).map(runnable), signal),
      ),
    );
    return new Map(sampled.flatMap((usages) => [...usages]));
  }

  /**
   * Statistics of those of these apps that run, all sampled in one window of about 500 ms.
   * @param ids which of the apps that the caller may see; empty for all of them
   */
  async stats(
    ids: readonly string[],
    caller: AppCaller,
    signal?: AbortSignal,
  ): Promise<MessageInitShape<typeof AppStatsSchema>[]> {
    const { finder } = this.#options;
    await finder.untilSettled();
    const visible = finder.visible(caller);
    const chosen = new Set(ids);
    const apps = ids.length === 0 ? visible : visible.filter((app) => chosen.has(app.id));
    const usageOf = await this.#usagesOf(apps, signal);
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
