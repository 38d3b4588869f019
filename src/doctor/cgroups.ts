import { readFile } from "node:fs/promises";
import { ok, warning, type Check, type Finding } from "./finding.ts";
import { listenersAt } from "./listeners.ts";

const needed = ["cpu", "memory", "pids"];

/** Whether the limits of apps can be enforced, and whether the running daemon has a cgroup subtree for them. */
export const checkCgroups: Check = async ({ config, servedAt }) =>
  // Other daemons are skipped: only their users and root can see the processes.
  cgroupFinding(servedAt === config.api.socket ? await listenersAt(servedAt) : []);

/** @param daemonPids processes of the daemon, as far as they are known */
export async function cgroupFinding(daemonPids: readonly number[], procDir = "/proc"): Promise<Finding> {
  const mounts = (await readFile(`${procDir}/self/mountinfo`, "utf8")).split("\n");
  const root = mounts.find((mount) => mount.includes(" - cgroup2 "))?.split(" ")[4];
  if (root === undefined) {
    return warning(
      "version 2 is not mounted, so limits of apps are not enforced: boot with the unified hierarchy",
    );
  }
  const controllers = (await readFile(`${root}/cgroup.controllers`, "utf8")).trim().split(" ");
  const missing = needed.filter((name) => !controllers.includes(name));
  if (missing.length > 0) {
    return warning(
      `the controllers ${missing.join(", ")} are missing at ${root}, so these limits of apps are not enforced: enable them ` +
        "on the kernel's command line (cgroup_enable=memory); if this host is a container, in its settings",
    );
  }
  if (daemonPids.length === 0)
    return ok(`version 2 at ${root}; limits are enforced if the daemon's unit has Delegate=yes`);
  const cgroups = await Promise.all(
    daemonPids.map((pid) => readFile(`${procDir}/${pid}/cgroup`, "utf8").catch(() => "")),
  );
  // A daemon with a subtree has moved itself into a child cgroup of this name.
  return cgroups.some((text) => /^0::.+\/daemon$/m.test(text))
    ? ok(`version 2 at ${root}, with a subtree for the daemon`)
    : warning(
        "the daemon has no subtree of its own, so limits of apps are not enforced: start it as a unit with Delegate=yes, " +
          "which svc setup writes",
      );
}
