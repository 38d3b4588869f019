/** Creates the parts that work on installed apps. */
import { AppUpdates } from "../../apps/changes/app-updates.ts";
import { createApps } from "../../apps/create-apps.ts";
import { FoundUpdates } from "../../apps/records/found-updates.ts";
import { BackupStates } from "../../backups/policies/backup-states.ts";
import type { Users } from "../../run-as/user.ts";
import { Zones } from "../../triggers/zone.ts";
import type { Config } from "../config.ts";
import type { Packages } from "./packages.ts";
import type { Platform } from "./platform.ts";
import type { Runtimes } from "./runtimes.ts";

export type InstalledApps = ReturnType<typeof createInstalledApps>;

export function createInstalledApps(
  platform: Platform,
  { packages, settings, yaml }: Packages,
  { byName: runtimes, containers }: Runtimes,
  resources: AsyncDisposableStack,
) {
  const { config, version, clock, now, log, metrics, store, executor, users, userName } = platform;
  const { userHelpers, paths, programs } = platform;
  const zones = new Zones();
  const backupStates = resources.use(new BackupStates({ store, zones, clock, log }));
  const found = new FoundUpdates();
  /** Changed by a reload of the configuration. */
  const upgradeDefaults = { backUpFirst: config.apps.backUpBeforeUpgrade };
  const apps = createApps(
    {
      ...{ store, executor, userHelpers, packages, settings, runtimes, paths, userName, now, log },
      buildEnv: config.apps.buildEnv,
      programDirs: config.apps.path,
      runUidOf: (ownerUid) => runUidOf(ownerUid, config, users),
      limits: config.limits,
      publishAddress: config.docker.publishAddress,
      daemonPort: config.api.listen.port,
      backups: backupStates,
      updates: found,
      backUpBeforeUpgrade: () => upgradeDefaults.backUpFirst,
      containers,
      command: programs.command,
      yaml,
    },
    resources,
  );
  const { finder, reports, counters, installLimiter } = apps;
  containers.imageNeeds.set(() => finder.engineNeeds());
  metrics.watch({ appsByState: () => counters.byState(), appStates: () => counters.states() });
  const updates = resources.use(
    new AppUpdates({ finder, reports, installLimiter, packages, version, found, clock, log }),
  );
  return { ...apps, updates, zones, backupStates, upgradeDefaults };
}

/** Root's apps may run as another account; all other apps run as their owner. */
async function runUidOf(ownerUid: number, config: Config, users: Users): Promise<number> {
  if (ownerUid === 0 && config.apps.rootRunsAs !== undefined) {
    return (await users.byName(config.apps.rootRunsAs)).uid;
  }
  return (await users.byUid(ownerUid)).uid;
}
