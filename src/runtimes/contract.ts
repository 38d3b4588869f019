/** The interface between `apps/` and everything that runs apps: a supervisor, the host's systemd, a container engine or a swarm. */
import type { LogChunk } from "../logs/log-chunk.ts";
import type { LogPosition } from "../logs/log-position.ts";
import type {
  RuntimeWork,
  FreezingRuntime,
  UsageRuntime,
  ImageRuntime,
  EngineVolumes,
  TerminalRuntime,
  PublishingRuntime,
  DataRuntime,
  EngineRuntime,
  ExternallyStartedRuntime,
  RollingRuntime,
  ScalingRuntime,
  ProjectRuntime,
} from "./capabilities.ts";
import type { RunnableApp } from "./runnable-app.ts";
import type { RuntimeStatus } from "./runtime-status.ts";

export interface LogOptions {
  /** Number of last lines. */
  readonly tail: number;
  /** Only lines of this service, for a compose project. */
  readonly service?: string | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** With `after`, `tail` is ignored. */
export interface FollowLogOptions extends LogOptions {
  /** Start after this position, however many lines follow. Without an offset, lines up to it may be repeated. */
  readonly after?: LogPosition | undefined;
  readonly signal: AbortSignal;
}

/** The operations of every runtime, and the capabilities of some as optional properties. */
export interface AppRuntime extends AsyncDisposable {
  /** Why apps of this runtime cannot be installed on this host, in one sentence; absent if they can. */
  readonly whyAbsent?: string | undefined;
  /**
   * Prepares what a start needs outside the checked-out tree: pulls or builds images, and checks the resolved configuration. Does
   * not change what other versions of the app need, because one of them may run meanwhile.
   * @throws SvcError `denied` for resources that the owner's apps may not use, `build_failed`, `unavailable`
   */
  prepare(app: RunnableApp, work: RuntimeWork): Promise<void>;
  /** Removes objects of other versions of an app; calling it twice is harmless. */
  settle(app: RunnableApp): Promise<void>;
  /**
   * Checks, from manifest and settings, whether a start would be rejected. Running parts are unchanged.
   * @throws SvcError `denied` for resources that the owner's apps may not use, `package_invalid`
   */
  check(app: RunnableApp): Promise<void>;
  /**
   * Starts an app that does not run; resolves when it runs. An aborted start may leave parts of the app running: stop it.
   * Runtimes with short starts may ignore the signal.
   * @throws SvcError `start_failed` with its last lines if it exits at once; the signal's reason
   */
  start(app: RunnableApp, signal?: AbortSignal): Promise<void>;
  /**
   * Resolves when the app runs and its health check, if it has one, has passed.
   * @throws SvcError `start_failed` if it exits, restarts or becomes unhealthy; `deadline_exceeded`, `canceled`
   */
  waitHealthy(id: string, timeoutMs: number, signal?: AbortSignal): Promise<void>;
  /** Ends every process of the app, if any. */
  stop(app: RunnableApp): Promise<void>;
  /**
   * Reattaches to an app that an earlier daemon left running, or finds out how it ended. `running` also if that is unknown; `lost` if it did
   * not exit by itself, as after a reboot of the host.
   * @param wasCut the daemon ended while it stopped or started the app, so an app that runs only in part is `lost`
   */
  reattach(app: RunnableApp, wasCut?: boolean): Promise<"running" | "ended" | "lost">;
  /** The status from memory. `undefined`: the runtime has neither started nor reattached to the app. */
  status(id: string): RuntimeStatus | undefined;
  /** Increases at once whenever the status of an app changes. */
  readonly revision: number;
  /** Calls `listener` with an app's ID soon after its status changed. */
  onChange(listener: (id: string) => void): Disposable;
  /**
   * Removes everything of a stopped app outside its tree, and forgets the app. Resolves to the number of freed bytes.
   * @param keep `volumes`: keep the volumes for the app's next runtime
   */
  remove(app: RunnableApp, keep?: "volumes"): Promise<number>;
  logs(app: RunnableApp, options: LogOptions): Promise<LogChunk>;
  /** The last `tail` lines, and then each new one, until `signal` aborts. */
  followLogs(app: RunnableApp, options: FollowLogOptions): AsyncIterable<LogChunk>;
  readonly freezing: FreezingRuntime;
  readonly usage: UsageRuntime;
  readonly images?: ImageRuntime;
  readonly volumes?: EngineVolumes;
  readonly terminals?: TerminalRuntime;
  readonly publishing?: PublishingRuntime;
  readonly data?: DataRuntime;
  readonly engine?: EngineRuntime;
  readonly external?: ExternallyStartedRuntime;
  readonly rolling?: RollingRuntime;
  readonly scaling?: ScalingRuntime;
  readonly projects?: ProjectRuntime;
}

/** Changes whenever the status of an app changes: each revision only increases, so their sum does, too. */
export function revisionOf(runtimes: readonly AppRuntime[]): number {
  return runtimes.reduce((sum, { revision }) => sum + revision, 0);
}
