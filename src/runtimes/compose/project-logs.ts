/** Merges the logs of several containers. */
import { setTimeout as sleep } from "node:timers/promises";
import { followContainerLog, readContainerLog } from "../../engine/container-logs.ts";
import type { ContainerRecord } from "../../engine/container-record.ts";
import type { DockerEngine } from "../../engine/engine.ts";
import type { LogChunk, LogRecord } from "../../logs/log-chunk.ts";

/** The last lines of all containers by time, each prefixed with the service's name. */
export async function readProjectLog(
  engine: DockerEngine,
  containers: readonly ContainerRecord[],
  { tail, signal }: { tail: number; signal?: AbortSignal },
): Promise<LogChunk> {
  const chunks = await Promise.all(
    containers.map(async (container) => {
      const chunk = await readContainerLog(engine, container, { tail, signal });
      return { ...chunk, lines: named(container, chunk.lines) };
    }),
  );
  const lines = chunks.flatMap((chunk) => chunk.lines).sort((a, b) => a.timeMs - b.timeMs);
  return {
    lines: tail < 1 ? [] : lines.slice(-tail),
    truncated: chunks.some(({ truncated }) => truncated),
    missedBytes: 0,
  };
}

export interface FollowOptions {
  tail: number;
  /** Unix milliseconds; yields all later lines instead of the last ones. */
  afterMs?: number | undefined;
  signal: AbortSignal;
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
  { tail, afterMs, signal, membersNow }: FollowOptions,
): AsyncGenerator<LogChunk, void> {
  let lastMs = afterMs;
  if (lastMs === undefined) {
    const first = await readProjectLog(engine, membersNow(), { tail, signal });
    yield first;
    lastMs = first.lines.at(-1)?.timeMs ?? 0;
  }
  const seenMs = new Map<string, number>();
  const ended = new AbortController();
  const either = AbortSignal.any([signal, ended.signal]);
  const followed = new Map<string, Next>();
  try {
    while (!signal.aborted) {
      for (const container of membersNow()) {
        if (container.state !== "running" || followed.has(container.id)) continue;
        const sinceMs = (seenMs.get(container.id) ?? lastMs) + 1;
        const chunks = followContainerLog(engine, container, { tail: Infinity, sinceMs, signal: either });
        followed.set(container.id, nextOf(container, chunks));
      }
      if (followed.size === 0) return;
      const again = sleep(lookAgainMs, undefined, { signal: either }).catch(() => undefined);
      const next = await Promise.race([...followed.values(), again]);
      if (next === undefined) continue;
      const { container, chunks, result } = next;
      followed.delete(container.id);
      if (result.done === true) continue;
      const lines = result.value.lines.filter(({ timeMs }) => timeMs > (seenMs.get(container.id) ?? lastMs));
      // Lines of one container are in order.
      const last = lines.at(-1);
      followed.set(container.id, nextOf(container, chunks));
      if (last !== undefined) {
        yield { ...result.value, lines: named(container, lines) };
        seenMs.set(container.id, last.timeMs - 1);
      }
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
