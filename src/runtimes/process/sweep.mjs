import { endProcesses } from "./ending.mjs";
import { readJson } from "./run-files.mjs";
import { readProcess } from "../../lib/process-table.mjs";

/** @import { SupervisorSpec, SupervisorState } from "./supervisor-types.ts" */

/** Ends what a supervisor left that was killed, or that hangs: it would start the app again. */
export async function sweep() {
  const state = /** @type {SupervisorState | undefined} */ (readJson("state.json"));
  const spec = /** @type {SupervisorSpec | undefined} */ (readJson("spec.json"));
  const supervisor = state?.supervisor;
  if (supervisor && readProcess(supervisor.pid)?.startTicks === supervisor.startTicks) {
    process.kill(supervisor.pid, "SIGKILL");
  }
  // Either file may be damaged; without both there is nothing by which the processes could be told.
  const runId = spec?.runId ?? state?.runId;
  const run = {
    ...{ runId: runId ?? "", startTicks: 0, uid: process.getuid?.() ?? 0 },
    ...{ sessions: new Set(), exclude: process.pid },
  };
  const { signal, graceMs } = spec?.stop ?? { signal: "SIGTERM", graceMs: 0 };
  const cgroup = spec?.cgroup ? `${spec.cgroup}/app` : null;
  const leftover = runId === undefined ? 0 : await endProcesses(run, { signal, graceMs, cgroup });
  process.stdout.write(`${JSON.stringify({ leftover })}\n`);
}
