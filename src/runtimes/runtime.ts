/** What `apps/` asks of whatever runs an app: the embedded process runtime now, container engines later. */
import type { LogLineStream } from "../../gen/svc/v1/words.ts";
import type { Manifest } from "../packages/manifest.ts";
import type { JsonObject } from "../lib/json.ts";

/** An app, as far as running it goes. */
export interface RunnableApp {
  readonly id: string;
  readonly name: string;
  /** The uid that its files belong to and its processes run as. */
  readonly uid: number;
  /** The app's own tree: `repo/`, `data/`, `volumes/`, `logs/`. */
  readonly directory: string;
  /** Supervisor state and logs. */
  readonly runDir: string;
  readonly manifest: Manifest;
  /** The chosen settings, without defaults. */
  readonly settings: JsonObject;
}

export type RuntimeState = "STOPPED" | "STARTING" | "RUNNING" | "STOPPING" | "FAILED" | "CRASHED" | "UNKNOWN";

/** Whether the app runs or is on its way to; `undefined`, of which nothing is known, does not. */
export function isUp(state: string | undefined): boolean {
  return state === "RUNNING" || state === "STARTING";
}

/** What the runtime knows about an app without asking anybody. */
export interface RuntimeStatus {
  readonly state: RuntimeState;
  /** Why, one sentence; empty where the state says everything. */
  readonly reason: string;
  readonly health: "none" | "starting" | "healthy" | "unhealthy";
  /** When the running process started, unix milliseconds. */
  readonly startedAtMs?: number;
  /** How the last process ended that ended by itself. */
  readonly exitCode?: number;
  readonly exitSignal?: string;
  readonly restarts: number;
  /** The last lines before it failed or crashed, 20 at most. */
  readonly lastLines: readonly string[];
}

export interface LogRecord {
  /** Unix milliseconds. */
  readonly timeMs: number;
  readonly stream: LogLineStream;
  readonly text: string;
}

/** Lines of a log, oldest first. */
export interface LogChunk {
  readonly lines: readonly LogRecord[];
  /** True: fewer lines than asked for, because together they pass the byte bound. */
  readonly truncated: boolean;
  /** Bytes of the log that were rotated away before this reader got to them; the lines follow the gap. */
  readonly missedBytes: number;
}

/** What one app uses; what cannot be measured is absent. */
export interface RuntimeUsage {
  /** Percent of one processor. */
  readonly cpuPercent?: number;
  readonly memoryBytes?: number;
  readonly processes?: number;
  readonly diskReadBytes?: number;
  readonly diskWrittenBytes?: number;
  readonly networkReceivedBytes?: number;
  readonly networkSentBytes?: number;
}

export interface RuntimeLimit {
  readonly name: "memory" | "cpus" | "open_files";
  readonly value: number;
  /** False: this host gives no means to enforce it. */
  readonly enforced: boolean;
}

export interface AppRuntime extends AsyncDisposable {
  /**
   * Starts an app that does not run; resolves once it does.
   * @throws SvcError `start_failed` with its last lines when it ends at once.
   */
  start(app: RunnableApp): Promise<void>;
  /** Ends every process of the app; nothing running is fine. */
  stop(app: RunnableApp): Promise<void>;
  /**
   * Takes over what an earlier daemon left running, or finds out how it ended. `lost` when the host was rebooted since:
   * nothing of it runs, and nothing says how it ended.
   */
  adopt(app: RunnableApp): Promise<"running" | "ended" | "lost">;
  /** From memory. `undefined`: the runtime has neither started nor adopted it. */
  status(id: string): RuntimeStatus | undefined;
  /** Grows, at once, whenever the status of some app is another one; a status that did not change stays the same object. */
  readonly revision: number;
  /** Called with the id of an app whose status changed, soon after. */
  onChange(listener: (id: string) => void): Disposable;
  /** Forgets an app that is removed. */
  forget(id: string): void;
  logs(app: RunnableApp, options: { tail: number; signal?: AbortSignal }): Promise<LogChunk>;
  /** The last `tail` lines and then every new one, until `signal` aborts. */
  followLogs(app: RunnableApp, options: { tail: number; signal: AbortSignal }): AsyncIterable<LogChunk>;
  /** One shared window of about 500 ms for all apps together; entries for running ones only. */
  stats(apps: readonly RunnableApp[], signal?: AbortSignal): Promise<ReadonlyMap<string, RuntimeUsage>>;
  /** The manifest's limits, and whether they hold here. */
  limits(app: RunnableApp): readonly RuntimeLimit[];
}
