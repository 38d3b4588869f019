/** Reports over all apps succeed, whatever one owner does to their files. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { chmod, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { AppService, type AppDisk } from "../../gen/svc/v1/app_pb.ts";
import { isRoot, needsRoot, startDaemon, type TestDaemon } from "../support/daemon.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";

const rootTest = isRoot ? test : test.skip;
const games = 5;
const nobody = 65_534;

/** One running app each of root and two users. */
async function threeApps(daemon: TestDaemon): Promise<void> {
  for (const [id, uid] of [
    ["of-root", 0],
    ["of-games", games],
    ["of-nobody", nobody],
  ] as const) {
    await writePackage(join(daemon.dir, id), await freePort(), { id });
    await using user = await daemon.as(uid);
    await user.client(AppService).installApp({ spec: join(daemon.dir, id) });
    await user.client(AppService).startApp({ id });
  }
}

/** A user helper process: a child of the daemon with that uid. */
async function helperOf(daemon: TestDaemon, uid: number): Promise<number> {
  for (const name of await readdir("/proc")) {
    const status = await readFile(`/proc/${name}/status`, "utf8").catch(() => "");
    const isHelper = status.includes(`\nPPid:\t${daemon.pid}\n`) && status.includes(`\nUid:\t${uid}\t`);
    if (isHelper) return Number(name);
  }
  throw new Error(`uid ${uid} has no helper`);
}

/** The expected content of every report, regardless of the app of `games`. */
function assertOthersAreRight(apps: readonly AppDisk[]): void {
  assert.equal(apps.length, 3);
  for (const { id, unknown, totalBytes } of apps) {
    if (id === "of-games") continue;
    assert.equal(unknown, undefined);
    assert.ok(totalBytes > 0n);
  }
}

rootTest(`a directory that its owner made unreadable affects only that app${needsRoot}`, async (t) => {
  await using daemon = await startDaemon();
  await threeApps(daemon);
  const apps = daemon.client(AppService);
  const appDir = join(daemon.storeDir, "apps", "of-games");
  const asOwner = (...argv: string[]): Promise<unknown> =>
    promisify(execFile)("setpriv", [`--reuid=${games}`, "--regid=games", "--init-groups", "--", ...argv]);
  await asOwner("mkdir", "-p", join(appDir, "data", "deep"));
  for (const directory of [join(appDir, "data", "deep"), join(appDir, "data"), join(appDir, "repo")]) {
    await asOwner("chmod", "000", directory);

    const report = await apps.getDiskReport({});

    assertOthersAreRight(report.apps);
    t.regex(
      report.apps.find(({ id }) => id === "of-games")?.unknown ?? "",
      /may not look into some/,
      directory,
    );
    t.regex((await apps.getAppDisk({ id: "of-games" })).unknown ?? "", /may not look into some/);
  }
  t.is((await apps.getAppStats({})).stats.length, 3);
  for (const name of ["repo", "data", "data/deep"]) await chmod(join(appDir, name), 0o700);
  t.is((await apps.getAppDisk({ id: "of-games" })).unknown, undefined);
});

rootTest(`a helper that its owner stopped delays only its owner${needsRoot}`, async (t) => {
  await using daemon = await startDaemon();
  await threeApps(daemon);
  const apps = daemon.client(AppService);
  await apps.getDiskReport({});
  const helper = await helperOf(daemon, games);
  process.kill(helper, "SIGSTOP");
  const before = performance.now();

  const [report, { stats }] = await Promise.all([apps.getDiskReport({}), apps.getAppStats({})]);

  const tookMs = performance.now() - before;
  t.log(`${Math.round(tookMs)} ms`);
  assertOthersAreRight(report.apps);
  t.regex(
    report.apps.find(({ id }) => id === "of-games")?.unknown ?? "",
    /helper process .* does not answer/,
  );
  t.is(stats.length, 3);
  // Two seconds are required; without the timeout it is twelve, when the helper is killed.
  t.true(tookMs < 8_000);
  await eventually(() => assert.throws(() => process.kill(helper, 0)), 30_000);
  t.is((await apps.getAppDisk({ id: "of-games" })).unknown, undefined, "the next helper responds");
});
