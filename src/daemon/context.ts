/** Builds every service of the daemon once, for the daemon itself and for a CLI that works in-process. */
import { lookup } from "node:dns/promises";
import { join } from "node:path";
import { AuditReader } from "../audit/audit-reader.ts";
import { AuditTrail } from "../audit/audit-trail.ts";
import { systemClock, type Clock } from "../lib/clock.ts";
import { DaemonMetrics } from "../metrics/daemon-metrics.ts";
import { readAlertFacts } from "../alerts/alert-facts.ts";
import { AlertStore } from "../alerts/alert-store.ts";
import { Alerts } from "../alerts/alerts.ts";
import { createNotifier } from "../alerts/notifier.ts";
import { AppHistory } from "../apps/app-history.ts";
import { AppUpdates } from "../apps/app-updates.ts";
import { FoundUpdates } from "../apps/found-updates.ts";
import { Apps } from "../apps/apps.ts";
import { BackupStates } from "../backups/backup-states.ts";
import { Age } from "../backups/age/age.ts";
import { Backups } from "../backups/backups.ts";
import { S3Thread } from "../backups/storages/s3-thread.ts";
import { createAppPaths } from "../apps/app-paths.ts";
import { Credentials } from "../credentials/credentials.ts";
import { DockerHost } from "../docker/docker-host.ts";
import { NodeEvents } from "../events/node-events.ts";
import { FileStages } from "../files/file-stages.ts";
import { Files } from "../files/files.ts";
import { SystemIdentities } from "../files/system-identities.ts";
import { bindServices } from "../handlers/services.ts";
import { HealthState, bindHealth } from "../rpc/health.ts";
import { bindReflection } from "../rpc/reflection.ts";
import { HostMetrics } from "../host/host-metrics.ts";
import { HostProcesses } from "../host/host-processes.ts";
import { HostThread } from "../host/host-thread.ts";
import { whyForeign } from "../host/own-listeners.ts";
import { ProcessSignals } from "../host/process-signals.ts";
import { HostReboot } from "../host/reboot.ts";
import { createIdentities } from "../identity/identities.ts";
import { FairTurns } from "../lib/fair-turns.ts";
import { UserNames } from "../identity/user-names.ts";
import { createUsers, type Users } from "../identity/user.ts";
import { readBootTimeMs } from "../lib/boot-time.ts";
import { readBootId } from "../lib/boot-id.ts";
import { makeDirectory } from "../lib/make-directory.ts";
import { createPackageResolver } from "../packages/create-package-resolver.ts";
import { SourceList } from "../packages/source-list.ts";
import { createManifestParser } from "../packages/manifest-parser.ts";
import { createSettingsValidator } from "../packages/settings-validator.ts";
import { YamlThread } from "../packages/yaml-thread.ts";
import { createPipeline, type Pipeline } from "../rpc/pipeline.ts";
import type { UserContext } from "../rpc/user-context.ts";
import { Cgroups } from "../runtimes/process/cgroup.ts";
import { ProcessRuntime } from "../runtimes/process/process-runtime.ts";
import type { PeerUid } from "../runtimes/process/supervisor-connection.ts";
import type { AppRuntime } from "../runtimes/runtime.ts";
import { serviceCapability, ServiceRuntime } from "../runtimes/service/service-runtime.ts";
import { isSystemdHost, unitLimits } from "../runtimes/service/systemd.ts";
import { JobOwners } from "../scheduler/jobs/job-owners.ts";
import { JobRegistry } from "../scheduler/jobs/job-registry.ts";
import { RunLog } from "../scheduler/runs/run-log.ts";
import { Scheduler } from "../scheduler/scheduler.ts";
import { Schedules } from "../scheduler/schedules.ts";
import { Zones } from "../scheduler/trigger/zone.ts";
import { currentExecutor } from "../store/executors.ts";
import { openStore, type InspectionAhead } from "../store/store.ts";
import { storeIdOf } from "../store/store-id.ts";
import { Consoles } from "../console/consoles.ts";
import { ConsoleTokens } from "../tokens/console-tokens.ts";
import { TokenAuthority } from "../tokens/token-authority.ts";
import { checkAccounts } from "./config-accounts.ts";
import { ConfigReload } from "./config-reload.ts";
import type { Config } from "./config.ts";
import { createContainerEngine } from "./container-engine.ts";
import type { DaemonLog } from "./log.ts";
import type { Programs } from "./programs.ts";
import { claimStore } from "./store-claim.ts";

/** An app that ends this soon after its start has failed to start. */
const settleMs = 1_000;

