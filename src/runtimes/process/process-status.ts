import type { HealthState, SupervisorState } from "./supervisor-types.ts";

/** An app on the `process` runtime, as its supervisor or what that left behind shows it. */
export interface ProcessStatus {
  /** `UNKNOWN` when a supervisor runs that cannot be asked. */
  state: "STARTING" | "RUNNING" | "STOPPING" | "STOPPED" | "CRASHED" | "UNKNOWN";
  /** One sentence, where there is something to say. */
  reason?: string;
  /** The main process; its session is the app's. */
  pid?: number;
  /** RFC 3339: when the main process started. */
  startedAt?: string;
  /** Restarts by the supervisor since the last start. */
  restarts: number;
  /** Exit code of the latest exit, when it exited by itself. */
  exitCode?: number;
  /** The signal of the latest exit, such as `SIGKILL`. */
  signal?: string;
  /** Absent without a health check, or when nothing runs. */
  health?: HealthState;
  /** The app's last lines before its latest exit, 20 at most. */
  lastLines: string[];
  /** Processes of the app that run although they should not. */
  leftover: number;
  /** It ran when the machine went down: the caller starts it again if it is to run. */
  interruptedByReboot: boolean;
}

/** What is known of an app that was never started. */
export const neverStarted: ProcessStatus = Object.freeze({
  state: "STOPPED",
  restarts: 0,
  lastLines: [],
  leftover: 0,
  interruptedByReboot: false,
});

export function statusOf(state: SupervisorState): ProcessStatus {
  const { phase, reason, app, restarts, health, leftover } = state;
  const exit = state.exits.at(-1);
  return {
    state: phase,
    ...(reason !== undefined && { reason }),
    ...(app && { pid: app.pid, startedAt: app.startedAt }),
    restarts,
    ...(typeof exit?.code === "number" && { exitCode: exit.code }),
    ...(exit?.signal && { signal: exit.signal }),
    ...(health && { health }),
    lastLines: exit?.lastLines ?? [],
    leftover,
    interruptedByReboot: false,
  };
}
