/** Computes the usage that counts toward a user's limits on a swarm. */
import { descriptionBytes } from "../../engine/engine-objects.ts";
import { unlessGone } from "../../engine/engine-errors.ts";
import type { Usage } from "../containers/container-policy.ts";
import { fileBytesLabel } from "./stack-plan.ts";
import type { ServiceSpec, SwarmApi, SwarmService } from "./swarm-api.ts";

/** Number of tasks that a swarm lists for each slot: the current one, and ended ones (`--task-history-limit`). */
const tasksPerSlot = 5;

/**
 * A port of the swarm is published once; a port of its nodes once per task. Files are stored once per service, in the
 * memory of each manager.
 */
export function usageOfService(spec: ServiceSpec): Usage {
  const { Mode: mode, EndpointSpec: endpoint, TaskTemplate: template, Labels: labels } = spec;
  const { Replicas: containers } = mode.Replicated;
  const ports = endpoint?.Ports ?? [];
  const ofSwarm = ports.filter(({ PublishMode: publish }) => publish === "ingress").length;
  return {
    containers,
    ports: ofSwarm + (ports.length - ofSwarm) * containers,
    descriptionBytes:
      descriptionBytes(template) * containers * tasksPerSlot + (Number(labels[fileBytesLabel]) || 0),
  };
}

/** By app ID; empty if the engine manages no swarm, or the swarm has no leader and starts nothing. */
export async function swarmUsage(api: Pick<SwarmApi, "services">): Promise<ReadonlyMap<string, Usage>> {
  const services = (await unlessGone(api.services(), ["unavailable"])) ?? [];
  const byApp = [...Map.groupBy(services, ({ appId }) => appId)];
  return new Map(byApp.map(([appId, own]) => [appId, usageOf(own)]));
}

function usageOf(services: readonly SwarmService[]): Usage {
  const usages = services.map(({ spec }) => usageOfService(spec));
  return {
    containers: usages.reduce((total, { containers }) => total + containers, 0),
    ports: usages.reduce((total, { ports }) => total + ports, 0),
    descriptionBytes: usages.reduce((total, usage) => total + usage.descriptionBytes, 0),
  };
}
