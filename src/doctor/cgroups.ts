import { readFile } from "node:fs/promises";
import { ok, warning } from "./finding.ts";
import type { Check } from "./finding.ts";

const needed = ["cpu", "memory", "pids"];

/** Whether limits of apps can be enforced. That the daemon gets a subtree of its own is its unit's to say. */
export const checkCgroups: Check = async () => {
  const mounts = (await readFile("/proc/self/mountinfo", "utf8")).split("\n");
  const root = mounts.find((mount) => mount.includes(" - cgroup2 "))?.split(" ")[4];
  if (root === undefined) {
    return warning(
      "version 2 is not mounted, so limits of apps do not hold: boot with the unified hierarchy",
    );
  }
  const controllers = (await readFile(`${root}/cgroup.controllers`, "utf8")).trim().split(" ");
  const missing = needed.filter((name) => !controllers.includes(name));
  return missing.length === 0
    ? ok(`version 2 at ${root}; limits hold where the daemon's unit has Delegate=yes`)
    : warning(
        `the controllers ${missing.join(", ")} are missing at ${root}, so those limits of apps do not hold`,
      );
};
