import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { monotonicMs } from "./monotonic.mjs";

const cgroupWaitMs = 5000;

/**
 * Waits until the daemon has moved this process into its cgroup: an app can be moved on only from within it.
 * @param {string} cgroup
 */
export async function waitForCgroup(cgroup) {
  const deadline = monotonicMs() + cgroupWaitMs;
  for (;;) {
    const path = /^0::(.*)$/m.exec(readFileSync("/proc/self/cgroup", "utf8"))?.[1];
    if (path !== undefined && path !== "/" && `${cgroup}/supervisor`.endsWith(path)) return;
    if (monotonicMs() > deadline) throw new Error(`the supervisor was not moved into ${cgroup}`);
    await sleep(5);
  }
}
