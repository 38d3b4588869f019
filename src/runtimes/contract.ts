/** The interface between `apps/` and everything that runs apps: a supervisor, the host's systemd, a container engine or a swarm. */
import type { EngineNeeds } from "../engine/protection.ts";
import type { LogChunk, LogPlace } from "../logs/log-chunk.ts";
import type { Readable } from "node:stream";
import type { AppImageFreshness } from "../../gen/svc/v1/words.ts";
import type { Manifest } from "../packages/manifest/manifest.ts";
import type { JsonObject } from "../lib/json.ts";
import type { Terminal, TerminalSize } from "../lib/terminal.ts";

/** The parts of an app that a runtime needs. */
export interface RunnableApp {
  readonly id: string;
  readonly name: string;
  /** The owner, who decides what the app may ask of the host. */
  readonly ownerUid: number;
  /** The uid of its files and processes. */
  readonly uid: number;
  /** The app's own tree: `repo/`, `data/`, `volumes/`, `logs/`. */
  readonly directory: string;
  /** A checkout that is prepared beside the current one; absent for the current one. */
  readonly checkout?: string;
  /** Supervisor state and logs. */
  readonly runDir: string;
  /** The tag; without one the short commit, or else the manifest's version. */
  readonly version: string;
  readonly manifest: Manifest;
  /** The chosen settings, without defaults. */
  readonly settings: JsonObject;
  /** The values of the last start, including defaults; null before the first start. */
  readonly startedSettings: JsonObject | null;
  /** Placement on a swarm; absent on this host. */
  readonly placement?: Placement;
}

/** Placement on a swarm. */
export interface Placement {
  /** Number of tasks; in a compose project, of each service without data and without a number of its own. */
  readonly replicas: number;
  /** `host`: ports are published on the nodes that run the app. `mesh`: on every node. */
  readonly ports: "host" | "mesh";
}

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
  readonly health: "none" | "starting" | "healthy" | "unhealthy";
  /** True: one of its containers has a terminal. */
  readonly hasTerminal?: true;
  /** True: some services that should run do not. */
  readonly isPartial?: true;
  /** The output of the last failed health check; absent while the check passes. */
  readonly healthReason?: string;
  /** When the running process started, unix milliseconds. */
  readonly startedAtMs?: number;
  /** How the last process that exited by itself ended. */
  readonly exitCode?: number;
  readonly exitSignal?: string;
  readonly restarts: number;
  /** Time of the planned restart, unix milliseconds; the app is STARTING until then. */
  readonly nextRestartAtMs?: number;
  /** How the app that will be restarted ended, without a full stop. */
  readonly endedReason?: string;
  /** True if its supervisor or engine was killed, rather than the app exiting. If it should run, it must be started again. */
  readonly isLost?: boolean;
  /** The last lines before it failed or crashed, at most 20. */
  readonly lastLines: readonly string[];
  /** Tasks of an app on a swarm, by service and slot. */
  readonly tasks?: readonly RuntimeTask[];
}

/** Status of an app that was never started here, or that its owner stopped. */
export const stoppedStatus: RuntimeStatus = Object.freeze({
  state: "STOPPED",
  reason: "",
  health: "none",
  restarts: 0,
  lastLines: [],
});

export interface FollowLogOptions {
  /** Number of last lines to start with, if `after` is absent. */
  readonly tail: number;
  /** Start after this position, however many lines follow; lines of the same millisecond may be repeated. */
  readonly after?: LogPlace | undefined;
  readonly signal: AbortSignal;
}

export interface RollOptions {
  readonly signal?: AbortSignal | undefined;
  /** True for a rollback, which succeeds if as much as possible of the old version runs. */
  readonly isBack?: boolean;
}

/** Resource usage of one app; values that cannot be measured are absent. */
export interface RuntimeUsage {
  /** Percent of one CPU. */
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
  /** False if this host cannot enforce it. */
  readonly enforced: boolean;
}

/** Options of long operations of a runtime. */
export interface RuntimeWork {
  /** Cancels the work. */
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?:
    | ((progress: { step: string; message: string; doneBytes?: bigint; totalBytes?: bigint }) => void)
    | undefined;
}

/** Disk usage of an app outside its directory tree. */
export interface RuntimeDisk {
  /** The images that it runs, including layers shared with other images. */
  readonly imageBytes?: number;
  /** Engine volumes. */
  readonly volumes: readonly { readonly name: string; readonly sizeBytes: number }[];
}

/** The image of an app; unknown values are absent. */
export interface RuntimeImage {
  readonly reference?: string;
  /** The version in the image's labels, or its tag. */
  readonly version?: string;
  readonly localDigest?: string;
  /** This value and the next two only after a check of the registry. */
  readonly remoteDigest?: string;
  readonly freshness?: AppImageFreshness;
  /** Why freshness is `unknown`. */
  readonly freshnessReason?: string;
  /** True if the registry was queried without a result. */
  readonly isUnanswered?: boolean;
  /** For a compose project, instead of the other values: one per service, by name. */
  readonly services?: { readonly service: string; readonly image: RuntimeImage }[];
}

