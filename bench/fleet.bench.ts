/**
 * The cost of a platform for its nodes and of a node for its platform: rounds of status, push, metrics and events over
 * simulated nodes and real ones; and a node whose platform is away, slow, reconnects all links at once, or has another
 * version. `SVC_BENCH_TINY=1` runs it with little data.
 */
import { request as httpRequest, type ClientRequest } from "node:http";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { create, createFileRegistry, fromBinary, toBinary, type DescMessage } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { createClient } from "@connectrpc/connect";
import { AppService } from "../gen/svc/v1/app_pb.ts";
import { DaemonService, GetStatusRequestSchema, GetStatusResponseSchema } from "../gen/svc/v1/daemon_pb.ts";
import { socketTransport } from "../test/support/daemon.ts";
import { callsPerRound, comeBack, NodeLink, pushedJobs, type NodeAddress } from "./fleet/platform.ts";
import { ChildServer } from "./support/child-server.ts";
import { startDaemon, type BenchDaemon } from "./support/daemon.ts";
import { compareCpuUs, cpuUs, threadsUs } from "./support/load.ts";
import { memoryMib } from "./support/processes.ts";
import { amount, type Bench, type Result } from "./support/result.ts";
import { median, percentile } from "./support/statistics.ts";
import { temporaryDirectory } from "./support/temporary-directory.ts";

const isTiny = process.env["SVC_BENCH_TINY"] === "1";
const simulated = isTiny ? 20 : 500;
const real = isTiny ? 2 : 8;
const runs = isTiny ? 2 : 7;
const roundsPerRun = isTiny ? 5 : 20;
const following = isTiny ? 5 : 50;
const returning = isTiny ? 20 : 100;
const spreadMs = isTiny ? 2_000 : 10_000;
const quietMs = isTiny ? 2_000 : 20_000;
const missed = isTiny ? 100 : 2_000;
/** Until all followers were notified. */
const toldMs = 500;
const root = join(import.meta.dirname, "..");

export const bench: Bench = {
  name: "fleet",
  async run() {
    await using directory = await temporaryDirectory();
    await using bare = await ChildServer.start("bare-connect.ts", join(directory.path, "bare.sock"), "2");
    const results = [await measureSimulated(directory.path, bare), ...(await measureReal(bare))];
    await using node = await startDaemon();
    const { port, token } = await node.gateway();
    const gateway = { port, token };
    results.push(await measureVersions(node, gateway));
    results.push(await measureEvents(node, gateway));
    results.push(await measureSlow(node, gateway));
    results.push(...(await measureReturn(node, gateway)));
    results.push(await measureAway(node, gateway));
    return results;
  },
};

/** Calls of a plain server, as many as `rounds` of one link are. */
function bareCalls({ socket }: ChildServer, rounds: number): () => Promise<void> {
  const client = createClient(DaemonService, socketTransport(socket, "grpc"));
  return async () => {
    for (let call = 0; call < rounds * callsPerRound; call += 1) await client.getStatus({});
  };
}

/** Only the pipeline, and the platform's own side of it. */
async function measureSimulated(dir: string, bare: ChildServer): Promise<Result> {
  const path = join(dir, "node");
  await using nodes = await ChildServer.start("../fleet/simulated-nodes.ts", path, String(simulated));
  using links = linksTo(Array.from({ length: simulated }, (_, at) => ({ socket: `${path}.${at}` })));
  const ended = new AbortController();
  for (const link of links.all) await link.follow(ended.signal);
  const before = process.cpuUsage();
  const { measuredUs, yardstickUs } = await compareCpuUs(
    runs,
    simulated,
    { pid: nodes.pid, work: () => links.round() },
    { pid: bare.pid, work: bareCalls(bare, simulated) },
  );
  const { user, system } = process.cpuUsage(before);
  const own = (user + system) / ((runs + 1) * simulated);
  ended.abort();
  return {
    what: `a round (status, push of ${pushedJobs} jobs, metrics) with each of ${simulated} simulated nodes that are followed; the platform has ${amount(own, "µs")} of its own, the yardstick's part with it`,
    measured: `${amount(measuredUs, "µs")} of a node's processor time`,
    yardstick: `${callsPerRound} calls of bare connect-node ${amount(yardstickUs, "µs")}`,
    value: measuredUs / yardstickUs,
    goal: 3,
    unit: "×",
    runs,
  };
}

