/** One daemon for all tests of a file. */
import assert from "node:assert/strict";
import { readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { ScheduleService } from "../../gen/svc/v1/schedule_pb.ts";
import { SourceService } from "../../gen/svc/v1/source_pb.ts";
import { readProcessIdentity } from "../../src/sys/process-identity.ts";
import { startDaemon, type DaemonOptions, type TestDaemon } from "./daemon.ts";
import { eventually } from "./eventually.ts";

/**
 * One daemon for all tests of a file, for its top level: `const emptyDaemon = sharedDaemon()`. It starts before the
 * first test and stops after the last. A test calls the returned function to get it, without the apps, jobs, archives
 * and sources of the previous test, and without that test's files in its directory; a daemon that was stopped starts
 * again. For tests that check other state, there is `startDaemon`. @param options evaluated when it starts, because
 * their values may not exist earlier
 */
export function sharedDaemon(options: DaemonOptions | (() => DaemonOptions) = {}): () => Promise<TestDaemon> {
  const shared: { daemon?: TestDaemon; own: readonly string[] } = { own: [] };
  test.before(async () => {
    shared.daemon = await startDaemon(typeof options === "function" ? options() : options);
    shared.own = await readdir(shared.daemon.dir);
  });
  test.after.always(() => shared.daemon?.[Symbol.asyncDispose]());
  return async () => {
    const { daemon, own } = shared;
    if (daemon === undefined) throw new Error("the daemon exists only during tests");
    if ((await readProcessIdentity(daemon.pid)) === undefined) await daemon.restart();
    const schedules = daemon.client(ScheduleService);
    const apps = daemon.client(AppService);
    // Operations of an app finish first, and there may be more than one page of them.
    await eventually(async () => {
      for (const { id, owner } of (await schedules.listSchedules({})).schedules)
        await schedules.removeSchedule({ id, owner });
      for (const { id } of (await apps.listApps({})).apps) await apps.removeApp({ id });
      const [jobs, left] = [await schedules.listSchedules({}), await apps.listApps({})];
      assert.deepEqual(
        [...jobs.schedules, ...left.apps].map(({ id }) => id),
        [],
      );
    }, 40_000);
    await removeArchives(daemon);
    await removeSources(daemon);
    for (const name of await readdir(daemon.dir))
      if (!own.includes(name)) await rm(join(daemon.dir, name), { recursive: true, maxRetries: 3 });
    return daemon;
  };
}

async function removeArchives(daemon: TestDaemon): Promise<void> {
  const backups = daemon.client(BackupService);
  for (const { name } of (await backups.listBackupStorages({})).storages) {
    if (name !== "local") await backups.removeBackupStorage({ name });
  }
  for (const { appId, storage, name } of (await backups.listBackups({})).backups)
    await backups.deleteBackup({ appId, storage, name });
}

async function removeSources(daemon: TestDaemon): Promise<void> {
  const client = daemon.client(SourceService);
  for (const { name, configured, shipped } of (await client.listSources({})).sources)
    if (!configured && !shipped) await client.removeSource({ name });
}
