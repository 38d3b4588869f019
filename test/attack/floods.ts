/** One user floods the daemon in every known way; root, another user and a token's client must not notice. */
import { chmod, mkdir, writeFile } from "node:fs/promises";
import { Agent, request, type RequestOptions } from "node:http";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { rootSocketOf } from "../../src/lib/paths.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { attackAs } from "./as-user.ts";
import type { Finding } from "./scenario.ts";

const attacker = 65_534;
const other = 5;

export const floods = [
  ...[
    "connections",
    "consoles",
    "messages of consoles",
    "histories",
    "lists",
    "streams of HTTP/2",
    "windows of HTTP/2",
    "bytes of HTTP/2",
    "messages of gRPC",
    "frames of consoles",
    "blank lines",
    "large bodies",
    "deep bodies",
    "installs",
    "followers",
    "supervisor's lines",
  ],
];

const ofRunningApp: ReadonlySet<string> = new Set(["followers", "supervisor's lines"]);

const manifest = `id: flooder
name: A package of somebody who floods
version: "1.0.0"
summary: Says a line every millisecond.
process:
  exec: [node, app.mjs]
settings:
  properties:
    slow: { type: string, default: a, pattern: "^(a+)+$", env: SLOW }
`;

export interface FloodScale {
  /** How long each flood lasts. */
  readonly forMs: number;
  /** The user's maximum share of each kind of connections. */
  readonly scale: number;
  /** The latency limit for 99 of 100 status requests of root. */
  readonly mostRootMs: number;
  /** The limit for another user and for a token's client. */
  readonly mostOthersMs: number;
  /** The limit for the median of each client. */
  readonly mostMedianMs: number;
}

/** Without a flood, with each single flood, and with all together. */
export async function attackWithFloods(scale: FloodScale): Promise<Finding[]> {
  const findings: Finding[] = [];
  for (const kinds of [[], ...floods.map((kind) => [kind]), floods]) {
    await using daemon = await startDaemon();
    findings.push(await flood(daemon, kinds, scale));
  }
  return findings;
}

export async function flood(
  daemon: TestDaemon,
  kinds: readonly string[],
  { forMs, scale, mostRootMs, mostOthersMs, mostMedianMs }: FloodScale,
): Promise<Finding> {
  await using connection = await daemon.as(attacker);
  await using otherConnection = await daemon.as(other);
  const spec = join(daemon.dir, "flooder");
  await writeFlooder(spec);
  const { id } = await connection.client(AppService).installApp({ spec });
  if (kinds.some((kind) => ofRunningApp.has(kind))) await connection.client(AppService).startApp({ id });
  const runDir = join(daemon.storeDir, "run", id);
  // A new connection waits to be accepted; all users except root share one queue.
  const watchers = await Promise.all([
    openWatcher("root", { socketPath: daemon.socketPath }),
    openWatcher("root, a new connection each time", { socketPath: rootSocketOf(daemon.socketPath) }, true),
    openWatcher("another user", { socketPath: otherConnection.socketPath }),
    openWatcher("another user, a new connection each time", { socketPath: otherConnection.socketPath }, true),
    openWatcher("a token's holder", byToken(daemon)),
  ]);
  await using flooding = attackAs(attacker, "send-floods.mjs", {
    ...{ path: daemon.socketPath, kinds, scale },
    ...{ appId: id, spec, runDir },
  });
  await flooding.nextLine();
  const seen = await Promise.all(watchers.map((watch) => watch(forMs)));
  const p99sMs = seen.map(({ timesMs }) => percentile(timesMs, 0.99));
  const mediansMs = seen.map(({ timesMs }) => percentile(timesMs, 0.5));
  return {
    attack: `flood of ${kinds.join(", ") || "nothing"}`,
    text: seen.map(({ name, timesMs }) => `${name} ${describe(timesMs)}`).join("; "),
    isGood:
      p99sMs.every((p99Ms, index) => p99Ms <= (index < 2 ? mostRootMs : mostOthersMs)) &&
      mediansMs.every((medianMs) => medianMs <= mostMedianMs),
  };
}

async function writeFlooder(dir: string): Promise<void> {
  await mkdir(dir);
  await chmod(dir, 0o755);
  await writeFile(join(dir, "svc.yaml"), manifest);
  await writeFile(join(dir, "app.mjs"), "setInterval(() => console.log('x'.repeat(200)), 1);\n");
}

function byToken({ port, token }: TestDaemon): RequestOptions {
  return { host: "127.0.0.1", port, headers: { authorization: `Bearer ${token}` } };
}

interface Seen {
  readonly name: string;
  /** Milliseconds of each `GET /v1/status`, the shortest first. */
  readonly timesMs: readonly number[];
}

/** Connects; resolves with a function that requests the status, one request after the other. */
async function openWatcher(
  name: string,
  target: RequestOptions,
  usesNewConnections = false,
): Promise<(forMs: number) => Promise<Seen>> {
  const agent = new Agent({ keepAlive: !usesNewConnections, maxSockets: 1 });
  const ask = async (): Promise<number> => {
    const startMs = performance.now();
    const status = await getStatus({ ...target, agent });
    if (status !== 200) throw new Error(`GET /v1/status returned ${status}`);
    return performance.now() - startMs;
  };
  await ask();
  return async (forMs) => {
    const timesMs: number[] = [];
    const endMs = performance.now() + forMs;
    while (performance.now() < endMs) {
      timesMs.push(await ask());
      await wait(5);
    }
    agent.destroy();
    return { name, timesMs: timesMs.toSorted((left, right) => left - right) };
  };
}

function getStatus(target: RequestOptions): Promise<number> {
  return new Promise((resolve, reject) => {
    request({ ...target, path: "/v1/status" }, (response) => {
      response.resume().on("end", () => resolve(response.statusCode ?? 0));
    })
      .on("error", reject)
      .end();
  });
}

function describe(timesMs: readonly number[]): string {
  const [p50, p99] = [0.5, 0.99].map((part) => percentile(timesMs, part).toFixed(1));
  return `p50 ${p50} p99 ${p99} ms (${timesMs.length} requests)`;
}

function percentile(sorted: readonly number[], part: number): number {
  return sorted[Math.floor(sorted.length * part)] ?? Number.POSITIVE_INFINITY;
}