/** The cost of each of its requests for a complete daemon that it follows, over TCP with a token. */
async function measureReal(bare: ChildServer): Promise<Result[]> {
  await using stack = new AsyncDisposableStack();
  const daemons: BenchDaemon[] = [];
  for (let at = 0; at < real; at += 1) daemons.push(stack.use(await startDaemon()));
  const gateways = await Promise.all(daemons.map((daemon) => daemon.gateway()));
  using links = linksTo(gateways);
  const ended = new AbortController();
  for (const link of links.all) {
    await link.untilReady();
    await link.follow(ended.signal);
  }
  let revision = 0;
  const pushChanged = (): Promise<void> => {
    revision += 1;
    return links.each((link) => link.push(revision));
  };
  const kinds: readonly { what: string; goal: number; work: () => Promise<void> }[] = [
    { what: "status with capabilities", goal: 3, work: () => links.each((link) => link.status()) },
    { what: "metrics", goal: 3, work: () => links.each((link) => link.metrics()) },
    {
      what: `a push of the same ${pushedJobs} jobs`,
      goal: 12,
      work: () => links.each((link) => link.push(revision)),
    },
    {
      what: `a push of ${pushedJobs} changed jobs`,
      goal: 12,
      work: pushChanged,
    },
  ];
  const pids = daemons.map(({ pid }) => pid);
  const cost = async (of: readonly number[], work: () => Promise<unknown>): Promise<number> => {
    const sum = async (): Promise<number> => (await Promise.all(of.map(cpuUs))).reduce((a, b) => a + b, 0);
    const before = await sum();
    await repeat(roundsPerRun, work);
    return ((await sum()) - before) / (roundsPerRun * of.length);
  };
  const callBare = bareCalls(bare, 1);
  const costs = kinds.map(() => [] as number[]);
  const bareCosts: number[] = [];
  for (let run = -1; run < runs; run += 1) {
    const measured: number[] = [];
    for (const { work } of kinds) measured.push(await cost(pids, work));
    const yardstick = (await cost([bare.pid], callBare)) / callsPerRound;
    if (run < 0) continue;
    measured.forEach((value, at) => costs[at]?.push(value));
    bareCosts.push(yardstick);
  }
  ended.abort();
  const yardstickUs = median(bareCosts);
  return kinds.map(({ what, goal }, at): Result => {
    const measuredUs = median(costs[at] ?? []);
    return {
      what: `${what}, of each of ${real} daemons that are followed`,
      measured: `${amount(measuredUs, "µs")} of a node's processor time`,
      yardstick: `a call of bare connect-node ${amount(yardstickUs, "µs")}`,
      value: measuredUs / yardstickUs,
      ...{ goal, unit: "×", runs },
    };
  });
}

/** The cost of one more follower for a node per event. */
async function measureEvents(node: BenchDaemon, gateway: Gateway): Promise<Result> {
  const change = await tellingApp(node, "told");
  const cost = async (): Promise<number> => {
    const before = await cpuUs(node.pid);
    await repeat(roundsPerRun, change);
    await sleep(toldMs);
    return ((await cpuUs(node.pid)) - before) / roundsPerRun;
  };
  await repeat(roundsPerRun, change);
  const [followed, alone]: [number[], number[]] = [[], []];
  let told = 0;
  for (let run = 0; run < runs; run += 1) {
    alone.push(await cost());
    using links = linksTo(Array.from({ length: following }, () => gateway));
    const ended = new AbortController();
    await links.each((link) => link.follow(ended.signal));
    followed.push(await cost());
    told += links.all.reduce((sum, link) => sum + link.told - 1, 0);
    ended.abort();
  }
  const changes = runs * roundsPerRun;
  const perChange = told / (changes * following);
  if (perChange < 1) throw new Error(`of ${changes} changes a follower received ${told / following}`);
  const without = median(alone);
  const each = (median(followed) - without) / (following * perChange);
  return {
    what: `an event to one more of ${following} followers`,
    measured: `${amount(each, "µs")} of a node's processor time`,
    yardstick: `the change of settings that it tells of, which nobody follows ${amount(without, "µs")}`,
    value: each / without,
    ...{ goal: 0.1, unit: "×", runs },
  };
}

