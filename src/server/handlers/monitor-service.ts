/** MonitorService: one domain call per method. */
import { setImmediate as breathe } from "node:timers/promises";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs, timestampMs } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import {
  SystemMetricsSchema,
  type MonitorService,
  type SystemMetrics,
} from "../../../gen/svc/v1/monitor_pb.ts";
import type { HostMetrics } from "../../host/metrics/host-metrics.ts";
import type { HostSample } from "../../host/metrics/host-sample.ts";
import type { HostProcesses } from "../../host/processes/host-processes.ts";
import { shareName, userOf } from "../rpc/user-context.ts";

const defaultHistory = 360;
/** A thousand samples would block the event loop for a tenth of a second. */
const samplesPerTurn = 16;

export function createMonitorService(
  metrics: HostMetrics,
  processes: HostProcesses,
): ServiceImpl<typeof MonitorService> {
  return {
    getSystemMetrics: () => systemMetrics(metrics.newest()),

    getMetricsHistory: async ({ limit = defaultHistory, since, step }, context) => {
      const question = {
        limit,
        ...(since && { sinceMs: timestampMs(since) }),
        ...(step !== undefined && { stepSecs: step }),
      };
      const asker = { share: shareName(userOf(context)), signal: context.signal };
      const { samples, intervalSecs } = await metrics.history(question, asker);
      const messages: SystemMetrics[] = [];
      for (const [index, sample] of samples.entries()) {
        if (index % samplesPerTurn === 0) await breathe();
        messages.push(create(SystemMetricsSchema, systemMetrics(sample)));
      }
      return { samples: messages, intervalSecs };
    },

    streamSystemMetrics: async function* (_request, { signal }) {
      for await (const sample of metrics.follow(signal)) yield systemMetrics(sample);
    },

    listListeningPorts: async (_request, context) => ({
      ports: await processes.listening(userOf(context), context.signal),
    }),
  };
}

function systemMetrics(sample: HostSample): MessageInitShape<typeof SystemMetricsSchema> {
  const { atMs, load, pressure, filesystems, disks, interfaces, cores, temperatures } = sample;
  const [load1, load5, load15] = load;
  return {
    sampledAt: timestampFromMs(atMs),
    cpuPercent: sample.cpuPercent,
    cpuCount: sample.cpuCount,
    ...(sample.cpu && { cpu: { ...sample.cpu } }),
    cores: cores.map((core) => ({ ...core })),
    ...{ load1, load5, load15 },
    memoryTotalBytes: BigInt(sample.memoryTotalBytes),
    memoryAvailableBytes: BigInt(sample.memoryAvailableBytes),
    ...bytes("memoryFreeBytes", sample.memoryFreeBytes),
    ...bytes("memoryBuffersBytes", sample.memoryBuffersBytes),
    ...bytes("memoryCachedBytes", sample.memoryCachedBytes),
    ...bytes("memorySlabBytes", sample.memorySlabBytes),
    ...bytes("memoryDirtyBytes", sample.memoryDirtyBytes),
    swapTotalBytes: BigInt(sample.swapTotalBytes),
    swapUsedBytes: BigInt(sample.swapUsedBytes),
    ...(pressure.cpu && { cpuPressure: { ...pressure.cpu } }),
    ...(pressure.memory && { memoryPressure: { ...pressure.memory } }),
    ...(pressure.io && { ioPressure: { ...pressure.io } }),
    filesystems: filesystems.map(({ path, device, type, sizeBytes, usedBytes, availableBytes, ...rest }) => ({
      ...{ path, device, type },
      sizeBytes: BigInt(sizeBytes),
      usedBytes: BigInt(usedBytes),
      availableBytes: BigInt(availableBytes),
      ...bytes("inodes", rest.inodes),
      ...bytes("usedInodes", rest.usedInodes),
    })),
    disks: disks.map(({ readBytes, writtenBytes, ...rest }) => ({
      ...rest,
      readBytes: BigInt(readBytes),
      writtenBytes: BigInt(writtenBytes),
    })),
    interfaces: interfaces.map(({ receivedBytes, sentBytes, errors, dropped, ...rest }) => ({
      ...rest,
      receivedBytes: BigInt(receivedBytes),
      sentBytes: BigInt(sentBytes),
      errors: BigInt(errors),
      dropped: BigInt(dropped),
    })),
    temperatures: temperatures.map((one) => ({ ...one })),
    ...(sample.processes !== undefined && { processes: sample.processes }),
    uptimeSecs: BigInt(sample.uptimeSecs),
  };
}

function bytes<K extends string>(key: K, value: number | undefined): Partial<Record<K, bigint>> {
  return value === undefined ? {} : ({ [key]: BigInt(value) } as Record<K, bigint>);
}
