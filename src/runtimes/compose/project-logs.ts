/** Merges the logs of several containers. */
import { setTimeout as sleep } from "node:timers/promises";
import { followContainerLog, readContainerLog } from "../../engine/container-logs.ts";
import type { ContainerRecord } from "../../engine/container-record.ts";
import type { DockerEngine } from "../../engine/engine.ts";
import { linesBefore, type LogChunk, type LogRecord } from "../../logs/log-chunk.ts";
import { NewLines } from "../../logs/log-position.ts";
import type { LogOptions } from "../contract.ts";
import { partsOfService } from "../parts-of-service.ts";

/** The last lines of all containers by time, each prefixed with the service's name. @throws SvcError for an unknown service */
export async function readProjectLog(
  engine: DockerEngine,
  containers: readonly ContainerRecord[],
  { service, ...options }: LogOptions,
): Promise<LogChunk> {
  const chosen = partsOfService(containers, ({ composeService }) => composeService, service);
  return merged(await readContainers(engine, chosen, options), options.tail);
}

interface ContainerChunk {
  readonly container: ContainerRecord;
  readonly chunk: LogChunk;
}

function readContainers(
  engine: DockerEngine,
  containers: readonly ContainerRecord[],
  options: { tail: number; signal?: AbortSignal | undefined },
): Promise<ContainerChunk[]> {
  const chunks = containers.map(async (container) => ({
    container,
    chunk: await readContainerLog(engine, container, options),
  }));
  return Promise.all(chunks);
}

function merged(chunks: readonly ContainerChunk[], tail: number): LogChunk {
  const lines = chunks
    .flatMap(({ container, chunk }) => named(container, chunk.lines))
    .sort((a, b) => a.timeMs - b.timeMs);
  return {
    lines: tail < 1 ? [] : lines.slice(-tail),
    truncated: chunks.some(({ chunk }) => chunk.truncated),
    missedBytes: 0,
  };
}

export interface FollowOptions extends LogOptions {
  /** Unix milliseconds; yields all lines since then instead of the last ones. */
  sinceMs?: number | undefined;
  readonly signal: AbortSignal;
  /** The project's current containers; the log ends when none of them runs. */
  membersNow: () => readonly ContainerRecord[];
}

const lookAgainMs = 500;

/**
 * Yields the last lines of all containers, then each new one; containers that start later join. Ends with the last
 * container.
 */
export async function* followProjectLog(
  engine: DockerEngine,
  { tail, service, sinceMs, signal, membersNow }: FollowOptions,
): AsyncGenerator<LogChunk, void> {
  const begin = { timeMs: sinceMs ?? Date.now(), count: 0 };
  /** By container ID: the lines that were read. */
  const logs = new Map<string, NewLines>();
  const chosen = partsOfService(membersNow(), ({ composeService }) => composeService, service);
  // In the order of their times: a follower leaves out the lines up to a position, which ends at the first later line.
  const bounds = sinceMs === undefined ? { tail: tail + linesBefore } : { tail: Infinity, sinceMs };
  const chunks = await readContainers(engine, chosen, { ...bounds, signal });
  const isWhole = sinceMs === undefined || !chunks.some(({ chunk }) => chunk.truncated);
  if (isWhole) {
    yield merged(chunks, sinceMs === undefined ? tail : Infinity);
    for (const { container, chunk } of chunks) {
      if (chunk.lines.length === 0) continue;
      const log = new NewLines();
      log.select(chunk);
      logs.set(container.id, log);
    }
  }
  const ended = new AbortController();
  const either = AbortSignal.any([signal, ended.signal]);
  const followed = new Map<string, Next>();
  try {
    while (!signal.aborted) {
      for (const container of membersNow()) {
        if (container.state !== "running" || followed.has(container.id)) continue;
        if (service !== undefined && container.composeService !== service) continue;
        const after = logs.get(container.id)?.position ?? begin;
        logs.set(container.id, new NewLines(after));
        const options = { tail: Infinity, sinceMs: after.timeMs, signal: either };
        followed.set(container.id, nextOf(container, followContainerLog(engine, container, options)));
      }
      if (followed.size === 0 && membersNow().every(({ state }) => state !== "running")) return;
      const again = sleep(lookAgainMs, undefined, { signal: either }).catch(() => undefined);
      const next = await Promise.race([...followed.values(), again]);
      if (next === undefined) continue;
      const { container, chunks, result } = next;
      followed.delete(container.id);
      if (result.done === true) continue;
      const lines = logs.get(container.id)?.select(result.value) ?? [];
      followed.set(container.id, nextOf(container, chunks));
      if (lines.length > 0) yield { ...result.value, lines: named(container, lines) };
    }
  } finally {
    ended.abort();
  }
}

type Next = Promise<{
  container: ContainerRecord;
  chunks: AsyncGenerator<LogChunk, void>;
  result: IteratorResult<LogChunk, void>;
}>;

async function nextOf(container: ContainerRecord, chunks: AsyncGenerator<LogChunk, void>): Next {
  return { container, chunks, result: await chunks.next() };
}

function named({ composeService, name }: ContainerRecord, lines: readonly LogRecord[]): LogRecord[] {
  return lines.map((line) => ({ ...line, text: `${composeService ?? name} | ${line.text}` }));
}