export interface ContextOptions {
  config: Config;
  /** Reads it again. */
  reloadConfig: () => Promise<Config>;
  version: string;
  programs: Programs;
  /** The uid of this process. */
  selfUid: number;
  log: DaemonLog;
  /** Whom the kernel names at the other end of a unix socket. */
  peerUid: PeerUid;
  /** Default: the host's. */
  clock?: Clock;
  /** What `inspectAhead` has begun of the store. */
  storeAhead?: InspectionAhead | undefined;
  /** Ends all running calls. */
  shutdownSignal: AbortSignal;
  /** Where a browser on this machine finds the page. Default: nowhere. */
  pageAddress?: () => string | undefined;
  /** Whether it is the daemon of its store, of which there is one, and no command beside it. */
  isDaemon?: boolean;
}

export interface DaemonContext extends AsyncDisposable {
  readonly pipeline: Pipeline;
  readonly health: HealthState;
  readonly apps: Apps;
  readonly backups: Backups;
  /** To be started where jobs are to fire. */
  readonly scheduler: Scheduler;
  /** To be started where samples are to be taken. */
  readonly hostMetrics: HostMetrics;
  /** Likewise. */
  readonly appHistory: AppHistory;
  /** Likewise, to look once a day. */
  readonly updates: AppUpdates;
  readonly alerts: Alerts;
  readonly configReload: ConfigReload;
  /** To be started where somebody may follow. */
  readonly events: NodeEvents;
  /** Open for a daemon; otherwise to be opened before it recognises anybody. */
  readonly tokens: TokenAuthority;
  readonly consoleTokens: ConsoleTokens<UserContext>;
}

export async function createContext(options: ContextOptions): Promise<DaemonContext> {
  const { storeAhead } = options;
  if (storeAhead === undefined) return buildContext(options);
  try {
    return await buildContext(options);
  } catch (error) {
    if ((await storeAhead.isSound) === true) throw error;
    // Nothing lasting has been done with it: now the store is repaired first.
    return buildContext({ ...options, storeAhead: undefined });
  }
}

