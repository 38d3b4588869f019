/** The host's containers through svc, compared with the engine's own REST API and CLI in the same run. */
import { execFile } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { startEngine, whyNoDocker, type TestEngine } from "../test/support/docker.ts";
import { startDaemon, type BenchDaemon } from "./support/daemon.ts";
import { sendRequests, type Target } from "./support/load.ts";
import { bareNodeMemoryMib, memoryMib, runProgram } from "./support/processes.ts";
import { amount, type Bench, type Result } from "./support/result.ts";
import { median, timeMs } from "./support/statistics.ts";

const containers = 100;
const running = 20;
const rounds = 7;
/** Requests of one round: as many as take about a second. */
const requests = { svc: 4_000, engine: 200 };
const statsRuns = 7;
const commandRuns = 15;
const settleMs = 5_000;

export const bench: Bench = {
  name: "docker",
  async run() {
    if (whyNoDocker !== undefined) {
      console.error(`docker: skipped, ${whyNoDocker}`);
      return [];
    }
    await using engine = await startEngine();
    await using daemon = await startDaemon(engine.config);
    await sleep(settleMs);
    const before = await memoryMib(daemon.pid);
    await furnish(engine);
    const results = [await measureList(daemon, engine), await measureStats(daemon, engine)];
    results.push(...(await measureCommand(daemon, engine)));
    await sleep(settleMs);
    const after = await memoryMib(daemon.pid);
    const bare = await bareNodeMemoryMib();
    results.push({
      what: `daemon with ${containers} containers (RSS)`,
      measured: `${amount(after.rss, "MiB")}, before ${amount(before.rss, "MiB")}`,
      yardstick: `bare Node ${amount(bare.rss, "MiB")}`,
      value: after.rss,
      goal: 150,
      unit: "MiB",
      runs: 1,
    });
    return results;
  },
};

/** All created, some running. */
async function furnish(engine: TestEngine): Promise<void> {
  await engine.images.build("svc/app:1");
  for (let at = 0; at < containers; at += 1) {
    const body = {
      Image: "svc/app:1",
      Cmd: ["/bin/sleep", "100000"],
      Labels: { "com.docker.compose.project": `project-${at % 10}`, "org.example.number": String(at) },
      HostConfig: { NetworkMode: "none" },
    };
    if (at < running) await engine.run(`c${at}`, body);
    else (await engine.request("POST", `/containers/create?name=c${at}`, body)).expect(201);
  }
}

async function measureList(daemon: BenchDaemon, engine: TestEngine): Promise<Result> {
  const ask = async (target: Target, path: string, count: number): Promise<number> =>
    count / ((await timeMs(() => sendRequests(target, path, count))) / 1_000);
  const [svc, own]: [number[], number[]] = [[], []];
  for (let round = -1; round < rounds; round += 1) {
    const svcRate = await ask(daemon, "/v1/docker/containers?all=1", requests.svc);
    const ownRate = await ask(engine, "/containers/json?all=1", requests.engine);
    if (round < 0) continue;
    svc.push(svcRate);
    own.push(ownRate);
  }
  return {
    what: `list of ${containers} containers, with the apps that own them`,
    measured: `${median(svc).toFixed(0)} requests/s`,
    yardstick: `dockerd's own ${median(own).toFixed(0)} requests/s`,
    value: median(svc) / median(own),
    goal: 10,
    isFloor: true,
    unit: "×",
    runs: rounds,
  };
}

async function measureStats(daemon: BenchDaemon, engine: TestEngine): Promise<Result> {
  const times: number[] = [];
  for (let run = 0; run < statsRuns; run += 1) times.push(await timeMs(() => daemon.get("/v1/docker/stats")));
  const docker = await dockerCommand(engine);
  const own = docker && (await timeMs(() => docker("stats", "--no-stream")));
  return {
    what: `statistics of ${running} running containers`,
    measured: amount(median(times), "ms"),
    yardstick: own === undefined ? "no docker command here" : `\`docker stats\` ${amount(own, "ms")}`,
    value: median(times),
    goal: 700,
    unit: "ms",
    runs: statsRuns,
  };
}

async function measureCommand(daemon: BenchDaemon, engine: TestEngine): Promise<Result[]> {
  const docker = await dockerCommand(engine);
  if (docker === undefined) return [];
  const [svc, own]: [number[], number[]] = [[], []];
  for (let run = 0; run < commandRuns; run += 1) {
    svc.push(await timeMs(() => daemon.svc("docker", "ps", "--all")));
    own.push(await timeMs(() => docker("ps", "--all")));
  }
  return [
    {
      what: `\`svc docker ps --all\`, ${containers} containers`,
      measured: amount(median(svc), "ms"),
      yardstick: `\`docker ps --all\` ${amount(median(own), "ms")}`,
      value: median(svc) / median(own),
      goal: 3,
      unit: "×",
      runs: commandRuns,
    },
  ];
}

type DockerCommand = (...args: string[]) => Promise<string>;

/** The engine's own CLI; undefined if it is not installed. */
async function dockerCommand(engine: TestEngine): Promise<DockerCommand | undefined> {
  try {
    await promisify(execFile)("docker", ["--version"]);
  } catch {
    return undefined;
  }
  return (...args) => runProgram("docker", "--host", `unix://${engine.socket}`, ...args);
}
