/** What `apps/` asks of whatever runs an app: a supervisor, the host's systemd, a container engine or a swarm. */
import type { Readable } from "node:stream";
import type { AppImageFreshness, LogLineStream } from "../../gen/svc/v1/words.ts";
import type { Manifest } from "../packages/manifest.ts";
import type { JsonObject } from "../lib/json.ts";
import type { Terminal, TerminalSize } from "../lib/terminal.ts";

/** An app, as far as running it goes. */
export interface RunnableApp {
  readonly id: string;
  readonly name: string;
  /** Whose it is: what an app may ask of the host goes by its owner (decisions 20). */
  readonly ownerUid: number;
  /** The uid that its files belong to and its processes run as. */
  readonly uid: number;
  /** The app's own tree: `repo/`, `data/`, `volumes/`, `logs/`. */
  readonly directory: string;
  /** Its checkout in there, while it is made ready beside the one that the app is; absent for that one. */
  readonly checkout?: string;
  /** Supervisor state and logs. */
  readonly runDir: string;
  /** The tag, else the short commit, else the manifest's version. */
  readonly version: string;
  readonly manifest: Manifest;
  /** The chosen settings, without defaults. */
  readonly settings: JsonObject;
  /** The values, defaults among them, that it was started with last; null before its first start. */
  readonly startedSettings: JsonObject | null;
  /** How it runs on an engine of several machines; absent on this machine. */
  readonly placement?: Placement;
}

/** How an app runs on a swarm. */
export interface Placement {
  /** In so many tasks; a compose project in so many of each service that keeps no data and says no number of its own. */
  readonly replicas: number;
  /** `host`: its ports are those of the nodes that run it. `mesh`: of every node. */
  readonly ports: "host" | "mesh";
}

/** One of the containers that an app is on a swarm. */
export interface RuntimeTask {
  /** Of a compose project; empty for the only one of an app. */
  readonly service: string;
  readonly slot: number;
  /** The name of its node; empty while it has none. */
  readonly node: string;
  /** The swarm's word. */
  readonly state: string;
  /** What is wrong, in the swarm's words; empty where nothing is. */
  readonly message: string;
  readonly sinceMs: number;
}

export type RuntimeState = "STOPPED" | "STARTING" | "RUNNING" | "STOPPING" | "FAILED" | "CRASHED" | "UNKNOWN";

/** Whether the app runs or is on its way to; `undefined`, of which nothing is known, does not. */
export function isUp(state: string | undefined): boolean {
  return state === "RUNNING" || state === "STARTING";
}

/** Whether nothing is to be started of an app: one that waits for a restart of its own, or of which a service does not run, is not up. */
export function isUpNow(status: RuntimeStatus | undefined): boolean {
  return isUp(status?.state) && status?.nextRestartAtMs === undefined && status?.isPartial !== true;
}

/** What the runtime knows about an app without asking anybody. */
export interface RuntimeStatus {
  readonly state: RuntimeState;
  /** Why, one sentence; empty where the state says everything. */
  readonly reason: string;
  readonly health: "none" | "starting" | "healthy" | "unhealthy";
  /** True: some of its services do not run that should. */
  readonly isPartial?: true;
  /** What its health check said when it failed last; absent while it passes. */
  readonly healthReason?: string;
  /** When the running process started, unix milliseconds. */
  readonly startedAtMs?: number;
  /** How the last process ended that ended by itself. */
  readonly exitCode?: number;
  readonly exitSignal?: string;
  readonly restarts: number;
  /** When it starts again by itself after it ended, unix milliseconds: it is STARTING until then. */
  readonly nextRestartAtMs?: number;
  /** How it ended that starts again then, without a full stop. */
  readonly endedReason?: string;
  /** It did not end by itself: what watches over it was ended. Where it is meant to run, it is to be started again. */
  readonly isLost?: boolean;
  /** The last lines before it failed or crashed, 20 at most. */
  readonly lastLines: readonly string[];
  /** Of an app on a swarm, by service and slot. */
  readonly tasks?: readonly RuntimeTask[];
}

/** Of an app that was never started here, or was stopped by its owner. */
export const stoppedStatus: RuntimeStatus = Object.freeze({
  state: "STOPPED",
  reason: "",
  health: "none",
  restarts: 0,
  lastLines: [],
});

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
  /** Where in the log it ends, for {@link LogPlace}; absent where a runtime knows no such place. */
  readonly position?: number;
}

/** How far a log was followed. */
export interface LogPlace {
  /** Of the last line, unix milliseconds. */
  readonly timeMs: number;
  readonly position?: number | undefined;
}