/** A compose project on the engine. */
export interface RuntimeStack {
  readonly name: string;
  readonly appId: string;
  readonly services: readonly {
    readonly name: string;
    /** The engine's state name. */
    readonly state: string;
    readonly container: string;
  }[];
}

/** The image that a name referred to before a pull. */
export interface ReplacedImage {
  readonly reference: string;
  /** The engine's ID of that image. */
  readonly id: string;
}

/** The result of a pull for one service. */
export interface PulledService {
  readonly service: string;
  readonly reference: string;
  readonly changed: boolean;
  /** Why it was not pulled; empty if it was. */
  readonly reason: string;
}

export interface PulledImages {
  readonly changed: boolean;
  readonly digest: string;
  /** Names that refer to other images now. */
  readonly replaced: readonly ReplacedImage[];
  /** Results per service of a compose project. */
  readonly services?: readonly PulledService[];
}

/** For runtimes whose apps run from images. */
export interface ImageRuntime {
  /** Reads only memory and the app's files, never the engine. */
  needs(app: RunnableApp): Promise<EngineNeeds>;
  /** @param checkRemote ask the registry how fresh the local image is */
  image(app: RunnableApp, options: { checkRemote: boolean; signal?: AbortSignal }): Promise<RuntimeImage>;
  /**
   * Pulls the image again. Containers are unchanged until {@link AppRuntime.stop} and {@link AppRuntime.start}.
   * @throws SvcError `pinned_image` for a tag that states a version, a digest or an image that was built here
   */
  pull(app: RunnableApp, work: RuntimeWork): Promise<PulledImages>;
  /** Rolls back a pull: the names refer to the previous images again. */
  putBack(replaced: readonly ReplacedImage[]): Promise<void>;
  disk(app: RunnableApp, signal?: AbortSignal): Promise<RuntimeDisk>;
  /** The compose projects of these apps; empty for runtimes that have none. */
  stacks(apps: readonly RunnableApp[]): Promise<RuntimeStack[]>;
}

/** Engine volumes with an app's data, by their names within the app. Their tars start with a `volume` entry. */
export interface EngineVolumes {
  /** `own`: volumes of only this app. `shared`: the engine's names of the others, which backups do not contain. */
  list(id: string): Promise<{ own: string[]; shared: string[] }>;
  /** Reads the current content, even while the app writes. */
  read(id: string, key: string, signal?: AbortSignal): AsyncIterable<Buffer>;
  /** Creates a volume that the app does not have. @throws SvcError `not_possible` if the name belongs to another owner */
  create(id: string, key: string, tar: Readable, signal?: AbortSignal): Promise<void>;
  /** Unpacks the new content of a volume beside it. */
  stage(id: string, key: string, tar: Readable, signal?: AbortSignal): Promise<void>;
  /**
   * Copies the content of a stopped app's volume, for {@link putBack}. Removes the app's containers.
   * @throws SvcError `not_possible` if a container of another owner uses it
   */
  keep(id: string, key: string, signal?: AbortSignal): Promise<void>;
  /** Replaces the volume's content by the staged content. Copy the old content first. */
  swap(id: string, key: string, signal?: AbortSignal): Promise<void>;
  /** Restores the copied content, wherever a swap was interrupted; calling it twice is harmless. */
  putBack(id: string, key: string): Promise<void>;
  /** Removes staged and copied content. */
  settle(id: string, key: string): Promise<void>;
}

/** A resolved compose project, for other engines. */
export interface ResolvedProject {
  /** The name of the compose project. */
  readonly project: string;
  /** The document that would run now, without svc's labels. */
  readonly document: JsonObject;
  /** Services whose images are built from the package. */
  readonly built: ReadonlySet<string>;
  /** Texts of the package's files that services mount, by absolute path. */
  readonly files: ReadonlyMap<string, string>;
}

/** Addresses of the host by port and protocol, such as `8080/tcp`. */
export type PublishedAddresses = ReadonlyMap<string, readonly string[]>;

/** A request for a terminal in an app. */
export interface TerminalRequest {
  /** `attach`: the app's main program; `shell`: a shell, or `command` instead. */
  readonly session: "attach" | "shell";
  /** Program and arguments; empty for an interactive shell. */
  readonly command: readonly string[];
  /** Service of a compose project; empty for the first. */
  readonly service: string;
  /** For a shell: use pipes, with a separate standard error. */
  readonly withoutTerminal?: boolean;
  /** Size of the window; absent if there is none or it is unknown. */
  readonly size?: TerminalSize;
}

/** Freezes apps for a backup. */
export interface FreezingRuntime {
  /** Names of the parts that {@link freeze} would freeze now; empty if the app does not run. */
  freezable(app: RunnableApp): Promise<string[]>;
  /**
   * Freezes an app until {@link thaw}: its processes do not execute, none is started, and its health does not change.
   * @param parts as {@link freezable} returned them
   * @throws SvcError `unavailable` if a part cannot be frozen; call {@link thaw} even then
   */
  freeze(app: RunnableApp, parts: readonly string[]): Promise<void>;
  /**
   * Resumes frozen parts, also those of an earlier daemon. Resolves to whether all parts were frozen until now.
   */
  thaw(app: RunnableApp, parts: readonly string[]): Promise<boolean>;
}

