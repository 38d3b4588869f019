import { stoppedStatus, type RuntimeStatus } from "../runtime.ts";
import { describeExit } from "./app-exit.mjs";
import type { SupervisorState } from "./supervisor-types.ts";

/** An app on the `process` runtime, as its supervisor or what that left behind shows it. */
export interface ProcessStatus extends RuntimeStatus {
  /** The main process; its session is the app's. */
  pid?: number;
  /** Processes of the app that not even SIGKILL ended. */
  leftover: number;
}

/** What is known of an app that was never started. */
export const neverStarted: ProcessStatus = Object.freeze({ ...stoppedStatus, leftover: 0 });

export function statusOf(state: SupervisorState): ProcessStatus {
  const { phase, reason, app, restarts, health, leftover, startFailed } = state;
  const { nextRestartAt, interrupted, healthReason, frozen } = state;
  const exit = state.exits.at(-1);
  return {
    state: startFailed && phase === "CRASHED" ? "FAILED" : phase,
    reason: reason ?? (frozen === true ? "it is paused" : ""),
    health: health ?? "none",
    ...(healthReason !== undefined && { healthReason }),
    ...(app && { pid: app.pid, startedAtMs: Date.parse(app.startedAt) }),
    ...(typeof exit?.code === "number" && { exitCode: exit.code }),
    ...(exit?.signal && { exitSignal: exit.signal }),
    restarts,
    ...(nextRestartAt !== undefined && {
      nextRestartAtMs: Date.parse(nextRestartAt),
      ...(exit !== undefined && { endedReason: describeExit(exit) }),
    }),
    ...(interrupted === true && { isLost: true }),
    lastLines: exit?.lastLines ?? [],
    leftover,
  };
}
