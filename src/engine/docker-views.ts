/** Converts engine objects to contract messages. */
import { create, type JsonObject, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { ContainerInspectInfo } from "dockerode";
import {
  ContainerSchema,
  type Container,
  type ContainerDetailsSchema,
  type ContainerStatsSchema,
  type DockerEventSchema,
  type ImageSchema,
  type NetworkSchema,
  type VolumeSchema,
} from "../../gen/svc/v1/docker_pb.ts";
import { shownLabels } from "./attribution.ts";
import type { ContainerRecord } from "./container-record.ts";
import type { ImageRecord, NetworkRecord, VolumeRecord } from "./engine-objects.ts";
import type { EngineEvent } from "./event-stream.ts";
import type { ContainerUsage } from "./stats-arithmetic.ts";

/** @param appId the installed app that owns it */
export function containerView(record: ContainerRecord, appId: string | undefined): Container {
  const { id, name, image, imageId, state, status, createdAtMs, composeProject, composeService } = record;
  return create(ContainerSchema, {
    id,
    name,
    image,
    imageId,
    state,
    status,
    createdAt: timestampFromMs(createdAtMs),
    ports: record.ports.map((port) => ({ ...port })),
    ...(composeProject !== undefined && { composeProject }),
    ...(composeService !== undefined && { composeService }),
    ...(appId !== undefined && { appId }),
  });
}

export function statsView(
  { id, name, memoryLimitBytes }: ContainerRecord,
  usage: ContainerUsage,
): MessageInitShape<typeof ContainerStatsSchema> {
  return {
    id,
    name,
    cpuPercent: usage.cpuPercent,
    memoryBytes: BigInt(usage.memoryBytes),
    ...(memoryLimitBytes !== undefined && { memoryLimitBytes: BigInt(memoryLimitBytes) }),
    networkReceivedBytes: BigInt(usage.networkReceivedBytes ?? 0),
    networkSentBytes: BigInt(usage.networkSentBytes ?? 0),
    blockReadBytes: BigInt(usage.blockReadBytes),
    blockWrittenBytes: BigInt(usage.blockWrittenBytes),
  };
}

export function imageView(
  image: ImageRecord,
  containers: number,
  protectedReason: string,
): MessageInitShape<typeof ImageSchema> {
  return {
    id: image.id,
    tags: [...image.tags],
    digests: [...image.digests],
    sizeBytes: BigInt(image.sizeBytes),
    createdAt: timestampFromMs(image.createdAtMs),
    containers,
    dangling: image.tags.length === 0,
    svcProtected: protectedReason !== "",
    ...(protectedReason !== "" && { protectedReason }),
  };
}

export function volumeView(
  volume: VolumeRecord,
  containers: number,
  protectedReason: string,
): MessageInitShape<typeof VolumeSchema> {
  const { name, driver, createdAtMs, isAnonymous } = volume;
  return {
    name,
    driver,
    ...(createdAtMs !== undefined && { createdAt: timestampFromMs(createdAtMs) }),
    anonymous: isAnonymous,
    containers,
    svcProtected: protectedReason !== "",
    ...(protectedReason !== "" && { protectedReason }),
  };
}

export function networkView(network: NetworkRecord): MessageInitShape<typeof NetworkSchema> {
  const { id, name, driver, scope, subnets, isInternal } = network;
  return { id, name, driver, scope, subnets: [...subnets], internal: isInternal };
}

export function detailsView(
  container: Container,
  record: ContainerRecord,
  info: ContainerInspectInfo,
): MessageInitShape<typeof ContainerDetailsSchema> {
  const { startedAtMs, finishedAtMs } = record;
  const hasEnded = record.state !== "running" && record.state !== "created" && finishedAtMs !== undefined;
  return {
    container,
    command: [info.Path, ...info.Args],
    ...(startedAtMs !== undefined && { startedAt: timestampFromMs(startedAtMs) }),
    ...(hasEnded && { finishedAt: timestampFromMs(finishedAtMs), exitCode: record.exitCode }),
    health: record.health === "none" ? "" : record.health,
    restarts: record.restarts,
    restartPolicy: info.HostConfig.RestartPolicy?.Name ?? "",
    mounts: record.mounts.map(({ type, name, source, destination, isWritable }) => ({
      type,
      source: name ?? source,
      target: destination,
      readOnly: !isWritable,
    })),
    networks: Object.keys(record.networks),
    labels: shownLabels(record.labels),
    engine: {
      ...info,
      Config: { ...info.Config, Labels: shownLabels(record.labels) },
    } as unknown as JsonObject,
  };
}

export function eventView(
  { type, action, id, attributes, timeMs }: EngineEvent,
  appId: string | undefined,
): MessageInitShape<typeof DockerEventSchema> {
  return {
    time: timestampFromMs(timeMs),
    type,
    action,
    id,
    name: attributes["name"] ?? "",
    attributes: shownLabels(attributes),
    ...(appId !== undefined && { appId }),
  };
}
