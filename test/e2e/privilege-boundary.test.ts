/** Root and directory trees that belong to users: nothing that a user plants is run, read or removed as root. */
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, chown, mkdir, mkdtemp, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { ProcessService } from "../../gen/svc/v1/process_pb.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import { isRoot, needsRoot, startDaemon } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { addVersion, freePort, writePackage, writeRepository } from "../support/packages.ts";

const emptyDaemon = sharedDaemon();

const run = promisify(execFile);
const rootTest = isRoot ? test : test.skip;
/** `nobody` and `games`: every Debian has a passwd entry for both. */
const nobody = 65534;
const games = 5;

/** A world-writable directory, removed at the end. */
async function publicDir(): Promise<{ dir: string } & AsyncDisposable> {
  const dir = await mkdtemp(join(tmpdir(), "svc-public-"));
  await chmod(dir, 0o777);
  return { dir, [Symbol.asyncDispose]: () => rm(dir, { recursive: true, force: true }) };
}

rootTest(`another user's app does not exist for a user${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  await using owner = await daemon.as(nobody);
  await using other = await daemon.as(games);
  await using shared = await publicDir();
  const dir = join(shared.dir, "package");
  await writePackage(dir, await freePort());
  const own = owner.client(AppService);
  const app = await own.installApp({ spec: dir });
  t.like(app, { id: "web", owner: nobody, ownerName: "nobody" });
  t.like(await stat(app.directory), { uid: 0, gid: nobody, mode: 0o40750 });
  t.like(await stat(join(app.directory, "repo")), { uid: nobody, mode: 0o40700 });
  const foreign = other.client(AppService);
  t.deepEqual((await foreign.listApps({})).apps, []);
  const id = "web";
  const calls = {
    getApp: () => foreign.getApp({ id }),
    removeApp: () => foreign.removeApp({ id }),
    startApp: () => foreign.startApp({ id }),
    stopApp: () => foreign.stopApp({ id }),
    restartApp: () => foreign.restartApp({ id }),
    getAppLogs: () => foreign.getAppLogs({ id }),
    streamAppLogs: () => foreign.streamAppLogs({ id }),
    getAppSettings: () => foreign.getAppSettings({ id }),
    updateAppSettings: () => foreign.updateAppSettings({ id, values: {} }),
    getAppDisk: () => foreign.getAppDisk({ id }),
    listAppPorts: () => foreign.listAppPorts({ id }),
    upgradeApp: () => foreign.upgradeApp({ id }),
    cloneApp: () => foreign.cloneApp({ id }),
    cloneAppStream: () => foreign.cloneAppStream({ id }),
    getAppImage: () => foreign.getAppImage({ id }),
    repullApp: () => foreign.repullApp({ id }),
    placeApp: () => foreign.placeApp({ id, placement: { on: "machine" } }),
    exportApp: () => foreign.exportApp({ id, to: "compose" }),
    scaleApp: () => foreign.scaleApp({ id, replicas: 2 }),
    renameApp: () => foreign.renameApp({ id, name: "other" }),
    cancelAppOperation: () => foreign.cancelAppOperation({ id }),
  };
  for (const [name, call] of Object.entries(calls)) {
    t.like(await errorOf(call()), { code: "NotFound", reason: "not_found", message: 'no app "web"' }, name);
  }
  t.deepEqual((await foreign.getAppStats({ ids: [id] })).stats, []);
  t.deepEqual((await foreign.getDiskReport({})).apps, []);
  t.deepEqual((await foreign.getPortReport({})).apps, []);
  t.is((await daemon.client(AppService).getApp({ id })).id, id, "root sees it");
  t.like(await foreign.installApp({ spec: dir }), { id: "web-games", owner: games });
});

rootTest(
  `an app runs as its owner, with the owner's groups and a clean environment${needsRoot}`,
  async (t) => {
    await using daemon = await startDaemon({ env: { SVC_CANARY: "must not leak" } });
    await using owner = await daemon.as(nobody);
    await using shared = await publicDir();
    const port = await freePort();
    await writePackage(join(shared.dir, "package"), port);
    const apps = owner.client(AppService);
    await apps.installApp({ spec: join(shared.dir, "package") });
    await apps.startApp({ id: "web" });
    const answer = await eventually(() =>
      fetch(`http://127.0.0.1:${port}`).catch(async (error: unknown) => {
        const { lines } = await apps.getAppLogs({ id: "web" });
        throw new Error(lines.map(({ text }) => text).join("\n"), { cause: error });
      }),
    );
    const seen = (await answer.json()) as {
      uid: number;
      groups: number[];
      env: string[];
    };
    t.is(seen.uid, nobody);
    const { stdout } = await run("id", ["-G", "nobody"]);
    t.deepEqual(seen.groups.toSorted(), stdout.trim().split(" ").map(Number).toSorted());
    t.false(seen.env.includes("SVC_CANARY"));
    await apps.removeApp({ id: "web" });
  },
);

