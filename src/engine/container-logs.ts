/** Reads container logs from the engine. */
import { promisify } from "node:util";
import type Dockerode from "dockerode";
import type { LogChunk, LogRecord } from "../logs/log-chunk.ts";
import type { ContainerRecord } from "./container-record.ts";
import type { DockerEngine } from "./engine.ts";
import { FramedLogReader, TerminalLogReader } from "./log-lines.ts";

/** The properties of a container that reading its log depends on. */
export type LoggedContainer = Pick<ContainerRecord, "id" | "hasTerminal">;

export interface ReadLogOptions {
  /** Number of last lines; `Infinity` for all. */
  tail: number;
  /** Excludes older lines. Unix milliseconds. */
  sinceMs?: number | undefined;
  signal?: AbortSignal | undefined;
}

/** Text of one answer. */
export const maxAnswerBytes = 8 * 1024 * 1024;
/** Longest silence while reading. */
const readTimeoutMs = 60_000;

/**
 * Reads the last lines, oldest first; `truncated` when they exceed 8 MiB.
 * @throws SvcError `unavailable`, `not_found`; `failed_precondition` when the container's log driver does not support
 *   reading
 */
export async function readContainerLog(
  engine: DockerEngine,
  container: LoggedContainer,
  { tail, sinceMs, signal }: ReadLogOptions,
): Promise<LogChunk> {
  return engine.operate(
    "read the log of a container",
    async (docker) => {
      const stream = await openLog(docker, container.id, logQuery(tail, sinceMs));
      const reader = createReader(container);
      const lastLines = new LastLines(tail);
      for await (const chunk of stream) lastLines.add(reader.read(chunk));
      lastLines.add(reader.end());
      return lastLines.chunk();
    },
    { timeoutMs: readTimeoutMs, signal },
  );
}

/**
 * Yields the last lines and then each new one, until the container ends or `signal` aborts.
 * @throws SvcError as {@link readContainerLog}
 */
export async function* followContainerLog(
  engine: DockerEngine,
  container: LoggedContainer,
  { tail, sinceMs, signal }: ReadLogOptions & { signal: AbortSignal },
): AsyncGenerator<LogChunk, void> {
  using opened = await engine.open(
    "follow the log of a container",
    (docker) => docker.getContainer(container.id).logs({ ...logQuery(tail, sinceMs), follow: true }),
    { signal },
  );
  const reader = createReader(container);
  const beganMs = Date.now();
  let last: LogRecord | undefined;
  const note = (lines: readonly LogRecord[]): readonly LogRecord[] => {
    last = lines.at(-1) ?? last;
    return lines;
  };
  try {
    for await (const chunk of opened.chunks) yield* chunks(note(reader.read(chunk)));
  } catch (error) {
    if (!signal.aborted) throw error;
  }
  yield* chunks(note(reader.end()));
  if (signal.aborted) return;
  // An engine may end the stream before the last lines of the container, above all an unfinished one.
  const rest = { tail: Infinity, sinceMs: last?.timeMs ?? beganMs, signal };
  const { lines } = await readContainerLog(engine, container, rest).catch(() => ({ lines: [] }));
  yield* chunks(linesAfter(lines, last));
}

function linesAfter(lines: readonly LogRecord[], last: LogRecord | undefined): readonly LogRecord[] {
  if (last === undefined) return lines;
  const { timeMs, stream, text } = last;
  const at = lines.findLastIndex(
    (line) => line.timeMs === timeMs && line.stream === stream && line.text === text,
  );
  return at === -1 ? lines.filter((line) => line.timeMs > timeMs) : lines.slice(at + 1);
}

/** dockerode would buffer a log that is not followed, however long it is. */
export async function openLog(
  docker: Dockerode,
  id: string,
  options: Record<string, unknown>,
): Promise<AsyncIterable<Buffer>> {
  const request = { path: `/containers/${id}/logs?`, method: "GET", statusCodes: { 200: true }, options };
  const dial = promisify(docker.modem.dial.bind(docker.modem));
  return (await dial({ ...request, isStream: true })) as AsyncIterable<Buffer>;
}

function createReader({ hasTerminal }: LoggedContainer): FramedLogReader | TerminalLogReader {
  return hasTerminal ? new TerminalLogReader() : new FramedLogReader();
}

function* chunks(lines: readonly LogRecord[]): Generator<LogChunk, void> {
  if (lines.length > 0) yield { lines, truncated: false, missedBytes: 0 };
}

/** @param tail `Infinity` for all */
export function logQuery(tail: number, sinceMs?: number) {
  return {
    stdout: true,
    stderr: true,
    timestamps: true,
    // Without `tail` the engine sends all lines.
    ...(tail !== Infinity && { tail }),
    ...(sinceMs !== undefined && { since: sinceMs / 1_000 }),
  };
}

/** The last of the added lines, in bounded memory: at most {@link maxAnswerBytes} of text. */
export class LastLines {
  readonly #maxLines: number;
  #lines: { record: LogRecord; sizeBytes: number }[] = [];
  #from = 0;
  #sizeBytes = 0;
  #truncated = false;

  constructor(maxLines: number) {
    this.#maxLines = maxLines;
  }

  add(records: readonly LogRecord[]): void {
    for (const record of records) {
      const sizeBytes = Buffer.byteLength(record.text);
      this.#lines.push({ record, sizeBytes });
      this.#sizeBytes += sizeBytes;
      if (this.#lines.length - this.#from > this.#maxLines) this.#drop();
      while (this.#sizeBytes > maxAnswerBytes) {
        this.#truncated = true;
        this.#drop();
      }
    }
    // Remove the dropped lines in one step, once they are the majority.
    if (this.#from > this.#lines.length / 2) {
      this.#lines = this.#lines.slice(this.#from);
      this.#from = 0;
    }
  }

  #drop(): void {
    this.#sizeBytes -= this.#lines[this.#from]?.sizeBytes ?? 0;
    this.#from++;
  }

  chunk(): LogChunk {
    const lines = this.#lines.slice(this.#from).map(({ record }) => record);
    return { lines, truncated: this.#truncated, missedBytes: 0 };
  }
}
