/** DockerService: one domain call per method. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import {
  AdoptStackResponseSchema,
  PruneDockerResponseSchema,
  type AdoptionPlanSchema,
  type AdoptStackRequest,
  type ControlContainerRequest,
  type DockerService,
  type PruneDockerRequest,
  type UnmanagedStackSchema,
} from "../../../gen/svc/v1/docker_pb.ts";
import type { ControlContainerRequestAction, PruneDockerRequestTarget } from "../../../gen/svc/v1/values.ts";
import type { AdoptionPlan } from "../../apps/adopt/adoption-plan.ts";
import { containerView } from "../../engine/docker-views.ts";
import type { UnmanagedStack } from "../../engine/unmanaged-stacks.ts";
import type { ControlTarget } from "../../engine/container-control.ts";
import type { DockerHost } from "../../engine/docker-host.ts";
import type { PruneResult } from "../../engine/pruner.ts";
import { invalidField } from "../../errors.ts";
import type { InstalledParts } from "./app-service.ts";
import type { LongMethods } from "./long-method.ts";
import { logFields, logStart } from "./log-lines.ts";

export function createDockerService(
  host: DockerHost,
  { adopter, views }: Pick<InstalledParts, "adopter" | "views">,
  long: LongMethods,
): ServiceImpl<typeof DockerService> {
  const prune = long.define({
    ...{ kind: "prune", output: PruneDockerResponseSchema, last: "result" },
    work: async ({ target, dryRun, danglingOnly = false, ids }: PruneDockerRequest, _user, work) => {
      const request = { target: target as PruneDockerRequestTarget, dryRun, danglingOnly, ids };
      return pruneMessage(await host.prune(request, work.signal, work.onProgress), dryRun);
    },
  });

  const adopt = long.define({
    ...{ kind: "adopt", output: AdoptStackResponseSchema, last: "result" },
    work: async ({ dryRun, settings = {}, ...values }: AdoptStackRequest, user, work) => {
      const request = { ...values, settings };
      const plan = await adopter.plan(request);
      if (dryRun) return { plan: planMessage(plan) };
      const id = await adopter.adopt(plan, request, user, work);
      return { plan: planMessage(plan), app: await views.get(id, user) };
    },
  });

  return {
    listUnmanagedStacks: async () => ({ stacks: (await adopter.list()).map(stackMessage) }),

    adoptStack: adopt.call,
    adoptStackStream: adopt.stream,

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
      logFields(await host.logs(container, logStart(from), signal), timestamps),

    streamContainerLogs: async function* ({ container, timestamps, ...from }, { signal }) {
      for await (const chunk of host.followLogs(container, logStart(from), signal)) {
        yield logFields(chunk, timestamps);
      }
    },

    streamDockerEvents: ({ types }, { signal }) => host.events(types, signal),
  };
}

function stackMessage(stack: UnmanagedStack): MessageInitShape<typeof UnmanagedStackSchema> {
  const containers = stack.containers.map((container) => containerView(container, undefined));
  return { ...stack, files: [...stack.files], containers };
}

function planMessage(plan: AdoptionPlan): MessageInitShape<typeof AdoptionPlanSchema> {
  const volumes = Object.entries(plan.data.volumes).map(([key, name]) => ({
    name,
    key: key === name && plan.data.mounts.some((mount) => mount.key === key) ? "" : key,
  }));
  return {
    ...{ stack: stackMessage(plan.stack), directory: plan.directory, fromContainers: plan.fromContainers },
    files: plan.files.map((file) => ({ ...file })),
    ...{ volumes, networks: Object.values(plan.data.networks) },
    ...{ mountedPaths: [...plan.data.paths], notes: [...plan.notes], digest: plan.digest },
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
