/** Converts systemd's unit properties to the status of an app. */
import { constants } from "node:os";
import type { Manifest } from "../../packages/manifest/manifest.ts";
import { stoppedStatus, type RuntimeStatus } from "../runtime-status.ts";
import { leastDelayMs } from "../process/restart-policy.mjs";
import type { MainExit } from "./journal.ts";
import type { UnitProperties } from "./systemd.ts";
import { keepsExit } from "./unit-text.ts";

/** Properties that each poll reads. */
export const statusProperties = [
  ...["LoadState", "ActiveState", "SubState", "Result", "NRestarts", "FragmentPath", "ControlGroup"],
  ...["ExecMainCode", "ExecMainStatus", "ActiveEnterTimestampMonotonic", "ActiveExitTimestampMonotonic"],
  ...["ExecMainStartTimestampMonotonic", "ExecMainExitTimestampMonotonic", "StateChangeTimestampMonotonic"],
] as const;

/** The kernel's CLD_EXITED; any other value means that a signal ended it (waitid(2)). */
const exitedCode = "1";
/** systemd's own exit codes for programs that could not be executed (systemd.exec(5), "Process exit codes"). */
const systemdCodes: Readonly<Record<number, string>> = {
  200: "the working directory could not be entered",
  203: "the program could not be executed",
  217: "the user could not be set",
  226: "the namespaces could not be set up",
};

export interface StatusContext {
  /** Whether the app should run. */
  readonly shouldRun: boolean;
  readonly manifest: Manifest;
  /** Boot time, unix milliseconds: systemd's times count from it. */
  readonly bootedAtMs: number;
  readonly lastLines: readonly string[];
  /** How its main process ended before systemd restarted it. */
  readonly lastExit?: MainExit;
}

/** @param unit undefined: no such unit */
export function unitStatus(unit: UnitProperties | undefined, context: StatusContext): RuntimeStatus {
  const { shouldRun, manifest, bootedAtMs, lastLines, lastExit } = context;
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
      return shouldRun ? { ...known, reason: `the restart policy is ${restart.policy}` } : known;
    case "activating": {
      if (unit?.["SubState"] !== "auto-restart") return { ...known, state: "STARTING" };
      const nextRestartAtMs =
        Math.round(atMs("StateChangeTimestampMonotonic")) + Math.max(leastDelayMs, restart.delayMs);
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
      if (!shouldRun) return known;
      if (unit === undefined || wasStopped(unit)) {
        return { ...known, reason: "the unit was stopped outside of svc", isLost: true };
      }
      return { ...known, reason: `the restart policy is ${restart.policy}` };
  }
}

/** Whether the unit is active without running processes. */
export function hasExited(unit: UnitProperties): boolean {
  return unit["ActiveState"] === "active" && unit["SubState"] === "exited";
}

/** Whether it was stopped before its main process ended, or did not run since the boot. */
function wasStopped(unit: UnitProperties): boolean {
  const endedAt = Number(unit["ExecMainExitTimestampMonotonic"] ?? 0);
  return endedAt === 0 || Number(unit["ActiveExitTimestampMonotonic"] ?? 0) < endedAt;
}

/** Number of restarts by systemd since the start. */
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
      return "the unit was restarted too often";
    case "oom-kill":
      return "the unit ran out of memory";
    case "timeout":
      return "the unit exceeded its timeout";
    case "watchdog":
      return "the unit's watchdog timed out";
    case "resources":
      return "systemd could not start the unit";
    default:
      return exitSignal === undefined ? whyExited(exitCode) : `the unit was killed by ${exitSignal}`;
  }
}

function whyExited(exitCode: number | undefined): string {
  if (exitCode === undefined) return "the unit did not start";
  const why = systemdCodes[exitCode];
  return `the unit exited with code ${exitCode}${why === undefined ? "" : ` (${why})`}`;
}

function signalName(number: number): string {
  const found = Object.entries(constants.signals).find(([, each]) => each === number);
  return found?.[0] ?? `signal ${number}`;
}
