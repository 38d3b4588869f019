/** Uids that no account, no user namespace and no process of the host has. */
import { randomInt } from "node:crypto";
import { readdir, readFile, stat } from "node:fs/promises";
import type { Users } from "./user.ts";

/** Above the ranges of systemd's containers and of SSSD, below those that systemd reserves. */
const firstUid = 2_000_300_000;
const lastUid = 2_147_280_000;
const maxTries = 16;
/** Processes that are examined at a time: users can start tens of thousands. */
const scanned = 64;

/** Chooses a random uid, which is also an unused gid. @throws Error if all tries are used */
export async function chooseUnusedUid(
  users: Pick<Users, "isUnused">,
  draw: () => number = () => randomInt(firstUid, lastUid),
): Promise<number> {
  for (let tries = 0; tries < maxTries; tries += 1) {
    const uid = draw();
    const [isUnused, isDelegated, processes] = await Promise.all([
      users.isUnused(uid),
      isInSubordinateRange(uid),
      processesOf(uid),
    ]);
    if (isUnused && !isDelegated && processes.length === 0) return uid;
  }
  throw new Error(`no unused uid found in ${maxTries} tries`);
}

/** The PIDs of a uid's processes, without those that have exited. */
export async function processesOf(uid: number): Promise<number[]> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const living: number[] = [];
  for (let start = 0; start < pids.length; start += scanned) {
    const some = pids.slice(start, start + scanned);
    const isLiving = await Promise.all(some.map((pid) => isLivingOf(uid, pid)));
    living.push(...some.filter((_, index) => isLiving[index]).map(Number));
  }
  return living;
}

async function isLivingOf(uid: number, pid: string): Promise<boolean> {
  const stats = await stat(`/proc/${pid}`).catch(() => undefined);
  return stats?.uid === uid && !(await hasExited(pid));
}

async function hasExited(pid: string): Promise<boolean> {
  const text = await readFile(`/proc/${pid}/stat`, "latin1").catch(() => ") X");
  return /^[ZX]/.test(text.slice(text.lastIndexOf(")") + 2));
}

async function isInSubordinateRange(id: number): Promise<boolean> {
  const files = await Promise.all(
    ["/etc/subuid", "/etc/subgid"].map((path) => readFile(path, "utf8").catch(() => "")),
  );
  return files.some((text) => rangesIn(text).some(([first, count]) => id >= first && id < first + count));
}

/** The ranges of subuid(5), as first ID and count. */
export function rangesIn(text: string): [first: number, count: number][] {
  return [...text.matchAll(/^[^:#\n]+:(\d+):(\d+)\s*$/gm)].map(([, first, count]) => [
    Number(first),
    Number(count),
  ]);
}
