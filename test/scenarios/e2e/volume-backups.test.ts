/** Backups of compose projects contain their engine volumes, and restore them unchanged. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import type { Client } from "@connectrpc/connect";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../../gen/svc/v1/backup_pb.ts";
import { composeTest, needsCompose } from "../../runtimes/support/compose-test.ts";
import { startDaemon, type TestDaemon } from "../../support/daemon.ts";
import { startEngine, type TestEngine } from "../../support/docker.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { projectFiles, writeFiles } from "../../support/packages.ts";
import { ownershipOf } from "../../support/ownership.ts";

const nobody = 65_534;
const boot =
  "cd /state; [ -e who ] || { echo first > who; chmod 600 who; mkdir -m 2750 dir; echo a > dir/a; ln dir/a dir/b; " +
  "ln -s ../who dir/link; mkfifo pipe; echo x > tmp-1; echo cached > /cache/c; head -c 3000000 /dev/urandom > big; " +
  "touch -d '2001-02-03 04:05:06' dir/a; }; trap 'exit 0' TERM; while :; do sleep 3600 & wait; done";

const manifest = `volumes: [{ name: cache, backup: false }, { name: state, excludes: ["tmp-*"] }]
backup: { restore: { exec: [sh, -c, "test ! -e $SVC_DATA_DIR/refuse"] } }
`;

async function install(daemon: TestDaemon, apps: Client<typeof AppService>): Promise<{ directory: string }> {
  const dir = join(daemon.dir, "keeper");
  const volumes = { state: "/state", cache: "/cache" };
  await writeFiles(
    dir,
    projectFiles({ id: "keeper", script: boot, volumes, manifest, service: { network_mode: "none" } }),
  );
  return apps.installApp({ spec: dir });
}

async function volumesOf(engine: TestEngine): Promise<string[]> {
  const { Volumes: volumes } = (await engine.request("GET", "/volumes")).expect(200) as {
    Volumes: { Name: string }[] | null;
  };
  return (volumes ?? []).map(({ Name }) => Name).sort();
}

/** Whether a container for svc's work on volumes exists. */
async function works(engine: TestEngine, project: string, helper: "backup" | "copy"): Promise<boolean> {
  return (await engine.request("GET", `/containers/${project}-volumes-${helper}/json`)).status === 200;
}

/** When a volume was created, in seconds; undefined if it does not exist. */
async function creationOf(engine: TestEngine, volume: string): Promise<string | undefined> {
  const answer = await engine.request("GET", `/volumes/${volume}`);
  return answer.status === 200 ? (JSON.parse(answer.text) as { CreatedAt: string }).CreatedAt : undefined;
}

/**
 * Runs a command on a volume beside the app. It runs on the host, because each container costs the engine half a second
 * of CPU time.
 */
async function within(engine: TestEngine, volume: string, script: string): Promise<string> {
  const cwd = join(engine.data, "volumes", volume, "_data");
  return (await promisify(execFile)("sh", ["-c", script], { cwd })).stdout;
}

/** Times in seconds, as backups store them. */
const listing =
  "find . ! -type p -exec md5sum {} + 2>/dev/null | sort; ls -lnR --time-style=+%s . | grep -v ^total";
const contents = (engine: TestEngine, volume: string): Promise<string> => within(engine, volume, listing);

async function* pieces(content: Buffer) {
  yield { storage: "local" };
  for (let at = 0; at < content.length; at += 500_000) {
    yield { storage: "local", content: { data: content.subarray(at, at + 500_000) } };
  }
}

