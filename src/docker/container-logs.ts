/** What a container printed, as the engine kept it. */
import { promisify } from "node:util";
import type Dockerode from "dockerode";
import type { LogChunk, LogRecord } from "../runtimes/runtime.ts";
import type { ContainerRecord } from "./container-record.ts";
import type { DockerEngine } from "./engine.ts";
import { FramedLogReader, TerminalLogReader } from "./log-lines.ts";

/** What is needed to know of it. */
export type LoggedContainer = Pick<ContainerRecord, "id" | "hasTerminal">;

export interface ReadLogOptions {
  /** How many of the last lines; `Infinity` for all. */
  tail: number;
  /** Nothing older than this, unix milliseconds. */
  sinceMs?: number | undefined;
  signal?: AbortSignal | undefined;
}

/** Of the text of one answer. */
export const maxAnswerBytes = 8 * 1024 * 1024;
/** A log of which nothing comes for so long is not waited for. */
const readTimeoutMs = 60_000;

/**
 * The last lines, oldest first; `truncated` when they pass 8 MiB.
 * @throws SvcError `unavailable`, `not_found`; `failed_precondition` when the container's log driver cannot be read
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
      const kept = new KeptLines(tail);
      for await (const chunk of stream) kept.add(reader.read(chunk));
      kept.add(reader.end());
      return kept.chunk();
    },
    { timeoutMs: readTimeoutMs, signal, of: `the log of container ${container.id}` },
  );
}

/**
 * The last lines and then each new one, until the container ends or `signal` aborts.
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
    { signal, of: `the container ${container.id}` },
  );
  const reader = createReader(container);
  try {
    for await (const chunk of opened.chunks) yield* chunks(reader.read(chunk));
  } catch (error) {
    if (!signal.aborted) throw error;
  }
  yield* chunks(reader.end());
}

/** dockerode would read a log that is not followed as a whole, however long it is. */
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
    // The engine gives all where nobody says how many.
    ...(tail !== Infinity && { tail }),
    ...(sinceMs !== undefined && { since: sinceMs / 1_000 }),
  };
}

/** The last lines of those that come, in bounded memory: no more than {@link maxAnswerBytes} of text. */
export class KeptLines {
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
    // The dropped ones go in one piece, once they are the most.
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
