/** The cost of REST responses for the daemon, compared with plain `node:http` that sends the same bytes. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { ChildServer } from "./support/child-server.ts";
import { startDaemon } from "./support/daemon.ts";
import { compareCpuUs, getOnce, sendRequests, type Target } from "./support/load.ts";
import { temporaryDirectory } from "./support/temporary-directory.ts";
import { amount, type Bench, type Result } from "./support/result.ts";

const runs = 15;
/** Sent to both before anything counts, so that both have compiled their code. */
const warmUpRequests = 10_000;
const listSizes = [100, 1_000];

export const bench: Bench = {
  name: "rest",
  async run() {
    const results: Result[] = [];
    {
      await using daemon = await startDaemon();
      const status = { path: "/v1/status", what: "`GET /v1/status`", goal: 0.1, count: 3_000 };
      results.push(await compare(daemon, daemon.dir, status));
    }
    await using directory = await temporaryDirectory();
    for (const apps of listSizes) {
      const count = 100_000 / apps + 500;
      const what = `\`GET /v1/apps\`, ${apps.toLocaleString("en")} apps`;
      const socket = join(directory.path, "gateway.sock");
      await using gateway = await ChildServer.start("gateway-server.ts", socket, String(apps));
      const list = { path: "/v1/apps", what, goal: 0.4, count };
      results.push(await compare(gateway, directory.path, list));
    }
    return results;
  },
};

interface Question {
  path: string;
  what: string;
  goal: number;
  /** Requests of one run. */
  count: number;
}

/** The ratio of the plain server's CPU time per response to the measured one; above 1 the measured one needs less. */
async function compare(
  measured: Target,
  dir: string,
  { path, what, goal, count }: Question,
): Promise<Result> {
  const file = join(dir, "answer.json");
  await writeFile(file, await getOnce(measured, path));
  await using bare = await ChildServer.start("bare-server.ts", join(dir, "bare.sock"), file);
  for (const target of [measured, bare]) await sendRequests(target, path, warmUpRequests);
  const { measuredUs, yardstickUs } = await compareCpuUs(
    runs,
    count,
    { pid: measured.pid, work: () => sendRequests(measured, path, count) },
    { pid: bare.pid, work: () => sendRequests(bare, path, count) },
  );
  return {
    what,
    measured: `${amount(measuredUs, "µs")} of processor time`,
    yardstick: `ready bytes from \`node:http\` ${amount(yardstickUs, "µs")}`,
    value: yardstickUs / measuredUs,
    goal,
    isFloor: true,
    unit: "×",
    runs,
  };
}
