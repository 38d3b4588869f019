/** The delay of every command: common commands compared with the start of Node itself. */
import { startEngine, whyNoDocker } from "../test/support/docker.ts";
import { program, startDaemon, type BenchDaemon } from "./support/daemon.ts";
import { fillStore } from "./support/many-apps.ts";
import { childProcessorMs, runBareNode, runProgram } from "./support/processes.ts";
import type { Bench, Result } from "./support/result.ts";
import { median, timeMs } from "./support/statistics.ts";

const runs = 30;
const apps = 1_000;

interface Cost {
  readonly wallMs: number;
  readonly processorMs: number;
}

export const bench: Bench = {
  name: "cli-start",
  async run() {
    await using daemon = await startDaemon();
    await daemon.svc("install", await daemon.writePackage("idle", "setInterval(() => {}, 1e6);\n"));
    const commands = [
      { what: "`svc ls` over the socket", goal: 2, run: () => daemon.svc("ls") },
      { what: "`svc --help`", goal: 3.5, run: () => runProgram(process.execPath, program, "--help") },
      {
        what: "completion of a command",
        goal: 3.5,
        run: () => runProgram(process.execPath, program, "__complete", "sch"),
      },
    ];
    const few = await measure(commands);
    await using full = await startDaemon();
    await fillStore(full, apps);
    await full.start();
    return [
      ...few,
      ...(await compareWithDocker(daemon)),
      ...(await measure([
        {
          what: `completion of an id, of ${apps.toLocaleString("en")}`,
          // 100 ms on hosts where Node takes 28.
          goal: 3.5,
          run: () =>
            runProgram(process.execPath, program, "__complete", "start", "--socket", full.socket, ""),
        },
      ])),
    ];
  },
};

/** The list of apps beside the list of the containers of an engine without any. */
async function compareWithDocker(daemon: BenchDaemon): Promise<Result[]> {
  if (whyNoDocker !== undefined) {
    console.error(`cli-start: docker ps is skipped, ${whyNoDocker}`);
    return [];
  }
  await using engine = await startEngine();
  const docker = (): Promise<string> => runProgram("docker", "--host", `unix://${engine.socket}`, "ps");
  const [svc, own] = await compareCosts([() => daemon.svc("ls"), docker]);
  if (svc === undefined || own === undefined) return [];
  return [
    {
      what: "`svc ls` over the socket, wall",
      measured: `${svc.wallMs.toFixed(1)} ms`,
      yardstick: `\`docker ps\` ${own.wallMs.toFixed(1)} ms`,
      value: svc.wallMs / own.wallMs,
      goal: 1,
      unit: "×",
      runs,
    },
  ];
}

interface MeasuredCommand {
  readonly what: string;
  readonly goal: number;
  readonly run: () => Promise<unknown>;
}

async function measure(commands: readonly MeasuredCommand[]): Promise<Result[]> {
  const costs = await compareCosts([runBareNode, ...commands.map(({ run }) => run)]);
  const [bare = { wallMs: NaN, processorMs: NaN }, ...measured] = costs;
  return commands.flatMap(({ what, goal }, at) => {
    const cost = measured[at] ?? { wallMs: NaN, processorMs: NaN };
    return [
      resultOf(`${what}, wall`, goal, cost.wallMs, bare.wallMs),
      resultOf(`${what}, processor`, goal, cost.processorMs, bare.processorMs),
    ];
  });
}

/** Runs all in turn, so that other load affects all alike; one round of each before it counts. */
async function compareCosts(works: readonly (() => Promise<unknown>)[]): Promise<Cost[]> {
  const samples = works.map((work) => ({ work, wallMs: [] as number[], processorMs: 0 }));
  for (let round = -1; round < runs; round += 1) {
    for (const sample of samples) {
      const before = await childProcessorMs();
      const wallMs = await timeMs(sample.work);
      const processorMs = (await childProcessorMs()) - before;
      if (round < 0) continue;
      sample.wallMs.push(wallMs);
      sample.processorMs += processorMs;
    }
  }
  return samples.map(({ wallMs, processorMs }) => ({
    wallMs: median(wallMs),
    processorMs: processorMs / runs,
  }));
}

function resultOf(what: string, goal: number, measuredMs: number, yardstickMs: number): Result {
  return {
    what,
    measured: `${measuredMs.toFixed(1)} ms`,
    yardstick: `\`node -e 0\` ${yardstickMs.toFixed(1)} ms`,
    value: measuredMs / yardstickMs,
    goal,
    unit: "×",
    runs,
  };
}
