/** DockerService: one domain call per method. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import {
  PruneDockerResponseSchema,
  type ControlContainerRequest,
  type DockerService,
  type PruneDockerRequest,
} from "../../../gen/svc/v1/docker_pb.ts";
import type { ControlContainerRequestAction, PruneDockerRequestTarget } from "../../../gen/svc/v1/values.ts";
import type { ControlTarget } from "../../engine/container-control.ts";
import type { DockerHost } from "../../engine/docker-host.ts";
import type { PruneResult } from "../../engine/pruner.ts";
import { invalidField } from "../../errors.ts";
import type { LogChunk } from "../../logs/log-chunk.ts";
import type { LongMethods } from "./long-method.ts";
import { logLines, logStart } from "./log-lines.ts";

export function createDockerService(host: DockerHost, long: LongMethods): ServiceImpl<typeof DockerService> {
  const prune = long.define({
    ...{ kind: "prune", output: PruneDockerResponseSchema, last: "result" },
    work: async ({ target, dryRun, danglingOnly = false, ids }: PruneDockerRequest, _user, work) => {
      const request = { target: target as PruneDockerRequestTarget, dryRun, danglingOnly, ids };
      return pruneMessage(await host.prune(request, work.signal, work.onProgress), dryRun);
    },
  });

  return {
    listContainers: ({ all, size }, { signal }) => host.containers({ all, size }, signal),

    listContainerStats: async ({ ids }, { signal }) => ({ stats: await host.stats(ids, signal) }),

    listImages: async () => ({ images: await host.images() }),

    listVolumes: async () => ({ volumes: await host.volumes() }),

    listNetworks: async () => ({ networks: await host.networks() }),

    getDockerDiskUsage: (_request, { signal }) => host.diskUsage(signal),

    pruneDocker: prune.call,

    controlContainer: async (request) => {
      const action = request.action as ControlContainerRequestAction;
      const { controlled, skipped } = await host.control(targetOf(request), action);
      return {
        controlled: controlled.map(({ id, name }) => ({ id, name })),
        skipped: skipped.map((item) => ({ ...item })),
      };
    },

    inspectContainer: ({ container }, { signal }) => host.inspect(container, signal),

    getContainerLogs: async ({ container, timestamps, ...from }, { signal }) =>
      logsMessage(await host.logs(container, logStart(from), signal), timestamps),

    streamContainerLogs: async function* ({ container, timestamps, ...from }, { signal }) {
      for await (const chunk of host.followLogs(container, logStart(from), signal)) {
        yield logsMessage(chunk, timestamps);
      }
    },

    streamDockerEvents: ({ types }, { signal }) => host.events(types, signal),
  };
}

function targetOf({ target }: ControlContainerRequest): ControlTarget {
  switch (target.case) {
    case "container":
      return { container: target.value };
    case "composeProject":
      return { composeProject: target.value };
    case undefined:
      throw invalidField("container", "name a container, or a composeProject");
  }
}

function logsMessage({ lines, truncated }: LogChunk, timestamps: boolean) {
  return { lines: logLines(lines, timestamps), truncated };
}

function pruneMessage(
  { removed, skipped }: PruneResult,
  dryRun: boolean,
): MessageInitShape<typeof PruneDockerResponseSchema> {
  return {
    removed: removed.map(({ id, name, sizeBytes }) => ({ id, name, sizeBytes: BigInt(sizeBytes) })),
    skipped: skipped.map((item) => ({ ...item })),
    freedBytes: BigInt(removed.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0)),
    dryRun,
  };
}
