import { endProcesses, sendSignal } from "./ending.mjs";
import { readJson } from "./run-files.mjs";
import { readProcess } from "../../sys/process-table.mjs";

/** @import { SupervisorSpec, SupervisorState } from "./supervisor-types.ts" */

/** Ends the leftovers of a killed supervisor, and a hanging supervisor first, because it would restart the app. */
export async function sweep() {
  const state = /** @type {SupervisorState | undefined} */ (readJson("state.json"));
  const spec = /** @type {SupervisorSpec | undefined} */ (readJson("spec.json"));
  const supervisor = state && readProcess(state.supervisor.pid);
  // The owner can write any PID to the file, but this process, which runs as the owner, can signal only the owner's
  // processes.
  if (supervisor && supervisor.startTicks === state.supervisor.startTicks) sendSignal(supervisor, "SIGKILL");
  // Either file may be damaged; without both, the processes cannot be identified.
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
