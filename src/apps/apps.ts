/** The installed applications: what handlers call. Everything here goes by who asks: another user's app is not found. */
import { setImmediate as nextTurn } from "node:timers/promises";
import type { App, ListAppsResponse } from "../../gen/svc/v1/app_pb.ts";
import type { AppState, ExportAppRequestTo } from "../../gen/svc/v1/words.ts";
import { exportApp } from "../export/export.ts";
import type { ExportedApp } from "../export/workload.ts";
import type { JsonObject } from "../lib/json.ts";
import { systemClock } from "../lib/clock.ts";
import { mapBounded } from "../lib/map-bounded.ts";
import type { Terminal } from "../lib/terminal.ts";
import { Ticker } from "../lib/ticker.ts";
import type { FoundPackages } from "../packages/sources.ts";
import type { SettingsValidator } from "../packages/settings-validator.ts";
import {
  isUp,
  type AppRuntime,
  type EngineNeeds,
  type LogChunk,
  type Placement,
  type RunnableApp,
  type RuntimeImage,
  type RuntimeStack,
  type RuntimeUsage,
  type TerminalRequest,
} from "../runtimes/runtime.ts";
import { noTerminal } from "../runtimes/no-terminal.ts";
import type { Executor } from "../store/executors.ts";
import { readSince, type LogStart } from "../runtimes/log-start.ts";
import { Adoption } from "./adoption.ts";
import { AppChanges, type AppChange } from "./app-changes.ts";
import type { AppRecord, NewApp } from "./app-record.ts";
import { BackupHold, type BackupMode, type HeldResult, type ReadHeld } from "./backup-hold.ts";
import { AppCounters, type AppCounts } from "./app-counters.ts";
import { AppRegistry, type AppCaller } from "./app-registry.ts";
import { AppReports } from "./app-reports.ts";
import { AppSettings, type SettingsView } from "./app-settings.ts";
import { stateOf, type AppBackupState } from "./app-view.ts";
import { AppViews, type AppBackupStates, type ListOptions } from "./app-views.ts";
import type { AppsContext } from "./apps-context.ts";
import { Cloner, type CloneRequest, type CloneResult } from "./clone.ts";
import { awaitUp } from "./coming-up.ts";
import type { FoundUpdates } from "./found-updates.ts";
import { FreePorts } from "./free-ports.ts";
import { Installer, type InstallRequest } from "./install.ts";
import { InstallTurns, type InstallLimits } from "./install-turns.ts";
import { DiskReports } from "./disk-reports.ts";
import { followApp } from "./log-follower.ts";
import { Lifecycle } from "./lifecycle.ts";
import { Operations } from "./operations.ts";
import { Placer } from "./placement.ts";
import { PortHolders, type ReportedPort } from "./port-holders.ts";
import { cancelably, type WorkOptions } from "./progress.ts";
import { Recovery } from "./recovery.ts";
import { Remover } from "./removal.ts";
import { Repuller, type RepullResult } from "./repull.ts";
import { Restorer } from "./restore.ts";
import { isReadable, requireReadable } from "./unreadable-app.ts";
import { WantedState } from "./wanted-state.ts";
import { Upgrader, type UpgradeRequest, type UpgradeResult } from "./upgrade.ts";

/** Whereto, and whether it is backed up first; see `UpgradeAppRequest`. */
export interface UpgradeOptions extends Omit<UpgradeRequest, "before"> {
  backup?: boolean | undefined;
}

/** What the parts of this folder share and somebody else makes. */
type Given = Omit<
  AppsContext,
  "registry" | "operations" | "ports" | "runtimes" | "runtimeOf" | "runtimesOf" | "runnable"
>;

export interface AppsOptions extends Given {
  executor: Executor;
  settings: SettingsValidator;
  /** By the manifest's word for them. */
  runtimes: ReadonlyMap<string, AppRuntime>;
  limits: InstallLimits & { maxAppsPerUser: number };
  /** Where ports of regular users' containers are published that name no address. */
  usersAddress: string;
  backups: AppBackupStates;
  updates: Pick<FoundUpdates, "revision" | "of">;
  /** Makes a backup of an app. */
  backUp: (app: AppRecord, caller: AppCaller, work: WorkOptions) => Promise<void>;
  /** Whether an upgrade that does not say takes a backup first. */
  backUpBeforeUpgrade: () => boolean;
}