composeTest(`engine volumes are backed up, browsed, verified and restored${needsCompose}`, async (t) => {
  t.timeout(300_000);
  await using engine = await startEngine();
  await engine.images.build("svc/box:latest");
  await using daemon = await startDaemon({ config: engine.config });
  await using user = await daemon.as(nobody);
  const [apps, backups] = [user.client(AppService), user.client(BackupService)];
  const { directory } = await install(daemon, apps);
  await apps.startApp({ id: "keeper" });
  const project = ownershipOf(daemon).projectOf("keeper");
  const state = `${project}_state`;
  await eventually(async () => assert.match(await within(engine, state, "ls"), /big/), 30_000);
  await within(engine, state, "test -s big && test -p pipe");
  const made = await backups.createBackup({ appId: "keeper", mode: "pause" });
  t.deepEqual(made.warnings, []);
  const ref = { appId: "keeper", storage: "local", name: made.results[0]?.name ?? "" };
  const paths = async (path: string): Promise<string[]> =>
    (await backups.browseBackup({ ...ref, path })).entries.map((entry) => entry.path);
  t.deepEqual(
    await paths(""),
    ["repo", "data", "volumes/state", "engine/state"],
    "without the paths that the manifest excludes",
  );
  t.deepEqual((await paths("engine/state")).toSorted(), [
    "engine/state/big",
    "engine/state/dir",
    "engine/state/pipe",
    "engine/state/who",
  ]);
  const read = await Array.fromAsync(
    backups.readBackupFile({ ...ref, path: "engine/state/dir/b" }),
    ({ content }) => Buffer.from(content?.data ?? []).toString(),
  );
  t.is(read.join(""), "a\n");
  t.is((await backups.verifyBackup(ref)).entries, made.entries);
  t.true((await backups.verifyBackup({ ...ref, deep: true })).restored);
  t.true((await backups.restoreBackup({ ...ref, stopApp: true, dryRun: true })).entries > 0n);

  await within(engine, state, "rm tmp-1");
  const before = await contents(engine, state);
  const spoil = (): Promise<string> =>
    within(engine, state, "rm -r dir; echo second > who; echo more > more; chmod 777 .");
  const kept = await spoil().then(() => contents(engine, state));
  t.not(kept, before);
  const volumes = await volumesOf(engine);
  // A restore that fails in its last step leaves the previous state.
  await writeFile(join(directory, "data/refuse"), "");
  const late = await backups.createBackup({ appId: "keeper" });
  await within(engine, state, "echo third > who");
  const third = await contents(engine, state);
  const failing = { ...ref, name: late.results[0]?.name ?? "", stopApp: true };
  t.is((await errorOf(backups.restoreBackup(failing))).reason, "build_failed");
  t.is(await contents(engine, state), third);
  t.deepEqual(await volumesOf(engine), volumes, "and no copy");
  t.is((await apps.getApp({ id: "keeper" })).state, "RUNNING");

  await rename(join(directory, "data/refuse"), join(directory, "data/mine"));
  const inside = { ...ref, stopApp: true, paths: ["engine/state/who"] };
  t.is((await errorOf(backups.restoreBackup(inside))).reason, "invalid_request");
  t.true((await backups.restoreBackup({ ...ref, stopApp: true, paths: ["engine/state"] })).restarted);
  t.is(await contents(engine, state), before, "owners, modes, times, links and bytes");
  t.deepEqual(await volumesOf(engine), volumes);
  t.is((await readFile(join(directory, "data/mine"))).length, 0, "the rest is unchanged");
  await spoil();
  t.true((await backups.restoreBackup({ ...ref, stopApp: true })).restarted);
  t.is(await contents(engine, state), before);
  t.is(
    await within(engine, `${project}_cache`, "cat c"),
    "cached\n",
    "a volume that no backup contains is unchanged",
  );

  const copy = await backups.restoreBackup({ ...ref, asNew: true });
  t.is(await contents(engine, `${ownershipOf(daemon).projectOf(copy.appId)}_state`), before);
  await apps.startApp({ id: copy.appId });
  await apps.removeApp({ id: copy.appId });
  t.deepEqual(await volumesOf(engine), volumes);

  // Another host, which has never seen the app.
  await using elsewhere = await startEngine();
  await elsewhere.images.build("svc/box:latest");
  await using second = await startDaemon({ config: elsewhere.config });
  await using there = await second.as(nobody);
  const bytes = await readFile(join(daemon.storeDir, "backups/keeper", ref.name));
  const uploaded = await there.client(BackupService).uploadBackup(pieces(bytes));
  await there.client(BackupService).restoreBackup({ ...ref, name: uploaded.name });
  const stateThere = `${ownershipOf(second).projectOf("keeper")}_state`;
  t.is(await contents(elsewhere, stateThere), before);
  await there.client(AppService).startApp({ id: "keeper" });
  t.is(await contents(elsewhere, stateThere), before, "a start does not change it");
  await there.client(AppService).removeApp({ id: "keeper" });
  await apps.removeApp({ id: "keeper" });
});

composeTest(
  `after a kill at any step of a restore, a volume is either unchanged or restored${needsCompose}`,
  async (t) => {
    t.timeout(450_000);
    await using engine = await startEngine();
    await engine.images.build("svc/box:latest");
    await using daemon = await startDaemon({ config: engine.config });
    const [apps, backups] = [daemon.client(AppService), daemon.client(BackupService)];
    await install(daemon, apps);
    await apps.startApp({ id: "keeper" });
    const project = ownershipOf(daemon).projectOf("keeper");
    const state = `${project}_state`;
    await eventually(async () => assert.match(await within(engine, state, "ls"), /big/), 30_000);
    // Large enough that its rebuild can be observed.
    await within(engine, state, "test -s big && rm tmp-1 && head -c 60000000 /dev/urandom > bulk");
    const made = await backups.createBackup({ appId: "keeper" });
    const ref = { appId: "keeper", storage: "local", name: made.results[0]?.name ?? "" };
    const good = await contents(engine, state);
    const spoil = (): Promise<string> =>
      within(engine, state, "echo second > who; head -c 3000000 /dev/zero > large; rm -r dir");
    await spoil();
    const spoiled = await contents(engine, state);
    const volumes = await volumesOf(engine);
    const seen: string[] = [];
    // The state of the volumes at the kill: staged, retained, or recreated and being filled.
    for (const what of ["staged", "kept", "anew"] as const) {
      const madeAt = await creationOf(engine, state);
      const isThen = async (): Promise<boolean> => {
        const names = await volumesOf(engine);
        // The helper containers are left behind and hold them.
        if (what === "staged")
          return names.includes(`svc.restored.${state}`) && (await works(engine, project, "backup"));
        if (!names.includes(`svc.replaced.${state}`)) return false;
        if (what === "kept") return await works(engine, project, "copy");
        return ![undefined, madeAt].includes(await creationOf(engine, state));
      };
      const restoring = errorOf(backups.restoreBackup({ ...ref, stopApp: true })).catch(() => undefined);
      let isOver = false;
      void restoring.finally(() => (isOver = true));
      await eventually(async () => assert.ok(isOver || (await isThen())), 60_000, 10);
      t.false(isOver, `${what} was seen`);
      await daemon.kill();
      await restoring;
      await daemon.restart();
      await eventually(async () => {
        assert.deepEqual(await volumesOf(engine), volumes);
        assert.equal((await apps.getApp({ id: "keeper" })).state, "RUNNING");
      }, 120_000);
      const now = await contents(engine, state);
      t.true(now === good || now === spoiled, what);
      seen.push(now === spoiled ? "as it was" : "restored");
      if (now === good) await spoil();
    }
    t.true(seen.includes("as it was"), seen.join());
    await backups.restoreBackup({ ...ref, stopApp: true });
    t.is(await contents(engine, state), good);
    await apps.removeApp({ id: "keeper" });
  },
);
