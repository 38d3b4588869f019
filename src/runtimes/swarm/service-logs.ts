/** Reads the output of a service's tasks on all nodes as one log. */
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import type Dockerode from "dockerode";
import type { DockerEngine } from "../../engine/engine.ts";
import { LastLines, logQuery, maxAnswerBytes } from "../../engine/container-logs.ts";
import { FramedLogReader, TerminalLogReader } from "../../engine/log-lines.ts";
import type { LogChunk, LogRecord } from "../../logs/log-chunk.ts";
import { taskName, type SwarmTask } from "./swarm-api.ts";

export interface ServiceLogOptions {
  /** Number of last lines; `Infinity` for all. */
  tail: number;
  /** Excludes older lines. Unix milliseconds. */
  sinceMs?: number | undefined;
  /** Service of a compose project, for the prefix of its lines; empty for a single service. */
  part: string;
  /** The service's tasks, for the prefixes of their lines. */
  tasks: readonly SwarmTask[];
  hasTerminal: boolean;
  signal?: AbortSignal | undefined;
}

const readTimeoutMs = 60_000;
const awayPollMs = 5_000;
/** Details that the engine puts in front of each line, in this order. */
const details =
  /^com\.docker\.swarm\.node\.id=\w*,com\.docker\.swarm\.service\.id=\w*,com\.docker\.swarm\.task\.id=(\w*) ?/;
/** Upper bound of their length. */
const maxDetailsLength = 256;

/** The engine's last message when lines of some tasks are missing, and the reasons in it. */
const incomplete = /^Error grabbing logs: .*incomplete log stream\..*?following reasons: (.*)$/;
const nodeAway = /^node (\w+) (?:is not available|disconnected unexpectedly)$/;
const unplaced = /^task \w+ has not been scheduled$/;

/** The last lines of all tasks by time, each prefixed with slot and node; `truncated` when they exceed 8 MiB. */
export async function readServiceLog(
  engine: DockerEngine,
  serviceId: string,
  { tail, part, tasks, hasTerminal, signal }: ServiceLogOptions,
): Promise<LogChunk> {
  if (tail < 1) return { lines: [], truncated: false, missedBytes: 0 };
  return engine.operate(
    "read the log of a service",
    async (docker) => {
      const latest = new LatestLines(tail);
      for await (const lines of readLog(docker, `/services/${serviceId}`, tail, hasTerminal)) {
        latest.add(named(lines, part, tasks));
      }
      return latest.chunk();
    },
    { timeoutMs: readTimeoutMs, signal },
  );
}

/** The last lines of one task, without prefixes. */
export async function readTaskLog(
  engine: DockerEngine,
  taskId: string,
  { tail, hasTerminal }: Pick<ServiceLogOptions, "tail" | "hasTerminal">,
): Promise<string[]> {
  return engine.operate(
    "read the log of a task",
    async (docker) => {
      const lines = (await Array.fromAsync(readLog(docker, `/tasks/${taskId}`, tail, hasTerminal))).flat();
      // Lines without details are the swarm's own messages.
      const own = lines.flatMap(({ text }) => {
        const [found = ""] = details.exec(text) ?? [];
        return found === "" ? [] : [text.slice(found.length)];
      });
      return own.slice(-tail);
    },
    { timeoutMs: readTimeoutMs },
  );
}

/** The last lines by time, in bounded memory; each task's lines arrive in any order. */
class LatestLines {
  readonly #maxLines: number;
  #lines: LogRecord[] = [];
  #sizeBytes = 0;
  #truncated = false;

  constructor(maxLines: number) {
    this.#maxLines = maxLines;
  }