/** Measures and limits what apps use. */
export interface UsageRuntime {
  /** Samples all running apps in one window of about 500 ms. */
  stats(apps: readonly RunnableApp[], signal?: AbortSignal): Promise<ReadonlyMap<string, RuntimeUsage>>;
  /** The manifest's limits, and whether this host enforces them. */
  limits(app: RunnableApp): readonly RuntimeLimit[];
}

/** Opens terminals in apps. */
export interface TerminalRuntime {
  /** @throws SvcError `denied` if the app has no such session; `app_not_running` if only a running app has it */
  openTerminal(app: RunnableApp, request: TerminalRequest): Promise<Terminal>;
}

/** For runtimes that publish ports of apps, which do not listen on the host themselves. */
export interface PublishingRuntime {
  /** Where the app's ports are published, or will be after its next start. */
  publishedAt(app: RunnableApp): Promise<PublishedAddresses>;
  /** Host ports that are published for running containers of any owner, from memory. `undefined`: unknown. */
  publishedNow(): ReadonlySet<number> | undefined;
}

/** For runtimes that store data of apps outside their trees. */
export interface DataRuntime {
  /** Call before the checkout is replaced. Moves data that a stopped app wrote into its checkout to a permanent place. */
  keepData(app: RunnableApp): Promise<void>;
  /** Names of data that {@link copyData} does not copy, so that a copy of the app would share it. */
  sharedData(id: string): Promise<string[]>;
  /** Copies an app's data outside its tree for a new copy of the app. Resolves to the number of bytes. */
  copyData(from: RunnableApp, to: RunnableApp, work: RuntimeWork): Promise<number>;
}

/** For runtimes whose engine may not be reachable. */
export interface EngineRuntime {
  /**
   * Checks that the engine responds. Call before steps that cannot be rolled back.
   * @throws SvcError `unavailable`
   */
  requireAnswer(app: RunnableApp): Promise<void>;
}

/** For runtimes whose apps other programs can start. */
export interface OpenRuntime {
  /** IDs of apps with running parts, whoever started them; from memory. */
  upNow(): ReadonlySet<string>;
}

/** For runtimes that can upgrade a running app in a rolling way. */
export interface RollingRuntime {
  /**
   * Whether this checked-out version may run beside another one, so that {@link roll} does not have to stop the app.
   * @throws SvcError `not_possible` if the running version prevents any other version, even after a stop
   */
  canRoll(app: RunnableApp): Promise<boolean>;
  /**
   * Replaces the running parts of an app by this version, one after another; parts of this version are unchanged. Resolves when all
   * parts have run for a while.
   * @throws SvcError `start_failed`; parts of both versions may run then, as after an abort of the signal
   */
  roll(to: RunnableApp, how?: RollOptions): Promise<void>;
}

/** For runtimes that run apps in several tasks. */
export interface ScalingRuntime {
  /** Changes a running app to the number of tasks in its placement. */
  scale(app: RunnableApp): Promise<void>;
}

/** For runtimes that run compose projects. */
export interface ProjectRuntime {
  /** Describes a compose project for another engine. @throws SvcError as {@link AppRuntime.check} */
  describe(app: RunnableApp): Promise<ResolvedProject>;
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
   * Adopts an app that an earlier daemon left running, or finds out how it ended. `running` also if that is unknown; `lost` if it did
   * not exit by itself, as after a reboot of the host.
   * @param wasCut the daemon ended while it stopped or started the app, so an app that runs only in part is `lost`
   */
  adopt(app: RunnableApp, wasCut?: boolean): Promise<"running" | "ended" | "lost">;
  /** The status from memory. `undefined`: the runtime has neither started nor adopted the app. */
  status(id: string): RuntimeStatus | undefined;
  /** Increases at once whenever the status of an app changes; an unchanged status stays the same object. */
  readonly revision: number;
  /** Calls `listener` with an app's ID soon after its status changed. */
  onChange(listener: (id: string) => void): Disposable;
  /**
   * Removes everything of a stopped app outside its tree, and forgets the app. Resolves to the number of freed bytes.
   * @param keep `volumes`: keep the volumes for the app's next runtime
   */
  remove(app: RunnableApp, keep?: "volumes"): Promise<number>;
  logs(app: RunnableApp, options: { tail: number; signal?: AbortSignal }): Promise<LogChunk>;
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
  readonly open?: OpenRuntime;
  readonly rolling?: RollingRuntime;
  readonly scaling?: ScalingRuntime;
  readonly projects?: ProjectRuntime;
}

/** Changes whenever the status of an app changes: each revision only increases, so their sum does, too. */
export function revisionOf(runtimes: readonly AppRuntime[]): number {
  return runtimes.reduce((sum, { revision }) => sum + revision, 0);
}
