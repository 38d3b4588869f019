/** What a user tries with the backups of others, and with archives that were made for it (threats 27, 28, 64). */
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { zstdDecompressSync } from "node:zlib";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { ScheduleService } from "../../gen/svc/v1/schedule_pb.ts";
import { encodeFooter, type ArchiveFooter } from "../../src/backups/archive-footer.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import { isRoot, needsRoot, type TestDaemon } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";

const emptyDaemon = sharedDaemon();

const rootTest = isRoot ? test : test.skip;
const attacker = 65_534;
const victim = 5;
const local = "local";

type Door = Pick<TestDaemon, "client">;

async function installFrom(daemon: TestDaemon, door: Door): Promise<void> {
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort());
  await door.client(AppService).installApp({ spec: dir });
}

async function backUp(door: Door, keep?: number): Promise<{ name: string; removed: string[] }> {
  const request = { appId: "web", ...(keep !== undefined && { keep }) };
  const { results } = await door.client(BackupService).createBackup(request);
  return { name: results[0]?.name ?? "", removed: results[0]?.removed ?? [] };
}

async function download(door: Door, name: string, appId = "web"): Promise<Buffer> {
  const pieces = door.client(BackupService).downloadBackup({ appId, storage: local, name });
  return Buffer.concat(await Array.fromAsync(pieces, ({ content }) => content?.data ?? new Uint8Array()));
}

function upload(door: Door, archive: Buffer) {
  return door.client(BackupService).uploadBackup(
    (async function* () {
      yield { storage: local };
      yield { storage: local, content: { data: archive } };
    })(),
  );
}

/** The same archive, which says something else of itself. */
async function forged(archive: Buffer, change: (footer: ArchiveFooter) => void): Promise<Buffer> {
  const end = archive.length - 48;
  const at = end - archive.readUInt32LE(end + 32);
  const footer = JSON.parse(zstdDecompressSync(archive.subarray(at, end)).toString()) as ArchiveFooter;
  change(footer);
  return Buffer.concat([archive.subarray(0, at - 8), await encodeFooter(footer)]);
}

rootTest(`whoever gets the id of an app that is gone does not get at its backups${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  await using mine = await daemon.as(attacker);
  await using theirs = await daemon.as(victim);
  await installFrom(daemon, theirs);
  const { name } = await backUp(theirs);
  await theirs.client(AppService).removeApp({ id: "web" });

  await installFrom(daemon, mine);
  await backUp(mine);
  const { removed } = await backUp(mine, 1);
  t.is(removed.length, 1);
  t.not(removed[0], name);
  const { backups } = await theirs.client(BackupService).listBackups({ appId: "web" });
  t.deepEqual(
    backups.map((each) => each.name),
    [name],
  );

  // Nor does root put it into an app that is somebody else's by now.
  const refused = await errorOf(
    daemon.client(BackupService).restoreBackup({ appId: "web", storage: local, name }),
  );
  t.is(refused.reason, "not_possible");
  t.regex(refused.message, /is of uid 5, and app "web" is uid 65534's; restore it as a new app/);
});

rootTest(`an archive cannot choose whose identity it is read and laid out with${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  await using mine = await daemon.as(attacker);
  await installFrom(daemon, mine);
  const { name } = await backUp(mine);
  const archive = await download(mine, name);
  for (const uid of [0, victim]) {
    const bad = await forged(archive, ({ app }) => (app.run_uid = uid));
    t.like(await errorOf(upload(mine, bad)), { reason: "archive_damaged" });
    // One that came to its place another way.
    await writeFile(join(daemon.storeDir, "backups/web", name), bad);
    for (const door of [mine, daemon]) {
      const ref = { appId: "web", storage: local, name };
      const refusal = await errorOf(door.client(BackupService).verifyBackup({ ...ref, deep: true }));
      t.like(refusal, { reason: "archive_damaged" });
    }
  }
});

rootTest(
  `root lays out for a trial what was root's, and nothing of somebody else's${needsRoot}`,
  async (t) => {
    const unknown = 3_999_999_999;
    const daemon = await emptyDaemon();
    await using mine = await daemon.as(attacker);
    await installFrom(daemon, mine);
    const archive = await download(mine, (await backUp(mine)).name);
    const root = daemon.client(BackupService);
    const verify = (ref: { appId: string; name: string }, deep: boolean) =>
      root.verifyBackup({ ...ref, storage: local, deep });
    for (const [app, why] of [
      [{ owner_uid: unknown, run_uid: unknown }, /uid 3999999999, who has no account here/],
      [{ owner_uid: 0, run_uid: unknown }, /uid 3999999999, who has no account here/],
      [{ owner_uid: 0, run_uid: 0 }, /app "web" is uid 65534's here/],
    ] as const) {
      const ref = await upload(daemon, await forged(archive, (footer) => Object.assign(footer.app, app)));
      t.false((await verify(ref, false)).restored);
      const refusal = await errorOf(verify(ref, true));
      t.like(refusal, { reason: "not_possible" });
      t.regex(refusal.message, why);
    }
    await mine.client(AppService).removeApp({ id: "web" });
    const ofRoot = await upload(
      daemon,
      await forged(archive, ({ app }) => (app.owner_uid = app.run_uid = 0)),
    );
    t.true((await verify(ofRoot, true)).restored);
  },
);

rootTest(`what an archive says of its app is short and in one line${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  await using mine = await daemon.as(attacker);
  await installFrom(daemon, mine);
  const archive = await download(mine, (await backUp(mine)).name);
  for (const change of [
    (app: ArchiveFooter["app"]) => (app.name = "x".repeat(1 << 20)),
    (app: ArchiveFooter["app"]) => (app.name = "x\0ExecStartPre=+/bin/sh"),
    (app: ArchiveFooter["app"]) => (app.version = "1\n2"),
    (app: ArchiveFooter["app"]) => (app.id = "__proto__"),
    (app: ArchiveFooter["app"]) => (app.id = "--help"),
    (app: ArchiveFooter["app"]) => (app.origin = { ...app.origin, tag: "x".repeat(1 << 20) }),
  ]) {
    const bad = await forged(archive, ({ app }) => change(app));
    t.like(await errorOf(upload(mine, bad)), { reason: "archive_damaged" });
  }
});

rootTest(
  `an archive that a user uploads for another's app is never the newest of it${needsRoot}`,
  async (t) => {
    const daemon = await emptyDaemon();
    await using mine = await daemon.as(attacker);
    await using theirs = await daemon.as(victim);
    await installFrom(daemon, theirs);
    const { name } = await backUp(theirs);
    await installFrom(daemon, mine);
    const own = "web-nobody";
    const { results } = await mine.client(BackupService).createBackup({ appId: own });
    const archive = await download(mine, results[0]?.name ?? "", own);
    await upload(
      mine,
      await forged(archive, (footer) => {
        footer.app.id = "web";
        footer.created_at = "2999-01-01T00:00:00.000Z";
      }),
    );
    const schedules = daemon.client(ScheduleService);
    await schedules.upsertSchedule({
      id: "prove",
      trigger: "hourly",
      action: { type: "backup_verify", app: "web" },
    });
    await schedules.runSchedule({ id: "prove" });
    const run = await eventually(async () => {
      const { runs } = await schedules.listScheduleRuns({ id: "prove" });
      assert.ok(runs[0]?.endedAt);
      return runs[0];
    }, 60_000);
    t.regex(run.output, new RegExp(name));
    t.notRegex(run.output, /2999/);
  },
);
