/** What the tasks of a service print, wherever they run, as one log. */
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import type Dockerode from "dockerode";
import type { DockerEngine } from "../../docker/engine.ts";
import { KeptLines, logQuery, maxAnswerBytes } from "../../docker/container-logs.ts";
import { FramedLogReader, TerminalLogReader } from "../../docker/log-lines.ts";
import type { LogChunk, LogRecord } from "../runtime.ts";
import { taskName, type SwarmTask } from "./swarm-api.ts";

export interface ServiceLogOptions {
  /** How many of the last lines; `Infinity` for all. */
  tail: number;
  /** Nothing older than this, unix milliseconds. */
  sinceMs?: number | undefined;
  /** The service of a compose project, which its lines begin with; empty for none. */
  part: string;
  /** Of the service: what their lines are called. */
  tasks: readonly SwarmTask[];
  hasTerminal: boolean;
  signal?: AbortSignal | undefined;
}

const readTimeoutMs = 60_000;
const awayPollMs = 5_000;
/** The engine begins each line with these, in this order. */
const details =
  /^com\.docker\.swarm\.node\.id=\w*,com\.docker\.swarm\.service\.id=\w*,com\.docker\.swarm\.task\.id=(\w*) ?/;
/** More than they take. */
const maxDetailsLength = 256;

/** What the engine says last when some tasks' lines are missing, and each of the reasons that it may have for that. */
const incomplete = /^Error grabbing logs: .*incomplete log stream\..*?following reasons: (.*)$/;
const nodeAway = /^node (\w+) (?:is not available|disconnected unexpectedly)$/;
const unplaced = /^task \w+ has not been scheduled$/;

/** The last lines of all tasks together, by time, each with its slot and node in front; `truncated` when they pass 8 MiB. */
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

/** The last lines of one task, as it printed them. */
export async function readTaskLog(
  engine: DockerEngine,
  taskId: string,
  { tail, hasTerminal }: Pick<ServiceLogOptions, "tail" | "hasTerminal">,
): Promise<string[]> {
  return engine.operate(
    "read the log of a task",
    async (docker) => {
      const lines = (await Array.fromAsync(readLog(docker, `/tasks/${taskId}`, tail, hasTerminal))).flat();
      // What has no details is the swarm's own word.
      const own = lines.flatMap(({ text }) => {
        const [found = ""] = details.exec(text) ?? [];
        return found === "" ? [] : [text.slice(found.length)];
      });
      return own.slice(-tail);
    },
    { timeoutMs: readTimeoutMs },
  );
}

/** The last lines by time of those that come in any order, as each task's do, in bounded memory. */
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
    const kept = new KeptLines(this.#maxLines);
    kept.add(this.#lines.sort((a, b) => a.timeMs - b.timeMs));
    const { lines, truncated } = kept.chunk();
    this.#lines = [...lines];
    this.#sizeBytes = lines.reduce((sum, { text }) => sum + Buffer.byteLength(text), 0);
    this.#truncated ||= truncated;
  }

  chunk(): LogChunk {
    this.#drop();
    return { lines: this.#lines, truncated: this.#truncated, missedBytes: 0 };
  }
}

/** The last lines and then each new one, until the service is removed or `signal` aborts. */
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
    { signal, of: `the service ${serviceId}` },
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
  /** Ids of nodes that do not answer. @throws SvcError while that cannot be told */
  awayNow: () => Promise<ReadonlySet<string>>;
  tasksNow: () => readonly SwarmTask[];
  signal: AbortSignal;
  everyMs?: number;
}

/** Says of each node that tasks were given to when it does not answer: the engine says that only at the end of a log. */
export async function* followAway({
  awayNow,
  tasksNow,
  signal,
  everyMs = awayPollMs,
}: AwayOptions): AsyncGenerator<LogChunk, void> {
  let told: ReadonlySet<string> = new Set();
  while (!signal.aborted) {
    const away = await awayNow().catch(() => told);
    const ids = new Set(tasksNow().flatMap(({ nodeId }) => (away.has(nodeId) ? [nodeId] : [])));
    const names = [...ids].filter((id) => !told.has(id)).map((id) => nodeName(id, tasksNow()));
    told = ids;
    if (names.length > 0)
      yield { lines: [missingLine(didNotAnswer(names))], truncated: false, missedBytes: 0 };
    await sleep(everyMs, undefined, { signal }).catch(() => undefined);
  }
}

/** The logs of several services as one, each as it comes, until all of them end. @param beside what is said meanwhile */
export async function* followTogether(
  follow: readonly ((signal: AbortSignal) => AsyncGenerator<LogChunk, void>)[],
  beside: (signal: AbortSignal) => AsyncGenerator<LogChunk, void>,
  signal: AbortSignal,
): AsyncGenerator<LogChunk, void> {
  const ended = new AbortController();
  const either = AbortSignal.any([signal, ended.signal]);
  const next = async (source: AsyncGenerator<LogChunk, void>) => ({ source, result: await source.next() });
  const sources = follow.map((begin) => begin(either));
  const left = new Set(sources);
  const waiting = new Map([...sources, beside(either)].map((source) => [source, next(source)]));
  try {
    while (left.size > 0) {
      const { source, result } = await Promise.race(waiting.values());
      if (result.done === true) {
        waiting.delete(source);
        left.delete(source);
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

/** Those of several services as one: the last lines by time. */
export function mergeLogs(chunks: readonly LogChunk[], tail: number): LogChunk {
  const [only, ...others] = chunks;
  if (only !== undefined && others.length === 0) return only;
  const kept = new KeptLines(Math.max(1, tail));
  kept.add(chunks.flatMap(({ lines }) => lines).sort((a, b) => a.timeMs - b.timeMs));
  const { lines, truncated } = kept.chunk();
  const isCut = truncated || chunks.some((chunk) => chunk.truncated);
  return { lines: tail < 1 ? [] : lines, truncated: isCut, missedBytes: 0 };
}

/** The last lines of what the path names, as they come. */
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

/** With the details, which name the task of a line. */
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

/** No task's line comes without its details; the swarm's own word about what is missing does, and has no time. */
function missing(line: LogRecord, tasks: readonly SwarmTask[]): LogRecord[] {
  const reasons = incomplete.exec(line.text)?.[1]?.split(", ");
  if (reasons === undefined) return [line];
  const away = reasons.flatMap((reason) => {
    const id = nodeAway.exec(reason)?.[1];
    return id === undefined ? [] : [nodeName(id, tasks)];
  });
  const others = reasons.filter((reason) => !nodeAway.test(reason) && !unplaced.test(reason));
  const said = [...(away.length === 0 ? [] : [didNotAnswer(away)]), ...others];
  // A task that was given to no node has printed nothing.
  return said.length === 0 ? [] : [missingLine(said.join("; "))];
}

function nodeName(id: string, tasks: readonly SwarmTask[]): string {
  return tasks.find(({ nodeId, node }) => nodeId === id && node !== "")?.node ?? `node ${id.slice(0, 12)}`;
}

function didNotAnswer(nodes: readonly string[]): string {
  return `${[...new Set(nodes)].sort().join(", ")} did not answer`;
}

function missingLine(why: string): LogRecord {
  const text = `${why}: the lines of what ran there are missing here`;
  return { timeMs: Date.now(), stream: "svc", text };
}