export interface FollowLogOptions {
  /** How many of the last lines come first, where it is not said what comes behind which place. */
  readonly tail: number;
  /** All from there on, however much it is; lines of that very millisecond may come again. */
  readonly after?: LogPlace | undefined;
  readonly signal: AbortSignal;
}

export interface RollOptions {
  readonly signal?: AbortSignal | undefined;
  /** To the version that it came from: as much of it as can run again is enough. */
  readonly isBack?: boolean;
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

/** What long work of a runtime takes beside its arguments. */
export interface RuntimeWork {
  /** Cancels the work. */
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?:
    | ((progress: { step: string; message: string; doneBytes?: bigint; totalBytes?: bigint }) => void)
    | undefined;
}

/** What an app takes of the disk beside its own tree. */
export interface RuntimeDisk {
  /** The images that it runs, layers shared with other images included. */
  readonly imageBytes?: number;
  /** Volumes of the engine. */
  readonly volumes: readonly { readonly name: string; readonly sizeBytes: number }[];
}

/** The image of an app; what is not known is absent. */
export interface RuntimeImage {
  readonly reference?: string;
  /** The version that the image states, or its tag. */
  readonly version?: string;
  readonly localDigest?: string;
  /** The remaining three only when the registry was asked. */
  readonly remoteDigest?: string;
  readonly freshness?: AppImageFreshness;
  /** Why freshness is `unknown`. */
  readonly freshnessReason?: string;
  /** True: the registry was asked, and did not say. */
  readonly isUnanswered?: boolean;
  /** Of a compose project instead of the rest: one for each service, by name. */
  readonly services?: { readonly service: string; readonly image: RuntimeImage }[];
}

/** A compose project as the engine has it. */
export interface RuntimeStack {
  readonly name: string;
  readonly appId: string;
  readonly services: readonly {
    readonly name: string;
    /** The engine's word. */
    readonly state: string;
    readonly container: string;
  }[];
}

/** What an app needs of the engine, whether it runs or not: nothing of it is ever pruned. */
export interface EngineNeeds {
  /** References or ids. */
  readonly images: readonly string[];
  /** Names of the engine's volumes. */
  readonly volumes: readonly string[];
}

/** What a name stood for before it was pulled afresh. */
export interface ReplacedImage {
  readonly reference: string;
  /** The engine's id of the image that it stood for. */
  readonly id: string;
}

/** What a pull made of the image of one service. */
export interface PulledService {
  readonly service: string;
  readonly reference: string;
  readonly changed: boolean;
  /** Why it was not pulled; empty when it was. */
  readonly reason: string;
}

export interface PulledImages {
  readonly changed: boolean;
  readonly digest: string;
  /** Those that are other images now. */
  readonly replaced: readonly ReplacedImage[];
  /** Of a compose project. */
  readonly services?: readonly PulledService[];
}

/** What runtimes can do whose apps are made of images. */
export interface ImageRuntime {
  /** From memory and the app's own files, never from the engine. */
  needs(app: RunnableApp): Promise<EngineNeeds>;
  /** @param checkRemote ask the registry how fresh the local image is */
  image(app: RunnableApp, options: { checkRemote: boolean; signal?: AbortSignal }): Promise<RuntimeImage>;
  /**
   * Pulls the image afresh. Containers stay as they are until {@link AppRuntime.stop} and {@link AppRuntime.start}.
   * @throws SvcError `pinned_image` for a tag that states a version, a digest or an image that was built here
   */
  pull(app: RunnableApp, work: RuntimeWork): Promise<PulledImages>;
  /** Undoes a pull: the names stand for what they stood for. */
  putBack(replaced: readonly ReplacedImage[]): Promise<void>;
  disk(app: RunnableApp, signal?: AbortSignal): Promise<RuntimeDisk>;
  /** The compose projects of these apps; empty for runtimes that have none. */
  stacks(apps: readonly RunnableApp[]): Promise<RuntimeStack[]>;
}

/** Volumes of the engine that an app keeps its data in, by their names within the app. Tars of them begin with `volume`. */
export interface EngineVolumes {
  /** Those that are the app's alone; `shared`: what the engine calls the others, which no backup holds. */
  list(id: string): Promise<{ own: string[]; shared: string[] }>;
  /** As the engine has it now, whatever the app does. */
  read(id: string, key: string, signal?: AbortSignal): AsyncIterable<Buffer>;
  /** Makes a volume of an app that does not have it. @throws SvcError `not_possible` where its name is somebody else's */
  create(id: string, key: string, tar: Readable, signal?: AbortSignal): Promise<void>;
  /** Lays out what a volume shall be, beside it. */
  stage(id: string, key: string, tar: Readable, signal?: AbortSignal): Promise<void>;
  /**
   * Copies what a volume of a stopped app is, for {@link putBack}. The app's containers are gone afterwards.
   * @throws SvcError `not_possible` when a container of somebody else has it
   */
  keep(id: string, key: string, signal?: AbortSignal): Promise<void>;
  /** Makes the volume what was staged; to be kept before. */
  swap(id: string, key: string, signal?: AbortSignal): Promise<void>;
  /** Makes the volume what was kept, wherever a swap was interrupted; doing it twice does no harm. */
  putBack(id: string, key: string): Promise<void>;
  /** Removes what was staged and kept. */
  settle(id: string, key: string): Promise<void>;
}

/** A compose project as others than svc are told of it. */
export interface ToldProject {
  /** As it would be run now, without svc's labels. */
  readonly document: JsonObject;
  /** Services whose images are built from the package. */
  readonly built: ReadonlySet<string>;
  /** Texts of the package's files that services see, by their absolute paths. */
  readonly files: ReadonlyMap<string, string>;
}

/** Addresses of the host by port and protocol, such as `8080/tcp`. */
export type PublishedAddresses = ReadonlyMap<string, readonly string[]>;

/** What is to be opened in an app. */
export interface TerminalRequest {
  /** `attach`: what the package gives the app; `shell`: a shell, or `command` in its place. */
  readonly session: "attach" | "shell";
  /** Program and arguments; empty for an interactive shell. */
  readonly command: readonly string[];
  /** Of a compose project; empty for its first. */
  readonly service: string;
  /** Of a shell: pipes, and standard error apart. */
  readonly withoutTerminal?: boolean;
  /** Of the window in which it is shown; absent where there is none, or it is not known yet. */
  readonly size?: TerminalSize;
}

export interface AppRuntime extends AsyncDisposable {
  /** Why nothing can be installed on it on this host, one sentence; absent where everything can. */
  readonly whyAbsent?: string | undefined;
  /**
   * Makes ready what a start needs beside the app's tree, once that is laid out: images are pulled or built, the
   * resolved configuration is checked. What another version of the app needs stays as it is, and from another checkout
   * than the app's nothing is made what the app is: that may run meanwhile.
   * @throws SvcError `denied` for what the owner's apps may not have (decisions 20), `build_failed`, `unavailable`
   */
  prepare(app: RunnableApp, work: RuntimeWork): Promise<void>;
  /** Removes what it keeps of other versions of an app than this one; doing it twice does no harm. */
  settle(app: RunnableApp): Promise<void>;
  /**
   * Finds out, as far as its description and its settings tell, whether a start would be refused. What runs of it stays
   * as it is.
   * @throws SvcError `denied` for what the owner's apps may not have (decisions 20), `package_invalid`
   */
  check(app: RunnableApp): Promise<void>;
  /** What another engine needs to know of a compose project. Absent for runtimes that have none. @throws SvcError as {@link check} */
  told?(app: RunnableApp): Promise<ToldProject>;
  /**
   * Before its checkout is replaced: moves what a stopped app has written there to where it stays. Absent for runtimes
   * whose apps may not expect that.
   */
  keepData?(app: RunnableApp): Promise<void>;
  /** Names of what it keeps beside an app's tree that {@link copyData} does not copy: a copy of the app would use the same. */
  sharedData?(id: string): Promise<string[]>;
  /**
   * Copies what it keeps of an app beside its tree for a copy that has nothing yet; resolves with the bytes. Absent for
   * runtimes that keep nothing there that is worth it.
   */
  copyData?(from: RunnableApp, to: RunnableApp, work: RuntimeWork): Promise<number>;
  /**
   * Starts an app that does not run; resolves once it does.
   * @throws SvcError `start_failed` with its last lines when it ends at once.
   */
  start(app: RunnableApp): Promise<void>;
  /**
   * Resolves when the app runs and its health check, if it has one, has passed.
   * @throws SvcError `start_failed` when it ends, restarts or turns unhealthy; `deadline_exceeded`, `canceled`
   */
  waitHealthy(id: string, timeoutMs: number, signal?: AbortSignal): Promise<void>;
  /**
   * Before what is not gone back on: finds out whether what keeps the app is there. Absent where svc alone does.
   * @throws SvcError `unavailable`
   */
  requireAnswer?(app: RunnableApp): Promise<void>;
  /** Ends every process of the app; nothing running is fine. */
  stop(app: RunnableApp): Promise<void>;
  /** Names of what {@link freeze} would freeze of an app now, as {@link thaw} takes them; none when it does not run. */
  freezable(app: RunnableApp): Promise<string[]>;
  /**
   * Freezes an app until {@link thaw}: nothing of it executes, nothing of it is started, and it stays as healthy as it was.
   * @param parts what {@link freezable} answered
   * @throws SvcError `unavailable` when some of it cannot be frozen; {@link thaw} is to be called all the same
   */
  freeze(app: RunnableApp, parts: readonly string[]): Promise<void>;
  /**
   * Lets what was frozen go on, also of an earlier daemon; what goes on already stays as it is. Resolves with whether all
   * of it stood still until now.
   */
  thaw(app: RunnableApp, parts: readonly string[]): Promise<boolean>;
  /**
   * Takes over what an earlier daemon left running, or finds out how it ended. `running` also where that cannot be told
   * yet; `lost` when it did not end by itself, as in a reboot of the host.
   * @param wasCut that daemon ended while it stopped or started the app: one that runs in parts is `lost` then, as some may be missing
   */
  adopt(app: RunnableApp, wasCut?: boolean): Promise<"running" | "ended" | "lost">;
  /**
   * Ids of apps of which something runs, whoever started it; from memory. Absent where nothing but svc can start what the
   * runtime runs.
   */
  upNow?(): ReadonlySet<string>;
  /** Ports of the host that are published for containers that run, whosever they are; from memory. `undefined`: they are not known. */
  publishedNow?(): ReadonlySet<number> | undefined;
  /** From memory. `undefined`: the runtime has neither started nor adopted it. */
  status(id: string): RuntimeStatus | undefined;
  /** Grows, at once, whenever the status of some app is another one; a status that did not change stays the same object. */
  readonly revision: number;
  /** Called with the id of an app whose status changed, soon after. */
  onChange(listener: (id: string) => void): Disposable;
  /**
   * Removes all that it keeps of a stopped app beside its tree, and forgets it. Resolves with the bytes that were freed.
   * @param keep `volumes`: those stay for the runtime that the app goes to
   */
  remove(app: RunnableApp, keep?: "volumes"): Promise<number>;
  /** Where its ports are published, or will be with its next start. Absent where apps listen by themselves. */
  publishedAt?(app: RunnableApp): Promise<PublishedAddresses>;
  logs(app: RunnableApp, options: { tail: number; signal?: AbortSignal }): Promise<LogChunk>;
  /** The last `tail` lines and then every new one, until `signal` aborts. */
  followLogs(app: RunnableApp, options: FollowLogOptions): AsyncIterable<LogChunk>;
  /**
   * Absent for runtimes that have none.
   * @throws SvcError `denied` for an app without what is asked for, `app_not_running` where only a running one has it
   */
  openTerminal?(app: RunnableApp, request: TerminalRequest): Promise<Terminal>;
  /**
   * Whether this version of an app, which is laid out, may run beside another one: then {@link roll} needs no end of it.
   * Absent for runtimes whose apps may not.
   * @throws SvcError `not_possible` where what runs now is in the way of any other version, also of one that needs its end
   */
  canRoll?(app: RunnableApp): Promise<boolean>;
  /**
   * Has what runs of an app be this version, bit by bit; what is of it already stays as it is. Resolves when all of it runs
   * and has done so for a while.
   * @throws SvcError `start_failed`: some of it may be of either version then, as when the signal aborts
   */
  roll?(to: RunnableApp, how?: RollOptions): Promise<void>;
  /** Has an app that runs do so in as many tasks as its placement says now. Absent for runtimes of one machine. */
  scale?(app: RunnableApp): Promise<void>;
  /** One shared window of about 500 ms for all apps together; entries for running ones only. */
  stats(apps: readonly RunnableApp[], signal?: AbortSignal): Promise<ReadonlyMap<string, RuntimeUsage>>;
  /** The manifest's limits, and whether they hold here. */
  limits(app: RunnableApp): readonly RuntimeLimit[];
  /** Absent for runtimes without images. */
  readonly images?: ImageRuntime;
  /** Absent for runtimes whose apps have none. */
  readonly volumes?: EngineVolumes;
}

/** Another number whenever the status of some app is another one: each revision only grows, so their sum does. */
export function revisionOf(runtimes: readonly AppRuntime[]): number {
  return runtimes.reduce((sum, { revision }) => sum + revision, 0);
}
