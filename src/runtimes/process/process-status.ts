import { stoppedStatus, type RuntimeStatus } from "../runtime-status.ts";
import { describeExit } from "./app-exit.mjs";
import type { SupervisorState } from "./supervisor-types.ts";

/** Status of an app on the `process` runtime, from its supervisor or the supervisor's last state. */
export interface ProcessStatus extends RuntimeStatus {
  /** The main process, which leads the app's session. */
  pid?: number;
  /** Number of the app's processes that not even SIGKILL ended. */
  leftover: number;
}

/** Status of an app that was never started. */
export const neverStarted: ProcessStatus = Object.freeze({ ...stoppedStatus, leftover: 0 });

export function statusOf(state: SupervisorState): ProcessStatus {
  const { phase, reason, app, restarts, health, leftover, startFailed } = state;
  const { nextRestartAt, interrupted, healthReason, frozen } = state;
  const exit = state.exits.at(-1);
  return {
    state: startFailed && phase === "CRASHED" ? "FAILED" : phase,
    reason: reason ?? (frozen === true ? "the app is paused" : ""),
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