rootTest(`git configuration and hooks in a checkout never run as root${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  await using owner = await daemon.as(nobody);
  await using shared = await publicDir();
  const port = await freePort();
  const repository = join(shared.dir, "web.git");
  const spec = await writeRepository(repository, port, [{ version: "1.0.0" }]);
  const canary = join(shared.dir, "canary");
  const trap = join(shared.dir, "trap.sh");
  await writeFile(trap, `#!/bin/sh\nid -u >> ${canary}\n`, { mode: 0o755 });
  await chmod(trap, 0o755);
  await run("chown", ["-R", `${nobody}:${nobody}`, repository]);
  const apps = owner.client(AppService);
  const { directory } = await apps.installApp({ spec });
  // The owner fills the checkout and the origin repository with traps.
  for (const tree of [join(directory, "repo"), repository]) {
    await run("setpriv", [
      ...[`--reuid=${nobody}`, `--regid=${nobody}`],
      "--clear-groups",
      "sh",
      "-c",
      `cd "$1" && git init -q . 2>/dev/null; for key in core.fsmonitor core.sshCommand diff.external filter.x.smudge filter.x.clean core.editor; do git config "$key" "$2"; done
       mkdir -p .git/hooks && for hook in post-checkout pre-commit post-merge reference-transaction post-index-change; do cp "$2" .git/hooks/$hook; done
       printf '* filter=x\n' > .gitattributes`,
      "sh",
      tree,
      trap,
    ]);
  }
  await addVersionAs(nobody, repository, port, "1.1.0");
  await rm(canary, { force: true });
  t.is((await apps.upgradeApp({ id: "web" })).to, "v1.1.0");
  await apps.startApp({ id: "web" });
  await apps.getAppDisk({ id: "web" });
  await apps.stopApp({ id: "web" });
  await apps.cloneApp({ id: "web" });
  await apps.removeApp({ id: "web" });
  await apps.removeApp({ id: "web-2" });
  const uids = await readFile(canary, "utf8").catch(() => "");
  t.false(uids.split("\n").includes("0"), `the traps ran as: ${uids}`);
});

rootTest(`symlinks planted in an app's tree are not followed${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  await using owner = await daemon.as(nobody);
  await using shared = await publicDir();
  const secretDir = join(daemon.dir, "secret");
  await mkdir(secretDir, { mode: 0o700 });
  await writeFile(join(secretDir, "shadow"), "root's secret\n".repeat(100_000), { mode: 0o600 });
  const port = await freePort();
  await writePackage(join(shared.dir, "package"), port);
  const apps = owner.client(AppService);
  const { directory } = await apps.installApp({ spec: join(shared.dir, "package") });
  await apps.startApp({ id: "web" });
  await eventually(async () => assert.ok((await apps.getAppLogs({ id: "web" })).lines.length > 0));
  await apps.stopApp({ id: "web" });
  const honest = await apps.getAppDisk({ id: "web" });
  const plant = async (path: string, target: string): Promise<void> => {
    await rm(path, { recursive: true, force: true });
    await symlink(target, path);
    await run("chown", ["-h", `${nobody}:${nobody}`, path]);
  };
  await plant(join(directory, "logs", "x"), join(secretDir, "shadow"));
  await plant(join(directory, "data"), secretDir);
  await plant(join(directory, "volumes", "media"), secretDir);
  const runDir = join(daemon.storeDir, "run", "web");
  await plant(join(runDir, "logs"), secretDir);
  await plant(join(runDir, "state.json"), join(secretDir, "shadow"));
  const disk = await apps.getAppDisk({ id: "web" }).catch(() => undefined);
  if (disk !== undefined) t.true(disk.totalBytes <= honest.totalBytes, "root's file is not measured");
  const logs = await apps.getAppLogs({ id: "web" }).catch(() => undefined);
  t.false(JSON.stringify(logs?.lines ?? []).includes("secret"), "root's file is not read");
  const clone = await apps.cloneApp({ id: "web" }).catch(() => undefined);
  if (clone !== undefined) {
    t.true(clone.copiedBytes < 500_000n, "root's file is not copied");
    await apps.removeApp({ id: clone.id });
  }
  await apps.removeApp({ id: "web" });
  t.is((await readFile(join(secretDir, "shadow"))).length, 1_400_000, "root's file is not removed");
});

rootTest(`a user cannot install what only root may read${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  await using owner = await daemon.as(nobody);
  const apps = owner.client(AppService);
  const dir = join(daemon.dir, "rootonly");
  await writePackage(join(dir, "package"), await freePort());
  const url = await writeRepository(join(dir, "web.git"), await freePort(), [{ version: "1.0.0" }]);
  await chmod(dir, 0o700);
  for (const spec of [join(dir, "package"), url]) {
    const error = await errorOf(apps.installApp({ spec }));
    t.not(error.code, "Internal", `${spec}: ${error.message}`);
  }
  t.deepEqual((await apps.listApps({})).apps, []);
  t.is((await daemon.client(AppService).installApp({ spec: join(dir, "package") })).owner, 0, "root may");
});