/** @throws Error when the store that it has trusted is not sound */
async function buildContext(options: ContextOptions): Promise<DaemonContext> {
  const { config, version, programs, selfUid, log, peerUid, clock = systemClock(), shutdownSignal } = options;
  const now = (): number => clock.nowMs();
  /** What a reload changes where nobody else keeps it. */
  const live = { backUpBeforeUpgrade: config.apps.backUpBeforeUpgrade };
  await using resources = new AsyncDisposableStack();
  const startedAtMs = now();
  const paths = createAppPaths(config.store.dir);
  const turns = new FairTurns();
  const metrics: DaemonMetrics = resources.use(
    new DaemonMetrics({
      version,
      callsInFlight: () => pipeline.callsInFlight,
      appsByState: () => apps.countByState(),
      auditRecordsLost: () => audit.lost,
      host: () => hostMetrics.readings(),
      appStates: () => apps.states(),
      appUsages: () => appHistory.newest(),
    }),
  );
  const store = resources.use(
    await openStore({
      dir: config.store.dir,
      clock: { now },
      log,
      workerUrl: programs.storeWorker,
      ahead: options.storeAhead,
      trustsMeanwhile: true,
      onWrite: (durationMs, isKept) => metrics.observeStoreWrite(durationMs, isKept),
    }),
  );
  // Until everything has ended that works with the store.
  if (options.isDaemon === true) resources.use(await claimStore(config.store.dir));
  // After the store, so that it is emptied before the store closes, and before what makes calls.
  const users = createUsers();
  const names = new UserNames(async (uid) => (await users.byUid(uid)).name, now);
  const userName = (uid: number): Promise<string> => names.of(uid);
  // Most often the one who asks first, whose answer would wait for a process.
  void userName(selfUid);
  const audit = resources.use(new AuditTrail({ store, log, now, userName }));
  // Others only pass through: what is inside belongs to each app's owner alone.
  for (const dir of [paths.appsDir, paths.runDir]) await makeDirectory(dir, 0o711);

  await checkAccounts(config, users);
  const searchPath = config.apps.path.join(":");
  const identities = resources.use(
    createIdentities({
      helperPath: programs.identityHelper,
      users,
      searchPath,
      log,
    }),
  );
  const cgroups = await Cgroups.detect();
  const processRuntime = resources.use(
    new ProcessRuntime({
      identities,
      peerUid,
      turns,
      bootId: await readBootId(),
      svcVersion: version,
      nodePath: process.execPath,
      supervisorPath: programs.supervisor,
      searchPath,
      settleMs,
      ...(cgroups && { cgroups }),
      log,
    }),
  );
  const yaml = resources.use(new YamlThread({ threadUrl: programs.settingsThread }));
  const settings = resources.use(createSettingsValidator({ yaml }));
  const manifests = createManifestParser((text, uid) => yaml.manifest(text, uid), settings);
  const sources = new SourceList(config.sources, store, programs.packages, log);
  const credentials = new Credentials({ store, now, maxPerUser: config.limits.maxCredentialsPerUser, log });
  const packages = createPackageResolver({
    sources: () => sources.all(),
    identities,
    manifests,
    yaml,
    cacheDir: join(config.store.dir, "cache"),
    git: {
      environment: { extraEnv: config.apps.buildEnv },
      limits: {
        // A commit must not be larger than what is kept of its user.
        maxFetchBytes: Math.min(config.limits.maxFetchBytes, config.limits.maxCacheBytesPerUser),
        maxMemoryBytes: config.limits.maxGitMemoryBytes,
      },
      cacheBounds: {
        maxBytesPerUser: config.limits.maxCacheBytesPerUser,
        maxBytes: config.limits.maxCacheBytes,
      },
      login: (host, ownerUid) => credentials.loginFor("git", host, ownerUid),
    },
    now,
    log,
  });
  const executor = await currentExecutor();
  const containers = resources.use(
    await createContainerEngine({
      ...{ config, store, executor, identities, credentials, settleMs, now, log },
      storeId: storeIdOf(store),
      yaml,
    }),
  );
  const units = resources.use(
    new ServiceRuntime({
      ...{ identities, searchPath, settleMs },
      storeId: storeIdOf(store),
      dir: join(config.store.dir, "units"),
      bootedAtMs: await readBootTimeMs(),
      isHere: await isSystemdHost(selfUid),
      enforces: await unitLimits(),
      whyForeign: (appId, port) => whyForeign(hostThread, appId, port),
      log,
    }),
  );
  const zones = new Zones();
  const backupStates = resources.use(new BackupStates({ store, zones, clock, log }));
  const found = new FoundUpdates();
  const apps = resources.use(
    new Apps({
      store,
      executor,
      identities,
      packages,
      settings,
      runtimes: new Map<string, AppRuntime>([
        ["process", processRuntime],
        ["service", units],
        ...containers.runtimes,
      ]),
      paths,
      userName,
      buildEnv: config.apps.buildEnv,
      programDirs: config.apps.path,
      runUidOf: (ownerUid) => runUidOf(ownerUid, config, users),
      limits: config.limits,
      usersAddress: config.docker.publishAddress,
      backups: backupStates,
      updates: found,
      backUp: (app, caller, work) => backups.makeOne(app, caller, work),
      backUpBeforeUpgrade: () => live.backUpBeforeUpgrade,
      now,
      log,
    }),
  );
  const updates = resources.use(new AppUpdates({ apps, packages, version, found, clock, log }));
  const docker = new DockerHost({ ...containers, apps });
  const events = resources.use(
    new NodeEvents({
      ...{ apps, now },
      engine: containers.state,
      onError: (error) => log.error({ err: error }, "what happened could not be told"),
    }),
  );
  const hostMetrics = resources.use(
    new HostMetrics({
      dir: join(config.store.dir, "metrics"),
      intervalSecs: config.metrics.intervalSecs,
      ...{ clock, log },
    }),
  );
  const appHistory = resources.use(
    new AppHistory({
      dir: join(config.store.dir, "metrics"),
      intervalSecs: config.metrics.appIntervalSecs,
      usages: (signal) => apps.usages(signal),
      ...{ clock, log },
    }),
  );
  const hostThread: HostThread = resources.use(
    new HostThread({
      entry: programs.hostThread,
      apps: () => ({ runs: processRuntime.runs(), controlGroups: units.controlGroups() }),
    }),
  );
  const processes = new HostProcesses({
    thread: hostThread,
    containers: (signal) => docker.running(signal),
    visibleApps: (caller) => apps.visibleIds(caller),
    userName,
  });
  const signals = new ProcessSignals({
    selfPid: process.pid,
    supervisors: () => processRuntime.runs().map(({ supervisorPid }) => supervisorPid),
  });
  const reboot = resources.use(
    new HostReboot({ command: config.system.rebootCommand, identities, clock, log }),
  );
  const backups: Backups = new Backups({
    states: backupStates,
    zones,
    ...{ store, executor, selfUid, apps, identities, manifests, userName, now, log },
    age: resources.use(new Age(programs.ageThread)),
    s3: resources.use(new S3Thread(programs.s3Worker)),
    onEnd: events.onBackup,
    jobsWith: (storage) => jobs.all().filter(({ action }) => action.storages?.includes(storage) === true),
    dir: config.store.dir,
    svcVersion: version,
    maxBytesPerUser: config.limits.maxBackupBytesPerUser,
  });
  const stages = resources.use(new FileStages({ store, executor, identities, log }));
  const files = new Files({
    ...{ identities, stages },
    systemIdentities: new SystemIdentities(now, searchPath),
    ownFiles: [config.tokenFile],
    storeDir: config.store.dir,
  });
  const jobs = resources.use(new JobRegistry(store, log));
  const runs = resources.use(new RunLog({ store, executor, now, log, onOwn: events.onRun }));
  const owners = new JobOwners({ selfUid, lookUp: async (uid) => (await users.byUid(uid)).name });
  // After the apps and the store, which its runs need until they have ended.
  const scheduler = resources.use(
    new Scheduler({
      store,
      jobs,
      owners,
      runs,
      zones,
      apps,
      identities,
      lookup: (hostname) => lookup(hostname, { all: true }),
      reboot,
      policyPass: backups.policyPass(),
      backups,
      events: events.log,
      clock,
      log,
    }),
  );
  const schedules = new Schedules({
    store,
    registry: jobs,
    runs,
    runner: scheduler.runner,
    zones,
    selfUid,
    owners,
    hasApp: (uid, appId) => apps.has(appId, { uid, root: uid === selfUid, ownerUid: uid }),
    waitOf: (key) => scheduler.waitOf(key),
    now,
    turns,
    log,
  });
  const alerts = resources.use(
    new Alerts({
      rules: config.alerts,
      store: new AlertStore(store, log),
      facts: () => readAlertFacts({ apps, hostMetrics, now }),
      notify: createNotifier(scheduler.plainActions, selfUid),
      onChange: events.onAlert,
      intervalMs: config.metrics.intervalSecs * 1000,
      ...{ clock, log },
    }),
  );
  const configReload = new ConfigReload({
    config,
    load: async () => {
      const fresh = await options.reloadConfig();
      await checkAccounts(fresh, users);
      return fresh;
    },
    apply: {
      alerts: (fresh) => alerts.configure(fresh.alerts),
      sources: (fresh) => sources.configure(fresh.sources),
      "apps.backup_before_upgrade": (fresh) => {
        live.backUpBeforeUpgrade = fresh.apps.backUpBeforeUpgrade;
      },
      "log.level": (fresh) => {
        log.level = fresh.log.level;
      },
    },
  });
  const tokens = resources.use(new TokenAuthority({ file: config.tokenFile, selfUid, store, clock, log }));
  const consoleTokens = new ConsoleTokens<UserContext>(clock);
  const consoles = new Consoles({ apps, identities, paths, maxPerUser: config.limits.maxConsolesPerUser });
  const capabilities = (): readonly string[] =>
    units.whyAbsent === undefined
      ? [...pipeline.capabilities, serviceCapability].toSorted()
      : pipeline.capabilities;
  const services = bindServices({
    apps,
    audit: new AuditReader(store),
    backups,
    tokens,
    consoleTokens,
    consoles,
    ...{ sources, updates },
    credentials,
    docker,
    events: events.log,
    files,
    hostMetrics,
    appHistory,
    alerts,
    configReload,
    processes,
    signals,
    reboot,
    pageAddress: options.pageAddress ?? (() => undefined),
    facts: { version, mode: config.mode, startedAtMs, capabilities, userName },
    metrics,
    schedules,
  });
  const health = new HealthState(services.map(({ name }) => name));
  const healthService = bindHealth(health);
  const pipeline: Pipeline = createPipeline({
    services: [...services, healthService, ...bindReflection([...services, healthService])],
    log,
    audit: (record) => audit.append(record),
    observe: (call) => metrics.observeCall(call),
    limits: config.api.limits,
    turns,
    shutdownSignal,
  });
  if (options.isDaemon === true) await tokens.open();
  const { storeAhead } = options;
  // What was restored meanwhile is not what was read ahead.
  if (storeAhead !== undefined && store.restoration === undefined) {
    // Most often what is asked first, whose answer would take longer after the check than beside it.
    pipeline.methodAt("/svc.v1.DaemonService/GetStatus");
    await apps.countByState();
    if ((await storeAhead.isSound) !== true) throw new Error("the database is not sound");
  }
  stages.start();
  apps.start();
  const owned = resources.move();
  return {
    pipeline,
    health,
    apps,
    backups,
    scheduler,
    hostMetrics,
    appHistory,
    updates,
    alerts,
    configReload,
    events,
    tokens,
    consoleTokens,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

/** Root's own apps may be given to another account; everybody else's run as their owner. */
async function runUidOf(ownerUid: number, config: Config, users: Users): Promise<number> {
  if (ownerUid === 0 && config.apps.rootRunsAs !== undefined) {
    return (await users.byName(config.apps.rootRunsAs)).uid;
  }
  return (await users.byUid(ownerUid)).uid;
}
