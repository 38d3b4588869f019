/** Memory of a process with all its descendants. */
import { readdir, readFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { memoryMib } from "./processes.ts";

const intervalMs = 200;

/** PSS in MiB: shared memory counts once. */
export async function treeMemoryMib(pid: number): Promise<number> {
  const weights = await Promise.all(
    (await withDescendants(pid)).map((each) =>
      memoryMib(each).then(
        ({ pss }) => pss,
        // It has exited.
        () => 0,
      ),
    ),
  );
  return weights.reduce((sum, weight) => sum + (Number.isNaN(weight) ? 0 : weight), 0);
}

/** The maximum while `work` ran. */
export async function peakMemoryMib(pid: number, work: Promise<unknown>): Promise<number> {
  const ended = { is: false };
  const watched = work.finally(() => (ended.is = true));
  watched.catch(() => undefined);
  let peak = 0;
  while (!ended.is) {
    peak = Math.max(peak, await treeMemoryMib(pid));
    await sleep(intervalMs);
  }
  await watched;
  return peak;
}

async function withDescendants(pid: number): Promise<number[]> {
  const tasks = await readdir(`/proc/${pid}/task`).catch(() => []);
  const children = await Promise.all(
    tasks.map((task) => readFile(`/proc/${pid}/task/${task}/children`, "utf8").catch(() => "")),
  );
  const pids = children.join("").split(" ").filter(Boolean).map(Number);
  return [pid, ...(await Promise.all(pids.map(withDescendants))).flat()];
}
