/** Capabilities of some runtimes besides {@link AppRuntime}, one interface each. */
import type { Readable } from "node:stream";
import type { AppImageFreshness } from "../../gen/svc/v1/values.ts";
import type { EngineNeeds } from "../engine/protection.ts";
import type { JsonObject } from "../lib/json.ts";
import type { Terminal, TerminalSize } from "../lib/terminal.ts";
import type { Manifest } from "../packages/manifest/manifest.ts";
import type { RunnableApp } from "./runnable-app.ts";

/** Options of long operations of a runtime. */
export interface RuntimeWork {
  /** Cancels the work. */
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?:
    | ((progress: {
        step: string;
        message: string;
        doneBytes?: bigint;
        totalBytes?: bigint;
        service?: string;
      }) => void)
    | undefined;
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
  restoreNames(replaced: readonly ReplacedImage[]): Promise<void>;
  disk(app: RunnableApp, signal?: AbortSignal): Promise<RuntimeDisk>;
  /** The compose projects of these apps; empty for runtimes that have none. */
  stacks(apps: readonly RunnableApp[]): Promise<RuntimeStack[]>;
}

/** Volumes of an app. Backups contain only its own. */
export interface VolumeList {
  /** Named volumes of only this app, by their names within the app. */
  readonly own: readonly string[];
  /** External volumes, and those with a custom driver or name, by the engine's names. */
  readonly shared: readonly string[];
  /** Where anonymous volumes are mounted, such as `/data of service "db"`. */
  readonly anonymous: readonly string[];
}

/** Engine volumes with an app's data, by their names within the app. Their tars start with a `volume` entry. */
export interface EngineVolumes {
  list(id: string): Promise<VolumeList>;
  /** Reads the current content, even while the app writes. */
  read(id: string, key: string, signal?: AbortSignal): AsyncIterable<Buffer>;
  /** Creates a volume that the app does not have. @throws SvcError `not_possible` if the name belongs to another owner */
  create(id: string, key: string, tar: Readable, signal?: AbortSignal): Promise<void>;
  /** Unpacks the new content of a volume beside it. */
  stage(id: string, key: string, tar: Readable, signal?: AbortSignal): Promise<void>;
  /**
   * Copies the content of a stopped app's volume, for {@link rollBack}. Removes the app's containers.
   * @throws SvcError `not_possible` if a container of another owner uses it
   */
  backUp(id: string, key: string, signal?: AbortSignal): Promise<void>;
  /** Replaces the volume's content by the staged content. Copy the old content first. */
  swap(id: string, key: string, signal?: AbortSignal): Promise<void>;
  /** Restores the copied content, wherever a swap was interrupted; calling it twice is harmless. */
  rollBack(id: string, key: string): Promise<void>;
  /** Removes staged and copied content. */
  settle(id: string, key: string): Promise<void>;
}

/** A resolved compose project, for other engines. */
export interface ResolvedProject {
  /** The name of the compose project. */
  readonly project: string;
  /** The document that would run now, without svc's labels. */
  readonly document: JsonObject;
  /** The compose files that it was resolved from, relative to the checkout. */
  readonly composeFiles: readonly string[];
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
  /** Names of the ports that the app's running containers publish, such as `web-80`, by port and protocol. */
  boundNames?(id: string): ReadonlyMap<string, string>;
  /** Host ports that are published for running containers of any owner, from memory. `undefined`: unknown. */
  publishedNow(): ReadonlySet<number> | undefined;
}

/** For runtimes that store data of apps outside their trees. */
export interface DataRuntime {
  /** Call before the checkout is replaced. Moves data that a stopped app wrote into its checkout to a permanent place. */
  preserveData(app: RunnableApp): Promise<void>;
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
  requireResponse(app: RunnableApp): Promise<void>;
  /**
   * Notes that the app has nothing on the engine yet, so that it can be removed without the engine. Has no effect on an
   * app that was started.
   */
  begin(app: RunnableApp): void;
}

/** For runtimes whose apps other programs can start. */
export interface ExternallyStartedRuntime {
  /** IDs of apps with running parts, whoever started them; from memory. */
  upNow(): ReadonlySet<string>;
}

export interface RollOptions {
  readonly signal?: AbortSignal | undefined;
  /** True for a rollback, which succeeds if as much as possible of the old version runs. */
  readonly isBack?: boolean;
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
  /** Compares the manifest of a new version with its compose file. @throws SvcError as {@link AppRuntime.check} */
  currentManifest(app: RunnableApp, signal?: AbortSignal): Promise<CurrentManifest>;
}

/** A manifest with the port numbers that the compose file has now. */
export interface CurrentManifest {
  readonly manifest: Manifest;
  /** Differences, and what to change. */
  readonly notes: readonly string[];
  /** Whether a service listens on the host's own ports, which svc cannot move. */
  readonly usesHostNetwork: boolean;
}
