/** Jobs, and the backups of jobs and of apps' policies. */
import { lookup } from "node:dns/promises";
import { Backups } from "../../backups/backups.ts";
import { Age } from "../../backups/encryption/age.ts";
import { S3Thread } from "../../backups/storages/s3-thread.ts";
import { JobOwners } from "../../scheduler/jobs/job-owners.ts";
import { JobRegistry } from "../../scheduler/jobs/job-registry.ts";
import { RunLog } from "../../scheduler/runs/run-log.ts";
import { Scheduler } from "../../scheduler/scheduler.ts";
import { Schedules } from "../../scheduler/schedules.ts";
import type { InstalledApps } from "./apps.ts";
import type { Host } from "./host.ts";
import type { Observability } from "./observability.ts";
import type { Packages } from "./packages.ts";
import type { Platform } from "./platform.ts";

export type Scheduling = ReturnType<typeof createScheduling>;

export function createScheduling(
  platform: Platform,
  { manifests }: Packages,
  { finder, lifecycle, upgrader, backupHold, restorer, zones, backupStates }: InstalledApps,
  { events }: Observability,
  { reboot }: Host,
  resources: AsyncDisposableStack,
) {
  const { config, version, programs, selfUid, clock, now, log, fairQueue } = platform;
  const { store, executor, userHelpers, users, userName } = platform;
  const jobs = resources.use(new JobRegistry(store, log));
  const backups = new Backups({
    ...{ store, executor, selfUid, zones, userHelpers, manifests, userName, now, log },
    ...{ finder, backupHold, restorer },
    states: backupStates,
    age: resources.use(new Age(programs.ageThread)),
    s3: resources.use(new S3Thread(programs.s3Worker)),
    onEnd: events.onBackup,
    jobsWith: (storage) => jobs.all().filter(({ action }) => action.storages?.includes(storage) === true),
    dir: config.store.dir,
    svcVersion: version,
    maxBytesPerUser: config.limits.maxBackupBytesPerUser,
  });
  upgrader.beforeUpgrade.set((app, caller, work) => backups.makeOne(app, caller, work));
  const runs = resources.use(new RunLog({ store, executor, now, log, onOwn: events.onRun }));
  const owners = new JobOwners({ selfUid, lookUp: async (uid) => (await users.byUid(uid)).name });
  // Created after the apps and the store, so that running jobs end before these do.
  const scheduler = resources.use(
    new Scheduler({
      ...{ store, jobs, owners, runs, zones, userHelpers, reboot, backups, clock, log },
      ...{ finder, lifecycle, upgrader },
      lookup: (hostname) => lookup(hostname, { all: true }),
      policyPass: backups.policyPass(),
      events: events.log,
    }),
  );
  const schedules = new Schedules({
    ...{ store, runs, zones, selfUid, owners, now, fairQueue, log },
    registry: jobs,
    runner: scheduler.runner,
    hasApp: (uid, appId) => finder.has(appId, { uid, root: uid === selfUid, ownerUid: uid }),
    waitOf: (key) => scheduler.waitOf(key),
  });
  return { backups, scheduler, schedules };
}
