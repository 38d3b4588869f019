/**
 * The supervisor of one app: a small process with the identity of the app's owner that outlives the daemon. It runs
 * the app, writes its log, restarts it, probes its health, records its exits and ends all of its processes.
 *
 * Started in the app's run directory, where it reads `spec.json` and leaves `state.json`, log and socket:
 *
 * - `node supervisor.mjs` supervises until the app is stopped or has crashed for good.
 * - `node supervisor.mjs sweep` ends what a supervisor that was killed left behind, and prints `{"leftover": n}`.
 *
 * Everything is loaded at the start: an upgrade of svc may replace these files while it runs.
 */
import { readSpec } from "./run-files.mjs";
import { SupervisedRuns } from "./supervised-runs.mjs";
import { sweep } from "./sweep.mjs";

async function main() {
  // What the app inherits; the files made here have modes of their own.
  process.umask(0o022);
  if (process.argv[2] === "sweep") return sweep();
  const supervisor = new SupervisedRuns(readSpec());
  process.on("SIGHUP", () => undefined);
  for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => supervisor.interrupt(signal));
  // The app must not end because of a fault here.
  process.on("uncaughtException", (error) => void supervisor.note(`fault in the supervisor: ${error.stack}`));
  await supervisor.supervise();
}

void main();
