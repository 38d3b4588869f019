/**
 * The interface between daemon and supervisor: the files `spec.json` and `state.json` in an app's run directory, and
 * the newline-delimited JSON of the control socket. A supervisor may be older or newer than the daemon, so both sides
 * ignore unknown fields, and fields are only ever added.
 */

import type { LimitSpec } from "../../sys/cgroup.ts";
import type { TerminalSize } from "../../lib/terminal.ts";

/** A health probe. Exactly one of `http`, `tcp`, `exec` is set. */
export interface HealthSpec {
  /** GET `path` on `host` (default 127.0.0.1); status 200 to 399 passes. */
  http?: { host?: string; port: number; path: string };
  /** A connection to `host` (default 127.0.0.1) is accepted. */
  tcp?: { host?: string; port: number };
  /** The command, in the app's directory and environment, exits with 0. */
  exec?: { argv: string[] };
  /** Time between the end of one probe and the start of the next. */
  intervalMs: number;
  /** A probe that takes longer has failed. */
  timeoutMs: number;
  /** Consecutive failures that make the app unhealthy, at least 1. */
  retries: number;
  /** Failures this soon after the start do not count. */
  startPeriodMs: number;
}

export interface StopSpec {
  /** Sent to every process of the app. */
  signal: NodeJS.Signals;
  /** Time until SIGKILL. */
  graceMs: number;
}

export interface RestartSpec {
  /** `on-failure` restarts after a non-zero exit code or a signal. */
  policy: "always" | "on-failure" | "never";
  /** Wait before the first restart; doubles with each further one. */
  backoffMs: number;
  /** Upper bound of the wait. */
  maxBackoffMs: number;
  /** Maximum number of restarts without a run of `resetAfterMs`; 0: unlimited. */
  maxRestarts: number;
  /** A run of this length resets the back-off and the number of restarts. */
  resetAfterMs: number;
}

/** `spec.json`: everything a supervisor needs to run its app. */
export interface SupervisorSpec {
  version: 1;
  /** Version of svc that wrote the file, for `hello`. */
  svcVersion: string;
  appId: string;
  /** Unique per start; every process of the app has it in its environment as `SVC_RUN_ID`. */
  runId: string;
  /** Program (looked up in `env.PATH`) and arguments. */
  argv: string[];
  /** The app's complete environment, except `SVC_RUN_ID`. */
  env: Record<string, string>;
  /** Working directory of the app. */
  cwd: string;
  /** Directory of the log files, absolute or relative to the run directory. */
  logDir: string;
  /** A log file that would exceed this size is closed, and a new one started. */
  logMaxBytes: number;
  /** Number of log files, the current one included. */
  logMaxFiles: number;
  stop: StopSpec;
  restart: RestartSpec;
  health: HealthSpec | null;
  limits: LimitSpec;
  /**
   * Absolute path of a cgroup v2 delegated to the owner, or null. The supervisor runs in its child `supervisor`, the
   * app in `app`.
   */
  cgroup: string | null;
  /** An app that exits within this time after its first start has failed to start. */
  settleMs: number;
  /** Whether the app gets a terminal instead of pipes. Older supervisors ignore it. */
  terminal?: boolean;
}

/** One exit of the app's main process. */
export interface ExitRecord {
  /** Exit code, or null when a signal ended it or it never ran. */
  code: number | null;
  /** Such as `SIGKILL`, or null. */
  signal: NodeJS.Signals | null;
  /** RFC 3339. */
  at: string;
  /** Duration of the run. */
  ranMs: number;
  /** The last lines of output, at most 20, each cut at 1,024 characters. */
  lastLines: string[];
  /** Why it could not be run, such as `program "x" was not found in PATH`. */
  error?: string;
}

/** A process, identified even if its PID is reused. */
export interface ProcessIdentity {
  pid: number;
  /** Field 22 of `/proc/<pid>/stat`: start after boot, in clock ticks. */
  startTicks: number;
}

export type SupervisorPhase = "STARTING" | "RUNNING" | "STOPPING" | "STOPPED" | "CRASHED";
export type HealthState = "starting" | "healthy" | "unhealthy";

