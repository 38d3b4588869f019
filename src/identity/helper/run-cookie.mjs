/**
 * Finds what a command left behind. A child that forks twice and calls setsid(2) leaves its group, its session and its
 * ancestors; the environment that it was started with still names the run. (One that wipes its
 * environment too escapes when its ancestors are gone: only a cgroup would hold that; see run-family.mjs.)
 */
import { readFileSync, readdirSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

/** The variable that carries the id of a run. */
export const runIdVariable = "SVC_RUN_ID";

const maxRounds = 50;
const roundMs = 20;

/**
 * Kills every process of these runs, and what they fork meanwhile, until none is left.
 * @param {readonly string[]} runIds
 * @returns {Promise<number>} How many got SIGKILL.
 */
export async function killRuns(runIds) {
  const cookies = runIds.map((id) => Buffer.from(`${runIdVariable}=${id}\0`));
  let killed = 0;
  for (let round = 0; round < maxRounds; round++) {
    const found = killOnce(cookies);
    if (found === 0) break;
    killed += found;
    // They are gone from /proc only once their parent has reaped them, but their environment is empty at once.
    await sleep(roundMs);
  }
  return killed;
}

/** @param {readonly Buffer[]} cookies */
function killOnce(cookies) {
  let killed = 0;
  for (const name of readdirSync("/proc")) {
    const pid = Number(name);
    if (!Number.isInteger(pid) || pid === process.pid) continue;
    try {
      const environment = readFileSync(`/proc/${pid}/environ`);
      if (!cookies.some((cookie) => carries(environment, cookie))) continue;
      // Nothing is awaited between the look and the signal, so the pid is the one that was looked at.
      process.kill(pid, "SIGKILL");
      killed += 1;
    } catch {
      // Another user's, or gone.
    }
  }
  return killed;
}

/**
 * @param {Buffer} environment
 * @param {Buffer} cookie
 */
function carries(environment, cookie) {
  const index = environment.indexOf(cookie);
  return index === 0 || (index > 0 && environment[index - 1] === 0);
}