/** An app whose settings changes are events. @returns a function that makes one */
async function tellingApp(node: BenchDaemon, id: string): Promise<() => Promise<void>> {
  const settings = "settings: { properties: { word: { type: string, default: none, env: WORD } } }\n";
  const apps = createClient(AppService, socketTransport(node.socket, "grpc"));
  await apps.installApp({ spec: await node.writePackage(id, "", settings) });
  let changes = 0;
  return async () => {
    changes += 1;
    await apps.updateAppSettings({ id, values: { word: String(changes) } });
  };
}

/** A platform of the previous year, and a future one with unknown fields, compared with today's. */
async function measureVersions(node: BenchDaemon, { port, token }: Gateway): Promise<Result> {
  const files = createFileRegistry(
    fromBinary(FileDescriptorSetSchema, await readFile(join(root, "proto/svc-0.1.0.binpb"))),
  );
  const older = files.getMessage("svc.v1.GetStatusResponse");
  if (older === undefined) throw new Error("0.1.0 had no GetStatus");
  const today = toBinary(GetStatusRequestSchema, create(GetStatusRequestSchema));
  // Field 1000, of 3,000 bytes.
  const future = Buffer.concat([today, Uint8Array.of(0xc2, 0x3e, 0xb8, 0x17), Buffer.alloc(3_000)]);
  const ask = async (body: Uint8Array, schema: DescMessage): Promise<void> => {
    const answer = await fetch(`http://127.0.0.1:${port}/svc.v1.DaemonService/GetStatus`, {
      method: "POST",
      headers: { "content-type": "application/proto", authorization: `Bearer ${token}` },
      body: Buffer.from(body),
    });
    const status = fromBinary(schema, new Uint8Array(await answer.arrayBuffer())) as { version?: string };
    if (!answer.ok || (status.version ?? "") === "") throw new Error(`the response was ${answer.status}`);
  };
  const askBoth = async (): Promise<void> => {
    await ask(today, older);
    await ask(future, older);
  };
  const count = 100 * roundsPerRun;
  const { measuredUs, yardstickUs } = await compareCpuUs(
    runs,
    count,
    {
      pid: node.pid,
      work: () => repeat(count / 2, askBoth),
    },
    { pid: node.pid, work: () => repeat(count, () => ask(today, GetStatusResponseSchema)) },
  );
  return {
    what: "status for a platform of 0.1.0 and for one with unknown fields of 3,000 bytes, in turn",
    measured: `${amount(measuredUs, "µs")} of processor time`,
    yardstick: `for one of today ${amount(yardstickUs, "µs")}`,
    value: measuredUs / yardstickUs,
    goal: 1.5,
    unit: "×",
    runs,
  };
}

interface Gateway {
  readonly port: number;
  readonly token: string;
}

/** It follows and does not read: what the node buffers for it is limited, and nobody else notices. */
async function measureSlow(node: BenchDaemon, { port, token }: Gateway): Promise<Result> {
  const follow = (): ClientRequest => {
    const headers = { authorization: `Bearer ${token}` };
    const asked = httpRequest({ host: "127.0.0.1", port, path: "/v1/events", headers });
    // Accepted and never read.
    asked.on("response", (answer) => answer.pause()).on("error", () => undefined);
    return asked.end();
  };
  const change = await tellingApp(node, "noisy");
  const makeEvents = (): Promise<void> => repeat(missed, change);
  await makeEvents();
  const alone = (await memoryMib(node.pid)).rss;
  const streams = Array.from({ length: 100 }, follow);
  using reader = new NodeLink({ port, token });
  const ended = new AbortController();
  await reader.follow(ended.signal);
  await sleep(500);
  await makeEvents();
  await sleep(toldMs);
  if (reader.told < missed) throw new Error(`of ${missed} changes ${reader.told} were received`);
  ended.abort();
  const { rss } = await memoryMib(node.pid);
  for (const stream of streams) stream.destroy();
  return {
    what: `memory that 100 streams of events take which nobody reads, after ${missed} changes`,
    measured: `${amount(rss, "MiB")} resident`,
    yardstick: `before ${amount(alone, "MiB")}`,
    value: rss / alone,
    goal: 1.5,
    unit: "×",
    runs: 1,
  };
}

