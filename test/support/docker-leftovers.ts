/** Remains of a killed engine: shims, their containers and control groups. */
import { readdir, readFile, rmdir } from "node:fs/promises";
import { join } from "node:path";
import { eventually } from "./eventually.ts";

export interface EngineTraces {
  /** The shims name it in their arguments. */
  execRoot: string;
  /** The control group that holds all of its containers. */
  cgroup: string;
}

/** Kills every process of the engine and removes its control groups. */
export async function removeLeftovers({ execRoot, cgroup }: EngineTraces): Promise<void> {
  await eventually(async () => {
    const groups = await findGroups(cgroup);
    const pids = [...(await shimsOf(execRoot)), ...(await membersOf(groups))];
    for (const pid of pids) kill(pid);
    if (pids.length > 0) throw new Error(`processes ${pids.join(", ")} of the engine still run`);
    for (const group of groups.reverse()) await rmdir(group).catch(ignoreMissing);
  });
}

async function shimsOf(execRoot: string): Promise<number[]> {
  const pids: number[] = [];
  for (const entry of await readdir("/proc")) {
    if (!/^\d+$/.test(entry)) continue;
    const commandLine = await readFile(`/proc/${entry}/cmdline`, "utf8").catch(() => "");
    if (commandLine.includes(execRoot)) pids.push(Number(entry));
  }
  return pids;
}

async function membersOf(groups: readonly string[]): Promise<number[]> {
  const lists = await Promise.all(
    groups.map((group) => readFile(join(group, "cgroup.procs"), "utf8").catch(() => "")),
  );
  return [...new Set(lists.join("\n").split("\n").filter(Boolean).map(Number))];
}

/** The group itself and those below it, parents first, in every hierarchy. */
async function findGroups(name: string): Promise<string[]> {
  const root = "/sys/fs/cgroup";
  const hierarchies = await readdir(root);
  const candidates = [join(root, name), ...hierarchies.map((hierarchy) => join(root, hierarchy, name))];
  const groups: string[] = [];
  for (const directory of candidates) {
    const below = await readdir(directory, { recursive: true, withFileTypes: true }).catch(() => undefined);
    if (below === undefined) continue;
    const children = below.filter((entry) => entry.isDirectory());
    groups.push(directory, ...children.map((entry) => join(entry.parentPath, entry.name)));
  }
  return groups;
}

function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

function ignoreMissing(error: NodeJS.ErrnoException): void {
  if (error.code !== "ENOENT") throw error;
}
