/**
 * The supervisor of one app: a small process that runs as the app's owner and outlives the daemon. It runs the app,
 * writes its log, restarts it, probes its health, records its exits and ends all its processes.
 *
 * It starts in the app's run directory, where it reads `spec.json` and writes `state.json`, log and socket:
 *
 * - `node supervisor.mjs` supervises until the app is stopped or has crashed for good.
 * - `node supervisor.mjs sweep` ends what a killed supervisor left behind, and prints `{"leftover": n}`.
 *
 * All modules are loaded at the start, because an upgrade of svc may replace these files meanwhile.
 */
import { readSpec } from "./run-files.mjs";
import { SupervisedRuns } from "./supervised-runs.mjs";
import { sweep } from "./sweep.mjs";

async function main() {
  // For the app to inherit; files created here set their modes explicitly.
  process.umask(0o022);
  if (process.argv[2] === "sweep") return sweep();
  const supervisor = new SupervisedRuns(readSpec());
  process.on("SIGHUP", () => undefined);
  for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => supervisor.interrupt(signal));
  // An error here must not end the app.
  process.on("uncaughtException", (error) => void supervisor.note(`fault in the supervisor: ${error.stack}`));
  await supervisor.supervise();
}

void main();
