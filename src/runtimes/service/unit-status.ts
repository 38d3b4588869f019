/** From what systemd says of a unit to what svc says of the app. */
import { constants } from "node:os";
import type { Manifest } from "../../packages/manifest.ts";
import { stoppedStatus, type RuntimeStatus } from "../runtime.ts";
import type { MainExit } from "./journal.ts";
import type { UnitProperties } from "./systemd.ts";
import { keepsExit } from "./unit-text.ts";

/** What is read of each unit, again and again. */
export const statusProperties = [
  ...["LoadState", "ActiveState", "SubState", "Result", "NRestarts", "FragmentPath", "ControlGroup"],
  ...["ExecMainCode", "ExecMainStatus", "ActiveEnterTimestampMonotonic", "ActiveExitTimestampMonotonic"],
  ...["ExecMainStartTimestampMonotonic", "ExecMainExitTimestampMonotonic", "StateChangeTimestampMonotonic"],
] as const;

/** The kernel's CLD_EXITED; any other word says that a signal ended it (waitid(2)). */
const exitedCode = "1";
/** How systemd itself says why a program could not be executed (systemd.exec(5), "Process exit codes"). */
const systemdCodes: Readonly<Record<number, string>> = {
  200: "its working directory could not be entered",
  203: "its program could not be executed",
  217: "its user could not be taken",
  226: "its namespaces could not be set up",
};

export interface StatusContext {
  /** Whether svc means it to run. */
  readonly isWanted: boolean;
  readonly manifest: Manifest;
  /** When the host was booted, unix milliseconds: systemd counts from then. */
  readonly bootedAtMs: number;
  readonly lastLines: readonly string[];
  /** How its main process ended before systemd started it again. */
  readonly lastExit?: MainExit;
}

/** @param unit undefined: systemd has none of that name */
export function unitStatus(unit: UnitProperties | undefined, context: StatusContext): RuntimeStatus {
  const { isWanted, manifest, bootedAtMs, lastLines, lastExit } = context;
  const { restart } = manifest;
  const isOver = keepsExit(manifest) && unit !== undefined && hasExited(unit);
  const state = isOver ? "exited" : (unit?.["ActiveState"] ?? "inactive");
  const atMs = (name: string): number => bootedAtMs + Number(unit?.[name] ?? 0) / 1000;
  const known: RuntimeStatus = {
    ...stoppedStatus,
    restarts: restartsOf(unit),
    ...(unit && (hasEnded(unit) || lastExit === undefined ? endOf(unit) : endAs(lastExit))),
  };
  switch (state) {
    case "active":
    case "reloading":
      return { ...known, state: "RUNNING", startedAtMs: Math.round(atMs("ExecMainStartTimestampMonotonic")) };
    case "exited":
      return isWanted ? { ...known, reason: `its restart policy is ${restart.policy}` } : known;
    case "activating": {
      if (unit?.["SubState"] !== "auto-restart") return { ...known, state: "STARTING" };
      const nextRestartAtMs = Math.round(atMs("StateChangeTimestampMonotonic")) + restart.delayMs;
      const endedReason = whyEnded(unit);
      return { ...known, state: "STARTING", reason: `BACKOFF: ${endedReason}`, nextRestartAtMs, endedReason };
    }
    case "deactivating":
      return { ...known, state: "STOPPING" };
    case "failed": {
      const again = known.restarts === 0 ? "" : `, and was restarted ${known.restarts} times in a row`;
      return { ...known, state: "CRASHED", reason: `${whyEnded(unit ?? {})}${again}`, lastLines };
    }
    default:
      if (!isWanted) return known;
      if (unit === undefined || wasStopped(unit)) {
        return { ...known, reason: "it was stopped outside of svc", isLost: true };
      }
      return { ...known, reason: `its restart policy is ${restart.policy}` };
  }
}

/** Whether it is active, and nothing of it runs any more. */
export function hasExited(unit: UnitProperties): boolean {
  return unit["ActiveState"] === "active" && unit["SubState"] === "exited";
}

/** Whether it was told to stop before its main process ended, or never ran in this boot. */
function wasStopped(unit: UnitProperties): boolean {
  const endedAt = Number(unit["ExecMainExitTimestampMonotonic"] ?? 0);
  return endedAt === 0 || Number(unit["ActiveExitTimestampMonotonic"] ?? 0) < endedAt;
}

/** How often systemd has started it again since it was started. */
export function restartsOf(unit: UnitProperties | undefined): number {
  return Number(unit?.["NRestarts"] ?? 0);
}

function hasEnded(unit: UnitProperties): boolean {
  return Number(unit["ExecMainExitTimestampMonotonic"] ?? 0) !== 0;
}

function endOf(unit: UnitProperties): Pick<RuntimeStatus, "exitCode" | "exitSignal"> {
  if (!hasEnded(unit)) return {};
  const status = Number(unit["ExecMainStatus"]);
  return endAs({ hasExited: unit["ExecMainCode"] === exitedCode, status });
}

function endAs({ hasExited: byItself, status }: MainExit): Pick<RuntimeStatus, "exitCode" | "exitSignal"> {
  return byItself ? { exitCode: status } : { exitSignal: signalName(status) };
}

/** How it ended, without a full stop. */
export function whyEnded(unit: UnitProperties): string {
  const { exitCode, exitSignal } = endOf(unit);
  switch (unit["Result"]) {
    case "start-limit-hit":
      return "it was started too often";
    case "oom-kill":
      return "it ran out of memory";
    case "timeout":
      return "it took longer than it may";
    case "watchdog":
      return "it did not report to its watchdog";
    case "resources":
      return "systemd could not start it";
    default:
      return exitSignal === undefined ? whyExited(exitCode) : `it was ended by ${exitSignal}`;
  }
}

function whyExited(exitCode: number | undefined): string {
  if (exitCode === undefined) return "it did not start";
  const why = systemdCodes[exitCode];
  return `it ended with exit code ${exitCode}${why === undefined ? "" : ` (${why})`}`;
}

function signalName(number: number): string {
  const found = Object.entries(constants.signals).find(([, each]) => each === number);
  return found?.[0] ?? `signal ${number}`;
}