/** The latency of another client of the node while a platform's links reconnect. */
async function measureReturn(node: BenchDaemon, gateway: Gateway): Promise<Result[]> {
  const during = async (work: Promise<unknown>): Promise<number> => {
    const waits: number[] = [];
    const ended = new AbortController();
    const over = work.finally(() => ended.abort());
    over.catch(() => undefined);
    while (!ended.signal.aborted) {
      const beganMs = performance.now();
      await node.get("/v1/status");
      waits.push(performance.now() - beganMs);
      await sleep(5);
    }
    await over;
    return percentile(waits, 0.99);
  };
  const alone = await during(sleep(spreadMs / 2));
  const atOnce = await during(comeBack(gateway, returning, 0));
  const jittered = await during(comeBack(gateway, returning, spreadMs));
  const row = (what: string, measuredMs: number, goal: number): Result => ({
    what: `p99 of another client's status while ${returning} links reconnect ${what}`,
    measured: amount(measuredMs, "ms"),
    yardstick: `while nobody does ${amount(alone, "ms")}`,
    value: measuredMs / alone,
    ...{ goal, unit: "×", runs: 1 },
  });
  return [row("all at once", atOnce, 100), row(`within ${spreadMs / 1_000} s, by chance`, jittered, 10)];
}

/** The work of a node for a platform that has disconnected, compared with the time before it connected. */
async function measureAway(node: BenchDaemon, gateway: Gateway): Promise<Result> {
  const quiet = async (): Promise<number> => {
    const before = await threadsUs(node.pid);
    await sleep(quietMs);
    const after = await threadsUs(node.pid);
    const spent = [...after].reduce((sum, [thread, us]) => sum + us - (before.get(thread) ?? 0), 0);
    return spent / (quietMs / 1_000);
  };
  const before = await quiet();
  {
    using links = linksTo(Array.from({ length: returning }, () => gateway));
    const ended = new AbortController();
    await links.each((link) => link.follow(ended.signal));
  }
  // These connections are broken now, as by a lost tunnel.
  await sleep(1_000);
  const after = await quiet();
  return {
    what: `CPU time per second without a platform, after ${returning} broken links`,
    measured: amount(after, "µs"),
    yardstick: `before they came ${amount(before, "µs")}`,
    // A share of one CPU.
    value: after / 10_000,
    goal: 0.5,
    unit: "%",
    runs: 1,
  };
}

interface Links extends Disposable {
  readonly all: readonly NodeLink[];
  each: (work: (link: NodeLink) => Promise<void>) => Promise<void>;
  /** One with each, a few at a time. */
  round: (revision?: number) => Promise<void>;
}

const atOnce = 8;

function linksTo(addresses: readonly NodeAddress[]): Links {
  const all = addresses.map((address) => new NodeLink(address));
  const each = async (work: (link: NodeLink) => Promise<void>): Promise<void> => {
    const left = [...all];
    const take = async (): Promise<void> => {
      for (let link = left.pop(); link !== undefined; link = left.pop()) await work(link);
    };
    await Promise.all(Array.from({ length: atOnce }, take));
  };
  return {
    all,
    each,
    round: (revision) => each((link) => link.round(revision)),
    [Symbol.dispose]: () => {
      for (const link of all) link[Symbol.dispose]();
    },
  };
}

async function repeat(times: number, work: () => Promise<unknown>): Promise<void> {
  for (let at = 0; at < times; at += 1) await work();
}