/** How often operations of processes that ended are looked for. */
const sweepIntervalMs = 5_000;
/** In one turn of the event loop: a thousand take longer than the first answers, which they are not to keep waiting. */
const claimedAtOnce = 4;

export class Apps implements AsyncDisposable {
  readonly #options: AppsOptions;
  readonly #registry: AppRegistry;
  readonly #turns: InstallTurns;
  readonly #installer: Installer;
  readonly #upgrader: Upgrader;
  readonly #cloner: Cloner;
  readonly #remover: Remover;
  readonly #repuller: Repuller;
  readonly #lifecycle: Lifecycle;
  readonly #placer: Placer;
  readonly #operations: Operations;
  readonly #backupHold: BackupHold;
  /** For backups, which bring their own files. */
  readonly restorer: Restorer;
  readonly #recovery: Recovery;
  readonly #adoption: Adoption;
  readonly #ports: PortHolders;
  readonly #wanted: WantedState;
  readonly #settings: AppSettings;
  readonly #reports: AppReports;
  readonly #disks: DiskReports;
  readonly #views: AppViews;
  readonly #counters: AppCounters;
  readonly #changes: AppChanges;
  #adopted: Promise<string[]> = Promise.resolve([]);
  #starting: Promise<void> = Promise.resolve();
  readonly #mayClaim = Promise.withResolvers<undefined>();
  #sweeper: Ticker | undefined;