/** Content of `state.json` and of state events. */
export interface SupervisorState {
  version: 1;
  appId: string;
  runId: string;
  /** `/proc/sys/kernel/random/boot_id`: PIDs are valid only within a boot. */
  bootId: string;
  supervisor: ProcessIdentity;
  phase: SupervisorPhase;
  /** The reason for the phase in one sentence, if any. */
  reason?: string;
  /** The app died within `settleMs` of its first start. */
  startFailed: boolean;
  /** The supervisor was ended by a signal that svc did not send: the app should still run. */
  interrupted?: boolean;
  /** RFC 3339: time of the planned restart of an app that exited. Absent while it runs. */
  nextRestartAt?: string;
  /** The app has run for `settleMs` since its first start. */
  settled: boolean;
  /** The main process, null while there is none. */
  app: (ProcessIdentity & { startedAt: string }) | null;
  /** Restarts since `svc start`. */
  restarts: number;
  /** Null without a health check. */
  health: HealthState | null;
  /** Why the last check failed. Absent if it passed. */
  healthReason?: string;
  /** The latest exits, newest last, at most 10. */
  exits: ExitRecord[];
  /** Number of the app's processes that not even SIGKILL ended. */
  leftover: number;
  /** True while all of the app's processes are frozen. */
  frozen?: boolean;
  /** The supervisor is finished and exits. */
  final: boolean;
}

/** First line on every connection. */
export interface HelloMessage {
  type: "hello";
  protocol: { min: number; max: number };
  svcVersion: string;
  appId: string;
  runId: string;
  bootId: string;
  pid: number;
  startTicks: number;
}

/** Commands of a client. `follow` takes over the connection: later commands on it get no reply. */
export type SupervisorCommand =
  /** Ends the app and then the supervisor; the reply comes at once, the end shows in the state. */
  | { cmd: "stop"; graceMs?: number }
  /** Sends the current state and then every change as a `state` event. */
  | { cmd: "subscribe" }
  /** Sends log records from position `from`, or the last `tail` ones, and then each new one. */
  | { cmd: "follow"; from?: number; tail?: number }
  /** Freezes all processes of the app until this connection closes; the reply comes when they are frozen. */
  | { cmd: "freeze" }
  /**
   * Sends the terminal's output, the last screen first, until the app ends. Takes over the connection, except for the
   * two commands below. `size` is the size of the watcher's window, if any: the terminal has the size of the smallest
   * window.
   */
  | { cmd: "attach"; size?: TerminalSize }
  /** Input for the terminal in base64; the reply comes when the app has read it. At most 256 KiB may be pending. */
  | { cmd: "input"; data: string }
  /** Changes the size of the watcher's window. */
  | { cmd: "resize"; size: TerminalSize };

/**
 * A command with the ID for its reply.
 * @public the supervisor's programs refer to it by name
 */
export type SupervisorRequest = SupervisorCommand & { id: number; protocol: number };

export type SupervisorReply =
  { type: "reply"; id: number; ok: true } | { type: "reply"; id: number; ok: false; error: string };

export interface StateEvent {
  type: "state";
  state: SupervisorState;
}

/** Complete log records, from position `from` to position `to`. */
export interface LogEvent {
  type: "log";
  from: number;
  to: number;
  text: string;
}

/** The bytes between two positions were rotated away before they were read. */
export interface LogGapEvent {
  type: "gap";
  from: number;
  to: number;
}

/** The next output of the terminal, in base64. */
export interface OutputEvent {
  type: "output";
  data: string;
}

/** This watcher was too slow for this many bytes of the terminal's output; its latest screen follows. */
export interface MissedEvent {
  type: "missed";
  bytes: number;
}

/** The terminal's app has ended; nothing follows. */
export interface EndedEvent {
  type: "ended";
  /** 128 plus the signal's number, if a signal ended it. */
  code: number;
}

export type TerminalEvent = OutputEvent | MissedEvent | EndedEvent;

export type SupervisorMessage =
  HelloMessage | SupervisorReply | StateEvent | LogEvent | LogGapEvent | TerminalEvent;
