/** Creates the parts that work on installed apps, each from parts that exist. */
import { UnmanagedStacks, type UnmanagedStacksOptions } from "../engine/unmanaged-stacks.ts";
import { systemClock } from "../lib/clock.ts";
import type { SettingsValidator } from "../packages/settings/settings-validator.ts";
import type { AppRuntime } from "../runtimes/contract.ts";
import type { Executor } from "../store/executors.ts";
import { Adopter } from "./adopt/adopter.ts";
import type { AdoptionPlannerOptions } from "./adopt/adoption-plan.ts";
import type { AppsContext } from "./apps-context.ts";
import { Cloner } from "./changes/clone.ts";
import { Installer } from "./changes/install.ts";
import { InstallLimiter, type InstallLimits } from "./changes/install-limiter.ts";
import { PackageSearch } from "./changes/package-search.ts";
import { Placer } from "./changes/placement.ts";
import { Remover } from "./changes/removal.ts";
import { Renamer } from "./changes/rename.ts";
import { Repuller } from "./changes/repull.ts";
import { Restorer } from "./changes/restore.ts";
import { Upgrader } from "./changes/upgrade.ts";
import { AppLogs } from "./lifecycle/app-logs.ts";
import { BackupHold } from "./lifecycle/backup-hold.ts";
import { Lifecycle } from "./lifecycle/lifecycle.ts";
import { Operations } from "./lifecycle/operations.ts";
import { Recovery } from "./lifecycle/recovery.ts";
import { BackgroundWork } from "./lifecycle/background-work.ts";
import { Reconciler } from "./lifecycle/reconciler.ts";
import { FreePorts } from "./ports/free-ports.ts";
import { PortHolders } from "./ports/port-holders.ts";
import { PortReservations } from "./ports/port-reservations.ts";
import { Reattachment } from "./records/reattachment.ts";
import { AppChanges } from "./records/app-changes.ts";
import { AppCounters } from "./records/app-counters.ts";
import { AppExporter } from "./records/app-export.ts";
import { AppFinder } from "./records/app-finder.ts";
import { AppRegistry } from "./records/app-registry.ts";
import { AppReports } from "./records/app-reports.ts";
import { AppRuntimes } from "./records/app-runtimes.ts";
import { AppSettings } from "./records/app-settings.ts";
import { AppViews, type AppBackupStates } from "./records/app-views.ts";
import { DiskReports } from "./records/disk-reports.ts";
import type { FoundUpdates } from "./records/found-updates.ts";

/** Values that other parts of the daemon create for all parts of this room. */
type Given = Omit<
  AppsContext,
  "registry" | "operations" | "ports" | "runtimes" | "runtimeOf" | "runtimesOf" | "runnable"
>;

export interface AppsOptions extends Given {
  executor: Executor;
  settings: SettingsValidator;
  /** By the manifest's name for them. */
  runtimes: ReadonlyMap<string, AppRuntime>;
  limits: InstallLimits & { maxAppsPerUser: number };
  /** Where ports of regular users' containers are published that name no address. */
  publishAddress: string;
  backups: AppBackupStates;
  updates: Pick<FoundUpdates, "revision" | "of">;
  /** Whether an upgrade makes a backup first if its request leaves that open. */
  backUpBeforeUpgrade: () => boolean;
  /** The container engine of the host. */
  containers: Omit<UnmanagedStacksOptions, "appIds">;
  /** See {@link AdoptionPlannerOptions}. */
  command: AdoptionPlannerOptions["command"];
  yaml: AdoptionPlannerOptions["yaml"];
}

export type AppParts = ReturnType<typeof createApps>;

/** @param resources the stack on which the parts register their disposal */
export function createApps(options: AppsOptions, resources: AsyncDisposableStack) {
  const base = createBase(options, resources);
  const { shared, finder, reservations } = base;
  const { limits, updates, backups, publishAddress } = options;
  const installLimiter = new InstallLimiter(limits);
  const settings = new AppSettings({ ...shared, validator: options.settings });
  const lifecycle = new Lifecycle(shared);
  const freePorts = new FreePorts({ ...shared, reservations });
  const stacks = new UnmanagedStacks({
    ...options.containers,
    appIds: () => shared.registry.all().map(({ id }) => id),
  });
  const installer = new Installer({
    ...shared,
    ...{ freePorts, settings, installLimiter, stacks },
    maxAppsPerUser: limits.maxAppsPerUser,
    whyAbsent: (runtime) => options.runtimes.get(runtime)?.whyAbsent,
  });
  const upgrader = new Upgrader({
    ...shared,
    ...{ finder, settings, lifecycle, installLimiter },
    backUpBeforeUpgrade: options.backUpBeforeUpgrade,
  });
  const remover = new Remover(shared);
  const backupHold = new BackupHold({ ...shared, lifecycle });
  const restorer = new Restorer({ ...shared, settings, installer, freePorts, lifecycle });
  const { command, yaml } = options;
  const adopter = new Adopter({ ...shared, installer, lifecycle, stacks, command, yaml, publishAddress });
  const recovery = new Recovery({
    ...shared,
    ...{ installer, upgrader, remover, lifecycle, backupHold, restorer, adopter },
  });
  shared.operations.recovery.set((operation) => recovery.recover(operation));
  const reconciler = new Reconciler({ ...shared, lifecycle, clock: systemClock(options.now) });
  shared.operations.listen(reconciler);
  const changes = resources.use(new AppChanges({ ...shared, finder }));
  const { reattachment } = base;
  const backgroundWork = resources.use(
    new BackgroundWork({ ...shared, reattachment, reconciler, recovery, freePorts }),
  );
  return {
    ...{
      adopter,
      finder,
      settings,
      lifecycle,
      installer,
      upgrader,
      remover,
      backupHold,
      restorer,
      recovery,
      installLimiter,
    },
    ...{ changes, backgroundWork, operations: shared.operations, runtimes: base.runtimes },
    placer: new Placer({ ...shared, finder, installLimiter }),
    renamer: new Renamer(shared),
    repuller: new Repuller({ ...shared, lifecycle }),
    cloner: new Cloner({ ...shared, installer, freePorts }),
    packageSearch: new PackageSearch({ ...shared, installLimiter }),
    exporter: new AppExporter({ ...shared, publishAddress, byName: options.runtimes }),
    logs: new AppLogs(shared),
    reports: new AppReports({ ...shared, finder }),
    disks: new DiskReports(shared),
    views: new AppViews({ ...shared, finder, backups, updates, startRetries: reconciler.startRetries }),
    counters: new AppCounters({ ...shared, finder, backups, updates }),
  };
}

/** Records, locks and runtimes, which every other part works with. */
function createBase(options: AppsOptions, resources: AsyncDisposableStack) {
  const { store, executor, paths, userName, now, log, daemonPort } = options;
  const registry = resources.use(new AppRegistry(store, log));
  const operations = new Operations({ store, executor, now });
  const runtimes = new AppRuntimes(options.runtimes, paths);
  const { of: runtimeOf, allOf: runtimesOf, runnable, all } = runtimes;
  const reservations = resources.use(new PortReservations());
  const ports = new PortHolders({
    ...{ registry, runtimes: all, runtimeOf, runnable, userName, reservations, daemonPort },
  });
  const shared: AppsContext = {
    ...options,
    ...{ registry, operations, ports, runtimes: all, runtimeOf, runtimesOf, runnable },
  };
  const reattachment = resources.use(new Reattachment(shared));
  const finder = new AppFinder({ ...shared, reattachment });
  return { shared, runtimes, reservations, reattachment, finder };
}
