/** The log of an app on the swarm: the logs of its services, merged. */
import type { DockerEngine } from "../../engine/engine.ts";
import type { LogChunk } from "../../logs/log-chunk.ts";
import type { FollowLogOptions, LogOptions } from "../contract.ts";
import { partsOfService } from "../parts-of-service.ts";
import type { RunnableApp } from "../runnable-app.ts";
import { followAway, followServiceLog, followTogether, mergeLogs, readServiceLog } from "./service-logs.ts";
import { hasTerminal } from "./service-launch.ts";
import type { SwarmApi, SwarmTask } from "./swarm-api.ts";

interface AppLogOptions {
  engine: DockerEngine;
  api: SwarmApi;
}

export async function readAppLog(
  { engine, api }: AppLogOptions,
  app: RunnableApp,
  { tail, service: name, signal }: LogOptions,
): Promise<LogChunk> {
  const services = partsOfService(await api.services(app.id), ({ part }) => part, name);
  if (services.length === 0) return { lines: [], truncated: false, missedBytes: 0 };
  const all = await api.tasks();
  const chunks = services.map((service) => {
    const tasks = all.filter(({ serviceId }) => serviceId === service.id);
    const options = { tail, part: service.part, tasks, hasTerminal: hasTerminal(service), signal };
    return readServiceLog(engine, service.id, options);
  });
  return mergeLogs(await Promise.all(chunks), tail);
}

/** @param watch starts to watch the app's tasks */
export async function* followAppLog(
  { engine, api }: AppLogOptions,
  app: RunnableApp,
  watch: () => Promise<{ readonly tasks: readonly SwarmTask[] }>,
  { tail, service: name, after, signal }: FollowLogOptions,
): AsyncGenerator<LogChunk, void> {
  const services = partsOfService(await api.services(app.id), ({ part }) => part, name);
  if (services.length === 0) return;
  const watched = await watch();
  const tasksNow = (): readonly SwarmTask[] => watched.tasks;
  const follow = services.map((service) => (either: AbortSignal) => {
    const { id, part } = service;
    const from = after === undefined ? { tail } : { tail: Infinity, sinceMs: after.timeMs };
    const options = { ...from, part, tasksNow, hasTerminal: hasTerminal(service), signal: either };
    return followServiceLog(engine, id, options);
  });
  const beside = (either: AbortSignal) =>
    followAway({ awayNow: () => nodesAway(api), tasksNow, signal: either });
  yield* followTogether(follow, beside, signal);
}

async function nodesAway(api: SwarmApi): Promise<ReadonlySet<string>> {
  const nodes = await api.nodes();
  return new Set(nodes.flatMap(({ id, state }) => (state === "ready" ? [] : [id])));
}
