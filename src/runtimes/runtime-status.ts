/** The status of an app, as its runtime reports it. */

/** One container of an app on a swarm. */
export interface RuntimeTask {
  /** The service of a compose project; empty for a single-container app. */
  readonly service: string;
  readonly slot: number;
  /** Name of its node; empty while it has none. */
  readonly node: string;
  /** The swarm's state name. */
  readonly state: string;
  /** The swarm's error message; empty if there is none. */
  readonly message: string;
  readonly sinceMs: number;
}

export type RuntimeState = "STOPPED" | "STARTING" | "RUNNING" | "STOPPING" | "FAILED" | "CRASHED" | "UNKNOWN";

/** Whether the app runs or is starting; false for `undefined`, an unknown status. */
export function isUp(state: string | undefined): boolean {
  return state === "RUNNING" || state === "STARTING";
}

/** Whether an app needs no start. An app that waits for its restart, or with a service that does not run, is not up. */
export function isUpNow(status: RuntimeStatus | undefined): boolean {
  return isUp(status?.state) && status?.nextRestartAtMs === undefined && status?.isPartial !== true;
}

/** The status of an app from the runtime's memory. */
export interface RuntimeStatus {
  readonly state: RuntimeState;
  /** The reason in one sentence; empty if the state is enough. */
  readonly reason: string;
  /** Event that a start waits for, as in {@link waitReason}. */
  readonly waitsFor?: string;
  readonly health: "none" | "starting" | "healthy" | "unhealthy";
  /** True: one of its containers has a terminal. */
  readonly hasTerminal?: true;
  /** True: some services that should run do not. */
  readonly isPartial?: true;
  /** The output of the last failed health check; absent while the check passes. */
  readonly healthReason?: string;
  /** When the running process started, unix milliseconds. */
  readonly startedAtMs?: number;
  /** Exit code of the last process that exited by itself. */
  readonly exitCode?: number;
  readonly exitSignal?: string;
  readonly restarts: number;
  /** Time of the planned restart, unix milliseconds; the app is STARTING until then. */
  readonly nextRestartAtMs?: number;
  /** How the app that will be restarted ended, without a full stop. */
  readonly endedReason?: string;
  /** True if the app's supervisor or engine was killed, not the app itself. An app that should run must be started again. */
  readonly isLost?: boolean;
  /** The last lines before it failed or crashed, at most 20. */
  readonly lastLines: readonly string[];
  /** Tasks of an app on a swarm, by service and slot. */
  readonly tasks?: readonly RuntimeTask[];
}

/** The reason of an app that waits for something. */
export function waitReason(awaited: string): string {
  return `the app waits for ${awaited}`;
}

/** Status of an app that was never started here, or that its owner stopped. */
export const stoppedStatus: RuntimeStatus = Object.freeze({
  state: "STOPPED",
  reason: "",
  health: "none",
  restarts: 0,
  lastLines: [],
});
