/**
 * Kills the processes of a run as root, if the owner kills the helper that would end them. Only processes whose real uid is the
 * owner's are killed, because the owner can influence which processes belong to the run. The owner's files are not read.
 */
import { readFile, writeFile } from "node:fs/promises";
import { constants } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { createProcessOpener } from "../../sys/pidfd.ts";
import { ProcReader } from "../../sys/proc-reader.ts";
import { readProcessIdentity, type ProcessIdentity } from "../../sys/process-identity.ts";
import { membersOf, type SampledRun } from "../../sys/run-membership.ts";

export interface KillRunOptions {
  /** The app's cgroup, if it has one. Its processes cannot leave it. */
  cgroup?: string | undefined;
  /** Absent if the run is unknown: then only the cgroup is killed. */
  run?: SampledRun | undefined;
  /** From the owner's files, so it may be false. */
  supervisor?: ProcessIdentity | undefined;
}

/** Gives up after this time: processes in uninterruptible sleep do not end. */
const forceMs = 10_000;
const pollMs = 50;

/** @returns how many processes of the run are left */
export async function killRun(
  ownerUid: number,
  { cgroup, run, supervisor }: KillRunOptions,
): Promise<number> {
  const open = createProcessOpener();
  const reader = new ProcReader();
  const timeout = AbortSignal.timeout(forceMs);
  const kill = async ({ pid, startTicks }: ProcessIdentity): Promise<boolean> => {
    try {
      // From here on the descriptor refers to this process, even if the pid is reused.
      using handle = open(pid);
      if ((await readProcessIdentity(pid))?.startTicks !== startTicks) return false;
      if ((await readRealUid(pid)) !== ownerUid) return false;
      handle.signal(constants.signals.SIGKILL);
      return true;
    } catch (error) {
      if (["ESRCH", "ENOENT"].includes((error as NodeJS.ErrnoException).code ?? "")) return false;
      throw error;
    }
  };
  for (let remaining = 0; ;) {
    // The supervisor first, because it would restart the app.
    if (supervisor !== undefined) await kill(supervisor);
    if (cgroup !== undefined) await writeFile(`${cgroup}/cgroup.kill`, "1").catch(() => undefined);
    if (run === undefined) return 0;
    const table = await reader.readTable(timeout);
    const origins = await reader.readOrigins(table, new Set([ownerUid]), timeout);
    if (timeout.aborted) return remaining;
    remaining = 0;
    for (const member of membersOf([run], table, origins).get(run.appId) ?? [])
      if (await kill(member)) remaining++;
    if (remaining === 0) return 0;
    await sleep(pollMs);
  }
}

async function readRealUid(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "latin1");
  return Number(/^Uid:\t(\d+)/m.exec(status)?.[1] ?? -1);
}
