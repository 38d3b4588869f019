/** What the tasks of a service print, wherever they run, as one log. */
import { promisify } from "node:util";
import type Dockerode from "dockerode";
import type { DockerEngine } from "../../docker/engine.ts";
import { FramedLogReader, TerminalLogReader } from "../../docker/log-lines.ts";
import type { LogChunk, LogRecord } from "../runtime.ts";
import type { SwarmTask } from "./swarm-api.ts";

export interface ServiceLogOptions {
  tail: number;
  /** Of the service: what their lines are called. */
  tasks: readonly SwarmTask[];
  hasTerminal: boolean;
  signal?: AbortSignal | undefined;
}

const readTimeoutMs = 60_000;
/** The engine begins each line with these, in this order. */
const details =
  /^com\.docker\.swarm\.node\.id=\w*,com\.docker\.swarm\.service\.id=\w*,com\.docker\.swarm\.task\.id=(\w*) ?/;

/** The last lines of all tasks together, by time, each with its slot and node in front. */
export async function readServiceLog(
  engine: DockerEngine,
  serviceId: string,
  { tail, tasks, hasTerminal, signal }: ServiceLogOptions,
): Promise<LogChunk> {
  if (tail < 1) return { lines: [], truncated: false, missedBytes: 0 };
  const lines = await engine.operate(
    "read the log of a service",
    async (docker) => {
      const reader = createReader(hasTerminal);
      const found: LogRecord[] = [];
      for await (const chunk of await openLog(docker, serviceId, { ...query(tail), follow: false })) {
        found.push(...reader.read(chunk));
      }
      return [...found, ...reader.end()];
    },
    { timeoutMs: readTimeoutMs, signal },
  );
  const sorted = named(lines, tasks).sort((a, b) => a.timeMs - b.timeMs);
  return { lines: sorted.slice(-tail), truncated: false, missedBytes: 0 };
}

/** The last lines and then each new one, until the service is removed or `signal` aborts. */
export async function* followServiceLog(
  engine: DockerEngine,
  serviceId: string,
  {
    tail,
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
    (docker) => docker.getService(serviceId).logs({ ...query(tail), follow: true }),
    { signal },
  );
  const reader = createReader(hasTerminal);
  try {
    for await (const chunk of opened.chunks) {
      const lines = named(reader.read(chunk), tasksNow());
      if (lines.length > 0) yield { lines, truncated: false, missedBytes: 0 };
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

async function openLog(docker: Dockerode, id: string, options: object): Promise<AsyncIterable<Buffer>> {
  const request = { path: `/services/${id}/logs?`, method: "GET", statusCodes: { 200: true }, options };
  const dial = promisify(docker.modem.dial.bind(docker.modem));
  return (await dial({ ...request, isStream: true })) as AsyncIterable<Buffer>;
}

function createReader(hasTerminal: boolean): FramedLogReader | TerminalLogReader {
  return hasTerminal ? new TerminalLogReader() : new FramedLogReader();
}

function query(tail: number): { stdout: true; stderr: true; timestamps: true; details: true; tail: number } {
  return { stdout: true, stderr: true, timestamps: true, details: true, tail };
}

function named(lines: readonly LogRecord[], tasks: readonly SwarmTask[]): LogRecord[] {
  const names = new Map(
    tasks.map(({ id, slot, node }) => [id, node === "" ? String(slot) : `${slot}@${node}`]),
  );
  return lines.map((line) => {
    const [found = "", task = ""] = details.exec(line.text) ?? [];
    const text = line.text.slice(found.length);
    return found === "" ? line : { ...line, text: `${names.get(task) ?? task.slice(0, 12)} | ${text}` };
  });
}