  constructor(options: AppsOptions) {
    this.#options = options;
    const { store, executor, userName, now, log } = options;
    const registry = new AppRegistry(store, log);
    const operations = new Operations({
      store,
      executor,
      now,
      recover: (operation) => this.#recovery.recover(operation),
      began: (operation) => this.#wanted.giveWay(operation),
      ended: (operation) => this.#wanted.takeBack(operation),
    });
    const runtimeOf = (app: NewApp): AppRuntime => this.#runtimeOf(app);
    const runnable = (app: NewApp): RunnableApp => this.#runnable(app);
    const runtimes = [...options.runtimes.values()];
    const ports = new PortHolders({ registry, runtimes, runtimeOf, runnable, userName });
    const shared: AppsContext = {
      ...options,
      ...{ registry, operations, ports, runtimes, runtimeOf, runnable },
      runtimesOf: (app) => this.#runtimesOf(app),
    };
    const settings = new AppSettings({
      ...shared,
      validator: options.settings,
      isUp: (app) => this.#isUp(app),
    });
    const lifecycle = new Lifecycle(shared);
    const freePorts = new FreePorts(shared);
    const installer = new Installer({
      ...shared,
      freePorts,
      settings,
      maxAppsPerUser: options.limits.maxAppsPerUser,
      whyAbsent: (runtime) => options.runtimes.get(runtime)?.whyAbsent,
    });
    const upgrader = new Upgrader({ ...shared, settings, lifecycle });
    const remover = new Remover(shared);
    this.#turns = new InstallTurns(options.limits);
    this.#registry = registry;
    this.#ports = ports;
    this.#settings = settings;
    this.#lifecycle = lifecycle;
    this.#operations = operations;
    this.#placer = new Placer(shared);
    this.#installer = installer;
    this.#upgrader = upgrader;
    this.#remover = remover;
    this.#repuller = new Repuller({ ...shared, lifecycle });
    this.#cloner = new Cloner({ ...shared, installer, freePorts });
    this.#backupHold = new BackupHold({ ...shared, lifecycle });
    this.restorer = new Restorer({ ...shared, settings, installer, freePorts, lifecycle });
    this.#recovery = new Recovery({
      ...shared,
      ...{ installer, upgrader, remover, lifecycle },
      backupHold: this.#backupHold,
      restorer: this.restorer,
    });
    this.#adoption = new Adoption({ ...shared, recovery: this.#recovery });
    this.#wanted = new WantedState({ ...shared, lifecycle, clock: systemClock(now) });
    this.#reports = new AppReports(shared);
    this.#disks = new DiskReports(shared);
    this.#changes = new AppChanges(shared);
    this.#views = new AppViews({
      ...shared,
      backups: options.backups,
      updates: options.updates,
      dueStarts: this.#wanted.dueStarts,
    });
    this.#counters = new AppCounters({
      ...shared,
      backups: options.backups,
      updates: options.updates,
      stateOf: (app) => this.#stateOf(app),
    });
  }

  /**
   * Takes over what runs, and brings to rest what a process that died left behind. Returns at once: both go on beside the
   * first answers, and who needs their outcome waits for it.
   */
  start(): void {
    const claimed = this.#mayClaim.promise.then(() => this.#claimTrees());
    this.#adopted = this.#adoption.start();
    this.#starting = this.#adopted.then(() => this.#sweep()).then(() => claimed);
    this.#sweeper = new Ticker(sweepIntervalMs, () => this.#sweep());
  }

  /** Begins to take the directories of apps from their owners, which has time until nobody waits for an answer. */
  claimTrees(): void {
    this.#mayClaim.resolve(undefined);
  }

  /** Brings every app to its wanted state, now and from now on. For who stays: a command that works in-process does not. */
  keepWanted(): void {
    this.claimTrees();
    void this.#adopted.then((ended) => this.#wanted.start(ended));
  }

  /** Starts nothing by itself any more. */
  async leaveAsTheyAre(): Promise<void> {
    this.#operations.leave();
    await this.#wanted[Symbol.asyncDispose]();
  }

  /** How many of the caller's apps are in which condition. */
  async counters(caller: AppCaller): Promise<AppCounts> {
    await this.#adoption.settled();
    return this.#counters.of(caller);
  }

  /** Grows whenever an app came, changed or went. */
  get revision(): number {
    return this.#registry.revision;
  }

  /** As {@link AppChanges.listen}, once it is known what runs. */
  async onChange(listener: (change: AppChange) => void): Promise<Disposable> {
    await this.#adoption.settled();
    return this.#changes.listen(listener);
  }

  /** Whose app it is; undefined for one that is not there. */
  ownerOf(id: string): number | undefined {
    return this.#registry.get(id)?.ownerUid;
  }

  /** Ids of all installed apps. */
  ids(): string[] {
    return this.#registry.all().map(({ id }) => id);
  }

  /** What is known of the backups of every app, by id; undefined where there is nothing to say. */
  backupStates(): ReadonlyMap<string, AppBackupState | undefined> {
    return new Map(this.#registry.all().map((app) => [app.id, this.#options.backups.of(app)]));
  }

  /** Ids of the apps that the caller may see. */
  visibleIds(caller: Pick<AppCaller, "uid" | "root">): ReadonlySet<string> {
    return new Set(this.#registry.visible(caller).map(({ id }) => id));
  }

  /** What the installed apps need of the container engine, by id. */
  async engineNeeds(): Promise<Map<string, EngineNeeds>> {
    const needs = new Map<string, EngineNeeds>();
    for (const app of this.#registry.all()) {
      const { images } = this.#runtimeOf(app);
      if (images !== undefined) needs.set(app.id, await images.needs(this.#runnable(app)));
    }
    return needs;
  }

  /** The state of every app, by id. */
  async states(): Promise<ReadonlyMap<string, AppState>> {
    await this.#adoption.settled();
    return new Map(this.#registry.all().map((app) => [app.id, this.#stateOf(app)]));
  }

  /** How many apps are in which state; every state is there. */
  async countByState(): Promise<Map<AppState, number>> {
    await this.#adoption.settled();
    return this.#counters.byState();
  }

  /** As {@link AppViews.list}. */
  async list(caller: AppCaller, options: ListOptions): Promise<ListAppsResponse> {
    await this.#adoption.settled();
    return this.#views.list(caller, options);
  }

  async get(id: string, caller: AppCaller): Promise<App> {
    return this.#views.view(await this.#findAny(id, caller));
  }

  /** A turn among those who fetch what users named. @throws SvcError as {@link InstallTurns.take} */
  async takeTurn(caller: AppCaller, work: WorkOptions): Promise<Disposable> {
    return this.#turns.take(caller, work);
  }

  /** @throws SvcError see {@link Installer.install} */
  async install(request: InstallRequest, caller: AppCaller, work: WorkOptions): Promise<App> {
    using _turn = await this.#turns.take(caller, work);
    const id = await cancelably(work, (within) => this.#installer.install(request, caller, within));
    return await this.get(id, caller);
  }

  /**
   * What can be installed from the sources, in its turn: indexes may have to be fetched.
   * @throws SvcError as {@link PackageResolver.search}
   */
  async searchPackages(
    words: readonly string[],
    source: string | undefined,
    caller: AppCaller,
    work: WorkOptions,
  ): Promise<FoundPackages> {
    using _turn = await this.#turns.take(caller, work);
    return await this.#options.packages.search(words, source, caller.ownerUid, work);
  }

  /** Resolves with the bytes that were freed. @throws SvcError see {@link Remover.remove} */
  async remove(id: string, caller: AppCaller): Promise<number> {
    return this.#remover.remove(await this.#findAny(id, caller));
  }

  /** @throws SvcError see {@link Lifecycle.start} */
  async startApp(id: string, caller: AppCaller): Promise<App> {
    await this.#lifecycle.start(await this.record(id, caller));
    return this.get(id, caller);
  }

  /** @throws SvcError see {@link Lifecycle.stop} */
  async stopApp(id: string, caller: AppCaller): Promise<App> {
    await this.#lifecycle.stop(await this.#findAny(id, caller));
    return this.get(id, caller);
  }

  async restartApp(id: string, caller: AppCaller): Promise<App> {
    await this.#lifecycle.restart(await this.record(id, caller));
    return this.get(id, caller);
  }

  /** @throws SvcError see {@link Placer.place} */
  async placeOn(id: string, placement: Placement | null, caller: AppCaller, work: WorkOptions): Promise<App> {
    await this.record(id, caller);
    // Its image may have to be pulled.
    using _turn = await this.#turns.take(caller, work);
    await this.#placer.place(await this.record(id, caller), placement, work);
    return await this.get(id, caller);
  }

  /** @throws SvcError see {@link Placer.scale} */
  async scale(id: string, replicas: number, caller: AppCaller): Promise<App> {
    await this.#placer.scale(await this.record(id, caller), replicas);
    return this.get(id, caller);
  }

  /** Resolves with the app as it was before. @throws SvcError see {@link Operations.cancel} */
  async cancelOperation(id: string, caller: AppCaller): Promise<App> {
    const app = await this.get(id, caller);
    this.#operations.cancel(id);
    return app;
  }

  /** As {@link exportApp}. */
  async export(id: string, to: ExportAppRequestTo, caller: AppCaller): Promise<ExportedApp> {
    const app = await this.record(id, caller);
    // Wherever it is placed.
    const runtime = this.#options.runtimes.get(app.runtime);
    const told = runtime?.told?.bind(runtime);
    return exportApp(this.#runnable(app), to, { usersAddress: this.#options.usersAddress, told });
  }

  /** The app, once it is up. @throws SvcError see {@link awaitUp} */
  async awaitUp(id: string, caller: AppCaller, work: WorkOptions): Promise<App> {
    const app = await this.record(id, caller);
    await awaitUp(app, this.#runtimeOf(app), work);
    return this.get(id, caller);
  }

  /** @throws SvcError see {@link Upgrader.upgrade} */
  async upgrade(
    id: string,
    { backup = this.#options.backUpBeforeUpgrade(), ...request }: UpgradeOptions,
    caller: AppCaller,
    work: WorkOptions,
  ): Promise<UpgradeResult> {
    await this.record(id, caller);
    using _turn = await this.#turns.take(caller, work);
    const app = await this.record(id, caller);
    const before =
      backup &&
      (() => {
        work.onProgress?.({ step: "backup", message: `Backing up ${app.name} ${app.version} first` });
        return this.#options.backUp(app, caller, work);
      });
    return await cancelably(work, (within) =>
      this.#upgrader.upgrade(app, { ...request, ...(before && { before }) }, within),
    );
  }

  /** The image of an app; empty for one that has none. @param checkRemote ask the registry how fresh it is */
  async image(
    id: string,
    checkRemote: boolean,
    caller: AppCaller,
    signal: AbortSignal,
  ): Promise<RuntimeImage> {
    const app = await this.record(id, caller);
    return (await this.#runtimeOf(app).images?.image(this.#runnable(app), { checkRemote, signal })) ?? {};
  }

  /** @throws SvcError see {@link Repuller.repull} */
  async repull(id: string, caller: AppCaller, work: WorkOptions): Promise<RepullResult> {
    const app = await this.record(id, caller);
    return cancelably(work, (within) => this.#repuller.repull(app, within));
  }

  async stacks(caller: AppCaller): Promise<RuntimeStack[]> {
    await this.#adoption.settled();
    return this.#reports.stacks(this.#registry.visible(caller));
  }

  /** @throws SvcError see {@link Cloner.clone} */
  async clone(id: string, request: CloneRequest, caller: AppCaller, work: WorkOptions): Promise<CloneResult> {
    const app = await this.record(id, caller);
    return cancelably(work, (within) => this.#cloner.clone(app, request, caller, within));
  }

  /** The apps as svc keeps them, but for those that cannot be read. */
  async all(): Promise<readonly AppRecord[]> {
    await this.#adopted;
    return this.#registry.all().filter(isReadable);
  }

  /** The app as svc keeps it, once it is known what runs of it. @throws SvcError `store_damaged` for one that cannot be read */
  async record(id: string, caller: AppCaller): Promise<AppRecord> {
    const app = await this.#findAny(id, caller);
    requireReadable(app);
    return app;
  }

  /** As {@link record}; undefined where the caller sees none of that id. */
  async installed(id: string, caller: AppCaller): Promise<AppRecord | undefined> {
    const isThere = this.#registry.visible(caller).some((app) => app.id === id);
    return isThere ? this.record(id, caller) : undefined;
  }

  /** @throws SvcError see {@link BackupHold.hold} */
  async holdForBackup<T>(
    id: string,
    mode: BackupMode,
    read: ReadHeld<T>,
    caller: AppCaller,
    work: WorkOptions,
  ): Promise<HeldResult<T>> {
    const app = await this.record(id, caller);
    return this.#backupHold.hold(app.id, mode, read, work);
  }

  /** Whether there is such an app that the caller may see. */
  has(id: string, caller: AppCaller): boolean {
    return this.#registry.has(id, caller);
  }

  /** Where the app lies, and the uid that its files belong to. */
  async place(id: string, caller: AppCaller): Promise<Pick<RunnableApp, "directory" | "uid">> {
    return this.#runnable(await this.record(id, caller));
  }

  async settings(id: string, caller: AppCaller): Promise<SettingsView> {
    return this.#settings.view(await this.record(id, caller));
  }

  /** @throws SvcError see {@link AppSettings.replace} */
  async replaceSettings(id: string, values: JsonObject, caller: AppCaller): Promise<SettingsView> {
    await this.#settings.replace(await this.record(id, caller), values);
    return this.settings(id, caller);
  }

  async ports(id: string, caller: AppCaller): Promise<ReportedPort[]> {
    const [ports = []] = await this.#ports.report([await this.record(id, caller)]);
    return ports;
  }

  portReport(caller: AppCaller): ReturnType<AppReports["portReport"]> {
    return this.#reports.portReport(this.#registry.visible(caller));
  }

  async disk(id: string, caller: AppCaller, signal: AbortSignal): ReturnType<DiskReports["disk"]> {
    return this.#disks.disk(await this.record(id, caller), signal);
  }

  async diskReport(caller: AppCaller, signal: AbortSignal): ReturnType<DiskReports["report"]> {
    const cacheBytes = await this.#options.packages.cacheBytes(caller.root ? undefined : caller.uid);
    return this.#disks.report(this.#registry.visible(caller), cacheBytes, signal);
  }

  /** @param ids which of the visible apps; empty for all of them */
  async stats(
    ids: readonly string[],
    caller: AppCaller,
    signal: AbortSignal,
  ): ReturnType<AppReports["stats"]> {
    await this.#adoption.settled();
    const visible = this.#registry.visible(caller);
    const chosen = new Set(ids);
    return this.#reports.stats(
      ids.length === 0 ? visible : visible.filter((app) => chosen.has(app.id)),
      signal,
    );
  }

  /** What all running apps use, by id. */
  async usages(signal: AbortSignal): Promise<ReadonlyMap<string, RuntimeUsage>> {
    await this.#adoption.settled();
    return this.#reports.usages(this.#registry.all(), signal);
  }

  /** The last lines of the log, or those from an instant on. */
  async logs(id: string, from: LogStart, caller: AppCaller, signal: AbortSignal): Promise<LogChunk> {
    const app = await this.record(id, caller);
    return readSince(from, (tail) => this.#runtimeOf(app).logs(this.#runnable(app), { tail, signal }));
  }

  /** Those and then each new one, across restarts, until `signal` aborts or the app is removed. */
  async *followLogs(
    id: string,
    from: LogStart,
    caller: AppCaller,
    signal: AbortSignal,
  ): AsyncIterable<LogChunk> {
    const app = await this.record(id, caller);
    // Another app that gets the id later is not the one that was asked for.
    const isThere = (): boolean => this.#registry.get(id)?.createdAtMs === app.createdAtMs;
    yield* followApp(this.#runtimeOf(app), this.#runnable(app), { ...from, signal, isThere });
  }

  /** @throws SvcError as {@link AppRuntime.openTerminal} */
  async openTerminal(id: string, request: TerminalRequest, caller: AppCaller): Promise<Terminal> {
    const app = await this.record(id, caller);
    const runtime = this.#runtimeOf(app);
    if (runtime.openTerminal === undefined) throw noTerminal(id);
    return runtime.openTerminal(this.#runnable(app), request);
  }

  /** The app, once it is known what runs of it. */
  async #findAny(id: string, caller: AppCaller): Promise<AppRecord> {
    this.#registry.find(id, caller);
    await this.#adoption.of(id);
    return this.#registry.find(id, caller);
  }

  #stateOf(app: AppRecord): AppState {
    return stateOf(app, this.#registry.operationOf(app.id), this.#runtimeOf(app).status(app.id)).state;
  }

  #isUp(app: AppRecord): boolean {
    return isUp(this.#runtimeOf(app).status(app.id)?.state);
  }

  #runtimeOf(app: Pick<AppRecord, "id" | "runtime" | "placement">): AppRuntime {
    const name = app.placement === null ? app.runtime : "swarm";
    const runtime = this.#options.runtimes.get(name);
    if (runtime === undefined) throw new Error(`app ${app.id} needs the runtime ${name}`);
    return runtime;
  }

  #runtimesOf(app: AppRecord): readonly AppRuntime[] {
    const swarm = this.#options.runtimes.get("swarm");
    const mayBeOnSwarm = !isReadable(app) && (app.runtime === "docker" || app.runtime === "compose");
    return mayBeOnSwarm && swarm !== undefined ? [swarm, this.#runtimeOf(app)] : [this.#runtimeOf(app)];
  }

  #runnable(app: NewApp): RunnableApp {
    const { paths } = this.#options;
    const { id, name, ownerUid, runUid: uid, version, manifest, settings, startedSettings, placement } = app;
    const [directory, runDir] = [paths.appDir(id), paths.appRunDir(id)];
    return {
      ...{ id, name, ownerUid, uid, directory, runDir, version, manifest, settings, startedSettings },
      ...(placement !== null && { placement }),
    };
  }

  /** Their roots were their owners' once. */
  async #claimTrees(): Promise<void> {
    const { identities, paths, log } = this.#options;
    // Whose files those of the others are is not known.
    const readable = this.#registry.all().filter(isReadable);
    await mapBounded(readable, claimedAtOnce, async ({ id, runUid }) => {
      await nextTurn();
      try {
        await (await identities.tree(paths.appDir(id), runUid)).claim();
      } catch (error) {
        log.warn({ err: error, appId: id }, "the directory of an app could not be taken from its owner");
      }
    });
  }

  async #sweep(): Promise<void> {
    try {
      await this.#recovery.sweep();
    } catch (error) {
      this.#options.log.error({ err: error }, "operations that were left behind could not be looked for");
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.leaveAsTheyAre();
    this.claimTrees();
    await this.#starting;
    await this.#sweeper?.[Symbol.asyncDispose]();
    this.#adoption[Symbol.dispose]();
    this.#changes[Symbol.dispose]();
    this.#registry[Symbol.dispose]();
  }
}
