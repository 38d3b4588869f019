/**
 * What daemon and supervisor agree on: the files `spec.json` and `state.json` in an app's run directory, and the
 * newline-delimited JSON of the control socket. A supervisor may be older or newer than the daemon that talks to
 * it, so both sides ignore fields they do not know, and fields are only ever added.
 */

import type { TerminalSize } from "../../lib/terminal.ts";

/** A probe that tells whether the app works. Exactly one of `http`, `tcp`, `exec` is set. */
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
  /** How long they have to end before SIGKILL. */
  graceMs: number;
}

export interface RestartSpec {
  /** `on-failure` restarts after a non-zero exit code or a signal. */
  policy: "always" | "on-failure" | "never";
  /** Wait before the first restart; doubles with each further one. */
  backoffMs: number;
  /** Upper bound of the wait. */
  maxBackoffMs: number;
  /** After so many restarts without a run of `resetAfterMs` the supervisor gives up; 0: never. */
  maxRestarts: number;
  /** An app that has run this long starts afresh: back-off and count begin anew. */
  resetAfterMs: number;
}

export interface LimitSpec {
  /** Enforced by the cgroup alone: RLIMIT_AS breaks programs that reserve address space, Node among them. */
  memoryBytes?: number;
  /** Processor share in cores, such as 1.5; enforced by the cgroup alone. */
  cpus?: number;
  /** Most open descriptors of each process. */
  openFiles?: number;
}

/** `spec.json`: everything a supervisor needs to run its app. */
export interface SupervisorSpec {
  version: 1;
  /** Version of svc that wrote it, for `hello`. */
  svcVersion: string;
  appId: string;
  /** Unique to this start; every process of the app carries it as `SVC_RUN_ID`. */
  runId: string;
  /** Program (looked up in `env.PATH`) and arguments. */
  argv: string[];
  /** The whole environment of the app, but for `SVC_RUN_ID`. */
  env: Record<string, string>;
  /** Working directory of the app. */
  cwd: string;
  /** Where log files go, absolute or relative to the run directory. */
  logDir: string;
  /** A log file that would grow beyond this is closed and the next one begun. */
  logMaxBytes: number;
  /** Log files kept, the current one included. */
  logMaxFiles: number;
  stop: StopSpec;
  restart: RestartSpec;
  health: HealthSpec | null;
  limits: LimitSpec;
  /** Absolute path of a cgroup v2 delegated to the owner, or null. The supervisor sits in its child `supervisor`, the app in `app`. */
  cgroup: string | null;
  /** An app that exits this soon after its first start has failed to start. */
  settleMs: number;
  /** The app has a terminal of its own in place of the pipes. A supervisor that is older than this takes it for false. */
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
  /** How long it had run. */
  ranMs: number;
  /** Its last lines of output, 20 at most, each cut at 1,024 characters. */
  lastLines: string[];
  /** Why it could not be run at all, such as `program "x" was not found in PATH`. */
  error?: string;
}

/** A process, safe against reuse of its pid. */
export interface ProcessIdentity {
  pid: number;
  /** Field 22 of `/proc/<pid>/stat`: start after boot, in clock ticks. */
  startTicks: number;
}

export type SupervisorPhase = "STARTING" | "RUNNING" | "STOPPING" | "STOPPED" | "CRASHED";
export type HealthState = "starting" | "healthy" | "unhealthy";

/** `state.json`, and what is told of it. */
export interface SupervisorState {
  version: 1;
  appId: string;
  runId: string;
  /** `/proc/sys/kernel/random/boot_id`: pids of another boot mean nothing. */
  bootId: string;
  supervisor: ProcessIdentity;
  phase: SupervisorPhase;
  /** One sentence on how it came to this phase, where there is something to say. */
  reason?: string;
  /** The app died within `settleMs` of its first start. */
  startFailed: boolean;
  /** A signal told the supervisor to end, and not svc: the app goes on being wanted. */
  interrupted?: boolean;
  /** RFC 3339: the app has ended by itself and starts again then. Absent while it runs. */
  nextRestartAt?: string;
  /** The app has lived for `settleMs` since its first start. */
  settled: boolean;
  /** The main process, null while there is none. */
  app: (ProcessIdentity & { startedAt: string }) | null;
  /** Restarts since `svc app start`. */
  restarts: number;
  /** Null without a health check. */
  health: HealthState | null;
  /** What was wrong when it was checked last. Absent when nothing was. */
  healthReason?: string;
  /** The latest exits, newest last, 10 at most. */
  exits: ExitRecord[];
  /** Processes of the app that not even SIGKILL ended. */
  leftover: number;
  /** All of its processes are frozen. Absent while they are not. */
  frozen?: boolean;
  /** The supervisor has nothing more to do and exits. */
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

/** What a client may ask. `follow` takes the connection over: nothing else is answered on it afterwards. */
export type SupervisorCommand =
  /** Ends the app and then the supervisor; answered at once, the end shows in the state. */
  | { cmd: "stop"; graceMs?: number }
  /** From now on every change of the state arrives as a `state` event, the present one first. */
  | { cmd: "subscribe" }
  /** Log records from position `from`, or the last `tail` ones, and then each new one. */
  | { cmd: "follow"; from?: number; tail?: number }
  /** Freezes all processes of the app, until this connection ends in whatever way; answered when they are. */
  | { cmd: "freeze" }
  /**
   * What the app's terminal shows, its last screen first, until the app ends. Takes the connection over, but for the two
   * below. `size` is that of the watcher's window, if it has one: the terminal is as large as the smallest of them.
   */
  | { cmd: "attach"; size?: TerminalSize }
  /** Bytes that are typed there, in base64; answered when the app has taken them. 256 KiB may wait for that. */
  | { cmd: "input"; data: string }
  /** The watcher's window is another one. */
  | { cmd: "resize"; size: TerminalSize };

/**
 * A command with the id that its reply carries.
 * @public the supervisor's programs take it by its name
 */
export type SupervisorRequest = SupervisorCommand & { id: number; protocol: number };

export type SupervisorReply =
  { type: "reply"; id: number; ok: true } | { type: "reply"; id: number; ok: false; error: string };

export interface StateEvent {
  type: "state";
  state: SupervisorState;
}

/** Whole records of the log, which reach from position `from` to position `to`. */
export interface LogEvent {
  type: "log";
  from: number;
  to: number;
  text: string;
}

/** The bytes between two positions were rotated away before this reader got to them. */
export interface LogGapEvent {
  type: "gap";
  from: number;
  to: number;
}

/** What the terminal shows next, in base64. */
export interface OutputEvent {
  type: "output";
  data: string;
}

/** So many bytes of the terminal's came too fast for this watcher; what follows is its latest screen. */
export interface MissedEvent {
  type: "missed";
  bytes: number;
}

/** The app of the terminal has ended; nothing follows. */
export interface EndedEvent {
  type: "ended";
  /** 128 and more for a signal's. */
  code: number;
}

export type TerminalEvent = OutputEvent | MissedEvent | EndedEvent;

export type SupervisorMessage =
  HelloMessage | SupervisorReply | StateEvent | LogEvent | LogGapEvent | TerminalEvent;
