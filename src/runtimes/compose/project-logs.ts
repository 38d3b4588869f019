/** The logs of several containers as one. */
import { setTimeout as sleep } from "node:timers/promises";
import { followContainerLog, readContainerLog } from "../../docker/container-logs.ts";
import type { ContainerRecord } from "../../docker/container-record.ts";
import type { DockerEngine } from "../../docker/engine.ts";
import type { LogChunk, LogRecord } from "../runtime.ts";

/** The last lines of all together, by time, each with the name of its service in front. */
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
  /** All that was printed later instead of the last lines, unix milliseconds. */
  afterMs?: number | undefined;
  signal: AbortSignal;
  /** The containers of the project as they are now; none that runs: it has ended. */
  membersNow: () => readonly ContainerRecord[];
}

const lookAgainMs = 500;

/** The last lines of all together, then each new one as it comes; containers that start meanwhile join. Ends with the last one. */
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
      // Of one container they come in order.
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
