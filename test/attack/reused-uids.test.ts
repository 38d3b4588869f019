/** Accounts that were deleted, and others that got their uid. */
import assert from "node:assert/strict";
import { chmod, copyFile, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { isRoot, needsRoot, startDaemon, type TestDaemon } from "../support/daemon.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";

const rootTest = isRoot ? test : test.skip;
const uid = 61_003;
/** Below the deadline of a busy host. */
const startMs = 60_000;

/** Gives the uid to an account for the next start of the daemon. */
async function nameUid(file: string, name: string): Promise<void> {
  await copyFile("/etc/passwd", file);
  const others = await readFile(file, "utf8");
  await writeFile(file, `${others}${name}:x:${uid}:${uid}::/nonexistent:/bin/sh\n`);
}

/** Ends an app like a reboot: nothing of it runs, and nothing has recorded why. */
async function endLikeReboot(daemon: TestDaemon, id: string): Promise<void> {
  await daemon.stop();
  const state = await readFile(join(daemon.storeDir, "run", id, "state.json"), "utf8");
  const { supervisor } = JSON.parse(state) as { supervisor: { pid: number } };
  process.kill(supervisor.pid, "SIGKILL");
}

rootTest(`an app does not run as another user who got its owner's uid${needsRoot}`, async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-reused-"));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  await chmod(dir, 0o755);
  const accounts = join(dir, "passwd");
  await nameUid(accounts, "carol");
  const mount = 'mount --bind "$0" /etc/passwd; exec "$@"';
  await using daemon = await startDaemon({ launcher: ["unshare", "--mount", "sh", "-c", mount, accounts] });
  await using connection = await daemon.as(uid);
  const apps = connection.client(AppService);
  await writePackage(join(dir, "package"), await freePort());
  const { id } = await apps.installApp({ spec: join(dir, "package") });
  await apps.startApp({ id });

  await endLikeReboot(daemon, id);
  await daemon.restart();
  await eventually(async () => assert.equal((await apps.getApp({ id })).state, "RUNNING"), startMs);

  await endLikeReboot(daemon, id);
  await nameUid(accounts, "dave");
  await daemon.restart();
  const reason = `the owner carol of app "${id}" no longer exists: uid ${uid} is dave now; to run it as dave: svc start ${id}`;
  await eventually(async () => {
    const { state, stateReason } = await apps.getApp({ id });
    assert.deepEqual({ state, stateReason }, { state: "FAILED", stateReason: reason });
  }, startMs);

  // Dave has seen it.
  t.is((await apps.startApp({ id })).state, "RUNNING");
  await endLikeReboot(daemon, id);
  await daemon.restart();
  await eventually(async () => assert.equal((await apps.getApp({ id })).state, "RUNNING"), startMs);
  await apps.stopApp({ id });
});