rootTest(`sudo gives a new app to the invoking user, and nobody else can${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  await using user = await daemon.as(nobody);
  await using shared = await publicDir();
  const dir = join(shared.dir, "package");
  await writePackage(dir, await freePort());
  const headers = { "x-svc-sudo-uid": String(games), "x-svc-sudo-user": "games" };
  t.is((await daemon.client(AppService).installApp({ spec: dir }, { headers })).owner, games);
  t.is((await user.client(AppService).installApp({ spec: dir }, { headers })).owner, nobody);
  for (const bad of ["-1", "4294967295", "4294967296", "0x0", "1e3", "5, 5"]) {
    const error = await errorOf(
      daemon.client(AppService).installApp({ spec: dir }, { headers: { "x-svc-sudo-uid": bad } }),
    );
    t.not(error.code, "Internal", `${bad}: ${error.message}`);
  }
  t.is((await daemon.client(AppService).listApps({})).apps.length, 2);
});

rootTest(`a clone that root creates through sudo belongs to the invoking user${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  await using user = await daemon.as(nobody);
  await using shared = await publicDir();
  const dir = join(shared.dir, "package");
  await writePackage(dir, await freePort());
  const { id, directory } = await user.client(AppService).installApp({ spec: dir });
  await run(
    "setpriv",
    [`--reuid=${nobody}`, "--clear-groups", "sh", "-c", "umask 022; echo mine > notes; chmod 4755 notes"],
    {
      cwd: join(directory, "data"),
    },
  );
  const headers = { "x-svc-sudo-uid": String(games), "x-svc-sudo-user": "games" };
  const apps = daemon.client(AppService);
  const clone = await apps.cloneApp({ id }, { headers });
  const copy = await apps.getApp({ id: clone.id });
  t.is(copy.owner, games);
  const notes = join(copy.directory, "data/notes");
  t.is(await readFile(notes, "utf8"), "mine\n");
  const { uid, mode } = await stat(notes);
  t.deepEqual([uid, mode & 0o7777], [games, 0o755]);
  const root = await apps.cloneApp({ id });
  t.is((await apps.getApp({ id: root.id })).owner, nobody, "without sudo the owner is unchanged");
  await apps.startApp({ id: clone.id });
  t.is((await apps.getApp({ id: clone.id })).state, "RUNNING");
});

async function addVersionAs(uid: number, repository: string, port: number, version: string): Promise<void> {
  // Without the traps: the test creates the version, not the daemon.
  await run("chown", ["-R", "0:0", repository]);
  await rm(join(repository, ".git", "hooks"), { recursive: true, force: true });
  const config = await readFile(join(repository, ".git", "config"), "utf8");
  await writeFile(join(repository, ".git", "config"), "[core]\n\trepositoryformatversion = 0\n");
  await addVersion(repository, port, { version });
  await writeFile(join(repository, ".git", "config"), config);
  await run("chown", ["-R", `${uid}:${uid}`, repository]);
  await chown(repository, uid, uid);
}

// If `/proc` is mounted with `hidepid`, svc shows no processes that the kernel hides from the caller.

/** `games`, an account that every Debian has. */
const uid = 5;
const launcher = [
  ...["unshare", "--mount", "sh", "-c"],
  'mount -t proc -o hidepid=invisible proc /proc && exec "$@"',
  "sh",
];

rootTest("a regular user sees only their own processes if /proc hides the others", async (t) => {
  await using daemon = await startDaemon({ launcher });
  await using connection = await daemon.as(uid);
  const sleeper = spawn("setpriv", [`--reuid=${uid}`, "--clear-groups", "sleep", "600"], {
    stdio: ["ignore", "ignore", "inherit"],
  });
  try {
    await once(sleeper, "spawn");
    const seenBy = async (client = daemon.client(ProcessService)) => {
      const { processes } = await client.listProcesses({ limit: 10_000 });
      return processes.map(({ pid, user }) => ({ pid, user }));
    };
    const own = await seenBy(connection.client(ProcessService));
    t.deepEqual([...new Set(own.map(({ user }) => user))], ["games"]);
    t.true(own.some(({ pid }) => pid === sleeper.pid));
    t.true((await seenBy()).some(({ pid }) => pid === daemon.pid));
  } finally {
    sleeper.kill();
  }
});
