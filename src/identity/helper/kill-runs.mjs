/**
 * Finds what a command left behind. A child that forks twice and calls setsid(2) leaves its group, its session and its
 * ancestors; the environment that it was started with still names the run. (One that wipes its
 * environment too escapes when its ancestors are gone: only a cgroup would hold that; see run-family.mjs.)
 */
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { listPids } from "../../lib/process-table.mjs";
import { carriesCookie } from "../../lib/run-cookie.mjs";

const maxRounds = 50;
const roundMs = 20;

/**
 * Kills every process of these runs, and what they fork meanwhile, until none is left.
 * @param {readonly string[]} runIds
 * @returns {Promise<number>} How many got SIGKILL.
 */
export async function killRuns(runIds) {
  let killed = 0;
  for (let round = 0; round < maxRounds; round++) {
    const found = killOnce(runIds);
    if (found === 0) break;
    killed += found;
    // They are gone from /proc only once their parent has reaped them, but their environment is empty at once.
    await sleep(roundMs);
  }
  return killed;
}

/** @param {readonly string[]} runIds */
function killOnce(runIds) {
  let killed = 0;
  for (const pid of listPids()) {
    if (pid === process.pid) continue;
    try {
      const environment = readFileSync(`/proc/${pid}/environ`);
      if (!runIds.some((id) => carriesCookie(environment, id))) continue;
      // Nothing is awaited between the look and the signal, so the pid is the one that was looked at.
      process.kill(pid, "SIGKILL");
      killed += 1;
    } catch {
      // Another user's, or gone.
    }
  }
  return killed;
}