  add(records: readonly LogRecord[]): void {
    for (const record of records) {
      this.#lines.push(record);
      this.#sizeBytes += Buffer.byteLength(record.text);
      if (this.#sizeBytes > 2 * maxAnswerBytes) this.#drop();
    }
    if (this.#lines.length > 2 * this.#maxLines) this.#drop();
  }

  #drop(): void {
    const lastLines = new LastLines(this.#maxLines);
    lastLines.add(this.#lines.sort((a, b) => a.timeMs - b.timeMs));
    const { lines, truncated } = lastLines.chunk();
    this.#lines = [...lines];
    this.#sizeBytes = lines.reduce((sum, { text }) => sum + Buffer.byteLength(text), 0);
    this.#truncated ||= truncated;
  }

  chunk(): LogChunk {
    this.#drop();
    return { lines: this.#lines, truncated: this.#truncated, missedBytes: 0 };
  }
}

/** Yields the last lines and then each new one, until the service is removed or `signal` aborts. */
export async function* followServiceLog(
  engine: DockerEngine,
  serviceId: string,
  {
    tail,
    sinceMs,
    part,
    tasksNow,
    hasTerminal,
    signal,
  }: Omit<ServiceLogOptions, "tasks"> & {
    tasksNow: () => readonly SwarmTask[];
    signal: AbortSignal;
  },
): AsyncGenerator<LogChunk, void> {
  using opened = await engine.open(
    "follow the log of a service",
    (docker) => docker.getService(serviceId).logs({ ...query(tail, sinceMs), follow: true }),
    { signal },
  );
  const reader = createReader(hasTerminal);
  try {
    for await (const chunk of opened.chunks) {
      const lines = named(reader.read(chunk), part, tasksNow());
      if (lines.length > 0) yield { lines, truncated: false, missedBytes: 0 };
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  }
  const lines = named(reader.end(), part, tasksNow());
  if (lines.length > 0) yield { lines, truncated: false, missedBytes: 0 };
}

export interface AwayOptions {
  /** IDs of nodes that do not respond. @throws SvcError while they are unknown */
  awayNow: () => Promise<ReadonlySet<string>>;
  tasksNow: () => readonly SwarmTask[];
  signal: AbortSignal;
  everyMs?: number;
}

/**
 * Reports each node with tasks when it stops responding, because the engine reports that only at the end of a log.
 */
export async function* followAway({
  awayNow,
  tasksNow,
  signal,
  everyMs = awayPollMs,
}: AwayOptions): AsyncGenerator<LogChunk, void> {
  let reported: ReadonlySet<string> = new Set();
  while (!signal.aborted) {
    const away = await awayNow().catch(() => reported);
    const ids = new Set(tasksNow().flatMap(({ nodeId }) => (away.has(nodeId) ? [nodeId] : [])));
    const names = [...ids].filter((id) => !reported.has(id)).map((id) => nodeName(id, tasksNow()));
    reported = ids;
    if (names.length > 0)
      yield { lines: [missingLine(didNotAnswer(names))], truncated: false, missedBytes: 0 };
    await sleep(everyMs, undefined, { signal }).catch(() => undefined);
  }
}

/** Follows several services as one log, until all of them end. @param beside yields further messages while the logs are followed */
export async function* followTogether(
  follow: readonly ((signal: AbortSignal) => AsyncGenerator<LogChunk, void>)[],
  beside: (signal: AbortSignal) => AsyncGenerator<LogChunk, void>,
  signal: AbortSignal,
): AsyncGenerator<LogChunk, void> {
  const ended = new AbortController();
  const either = AbortSignal.any([signal, ended.signal]);
  const next = async (source: AsyncGenerator<LogChunk, void>) => ({ source, result: await source.next() });
  const sources = follow.map((begin) => begin(either));
  const open = new Set(sources);
  const waiting = new Map([...sources, beside(either)].map((source) => [source, next(source)]));
  try {
    while (open.size > 0) {
      const { source, result } = await Promise.race(waiting.values());
      if (result.done === true) {
        waiting.delete(source);
        open.delete(source);
      } else {
        waiting.set(source, next(source));
        yield result.value;
      }
    }
  } finally {
    ended.abort();
    await Promise.allSettled(waiting.values());
  }
}

/** Merges the logs of several services: the last lines by time. */
export function mergeLogs(chunks: readonly LogChunk[], tail: number): LogChunk {
  const [only, ...others] = chunks;
  if (only !== undefined && others.length === 0) return only;
  const lastLines = new LastLines(Math.max(1, tail));
  lastLines.add(chunks.flatMap(({ lines }) => lines).sort((a, b) => a.timeMs - b.timeMs));
  const { lines, truncated } = lastLines.chunk();
  const isCut = truncated || chunks.some((chunk) => chunk.truncated);
  return { lines: tail < 1 ? [] : lines, truncated: isCut, missedBytes: 0 };
}

/** Reads the last lines of the log at a path. */
async function* readLog(
  docker: Dockerode,
  path: string,
  tail: number,
  hasTerminal: boolean,
): AsyncGenerator<LogRecord[], void> {
  const options = { ...query(tail), follow: false };
  const request = { path: `${path}/logs?`, method: "GET", statusCodes: { 200: true }, options };
  const dial = promisify(docker.modem.dial.bind(docker.modem));
  const reader = createReader(hasTerminal);
  for await (const chunk of (await dial({ ...request, isStream: true })) as AsyncIterable<Buffer>) {
    yield reader.read(chunk);
  }
  yield reader.end();
}

function createReader(hasTerminal: boolean): FramedLogReader | TerminalLogReader {
  if (hasTerminal) return new TerminalLogReader();
  return new FramedLogReader(
    (bytes) => details.exec(bytes.toString("latin1", 0, maxDetailsLength))?.[0].length ?? 0,
  );
}

/** Includes the details, which name the task of a line. */
function query(tail: number, sinceMs?: number) {
  return { ...logQuery(tail, sinceMs), details: true } as const;
}

function named(lines: readonly LogRecord[], part: string, tasks: readonly SwarmTask[]): LogRecord[] {
  const names = new Map(
    tasks.map(({ id, slot, node }) => {
      const whole = taskName(part, slot);
      return [id, node === "" ? whole : `${whole}@${node}`];
    }),
  );
  return lines.flatMap((line) => {
    const [found = "", task = ""] = details.exec(line.text) ?? [];
    if (found === "") return missing(line, tasks);
    const text = line.text.slice(found.length);
    return [{ ...line, text: `${names.get(task) ?? task.slice(0, 12)} | ${text}` }];
  });
}

/** Lines of tasks always have details; the swarm's message about missing lines has none, and no time. */
function missing(line: LogRecord, tasks: readonly SwarmTask[]): LogRecord[] {
  const reasons = incomplete.exec(line.text)?.[1]?.split(", ");
  if (reasons === undefined) return [line];
  const away = reasons.flatMap((reason) => {
    const id = nodeAway.exec(reason)?.[1];
    return id === undefined ? [] : [nodeName(id, tasks)];
  });
  const others = reasons.filter((reason) => !nodeAway.test(reason) && !unplaced.test(reason));
  const notes = [...(away.length === 0 ? [] : [didNotAnswer(away)]), ...others];
  // A task without a node has printed nothing.
  return notes.length === 0 ? [] : [missingLine(notes.join("; "))];
}

function nodeName(id: string, tasks: readonly SwarmTask[]): string {
  return tasks.find(({ nodeId, node }) => nodeId === id && node !== "")?.node ?? `node ${id.slice(0, 12)}`;
}

function didNotAnswer(nodes: readonly string[]): string {
  return `${[...new Set(nodes)].sort().join(", ")} did not respond`;
}

function missingLine(why: string): LogRecord {
  const text = `${why}: lines of its tasks are missing here`;
  return { timeMs: Date.now(), stream: "svc", text };
}
