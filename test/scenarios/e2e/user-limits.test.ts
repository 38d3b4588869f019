/** Limits of a user's apps, builds and services, some in an emulated machine. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { chmod, mkdir, readFile, readdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test from "ava";
import { type AppDisk, AppService } from "../../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../../gen/svc/v1/backup_pb.ts";
import { CredentialService } from "../../../gen/svc/v1/credential_pb.ts";
import { bundledProgram } from "../../support/bundled-program.ts";
import { sharedDaemon } from "../../support/daemon-test.ts";
import { type TestDaemon, isRoot, needsRoot, startDaemon } from "../../support/daemon.ts";
import { whyNoDocker } from "../../support/docker.ts";
import { runEmulated, whyNoEmulator } from "../../support/emulated-machine.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { GitServer } from "../../support/git-server.ts";
import { freePort, writePackage, writeRepository } from "../../support/packages.ts";
import { main } from "../../support/svc-main.ts";

// Limits of one user, and what they reveal about others.

/** Configured with one limit for the test, and without one of the defaults. */
const emptyDaemon = sharedDaemon({
  config: "[limits]\nmax_waiting_installs_per_user = 38\nmax_backup_bytes_per_user = 0\n",
});

const rootTest = isRoot ? test : test.skip;
const games = 5;
const nobody = 65_534;

rootTest(
  `two of forty installs of a user run, and the others report that they wait${needsRoot}`,
  async (t) => {
    const daemon = await emptyDaemon();
    // Never responds: every client stays in progress.
    await using server = await GitServer.start(daemon.dir, () => true);
    await using user = await daemon.as(games);
    const stop = new AbortController();
    const steps: string[] = [];
    const installs = Array.from({ length: 40 }, async (_, n) => {
      const spec = `${server.url}/r${n}.git`;
      const events = user.client(AppService, "grpc").installAppStream({ spec }, { signal: stop.signal });
      for await (const { event } of events) if (event.case === "progress") steps.push(event.value.step);
    });
    const ended = Promise.allSettled(installs);
    await eventually(() => {
      assert.equal(steps.filter((step) => step === "wait").length, 38);
      assert.equal(server.requests.length, 2);
    }, 60_000);
    const oneMore = { spec: `${server.url}/one-more.git` };
    t.like(await errorOf(user.client(AppService).installApp(oneMore, { timeoutMs: 60_000 })), {
      code: "ResourceExhausted",
      reason: "too_many",
    });
    await using other = await daemon.as(nobody);
    await writePackage(join(daemon.dir, "web"), await freePort());
    t.is((await other.client(AppService).installApp({ spec: join(daemon.dir, "web") })).id, "web");
    stop.abort();
    await ended;
    t.true(server.requests.length <= 40);
  },
);

rootTest(`apps and credentials of a user are limited, root's are not${needsRoot}`, async (t) => {
  const config = "[limits]\nmax_apps_per_user = 2\nmax_credentials_per_user = 1\n";
  await using daemon = await startDaemon({ config });
  await writePackage(join(daemon.dir, "web"), await freePort());
  const spec = join(daemon.dir, "web");
  await using user = await daemon.as(games);
  const apps = user.client(AppService);
  const settled = await Promise.allSettled([1, 2, 3, 4].map(() => apps.installApp({ spec })));
  t.is(settled.filter(({ status }) => status === "fulfilled").length, 2);
  for (const work of [apps.installApp({ spec }), apps.cloneApp({ id: "web" })]) {
    const refused = await errorOf(work);
    t.like(refused, { code: "ResourceExhausted", reason: "too_many" });
    t.regex(refused.message, /max_apps_per_user is 2/);
  }
  t.is((await apps.listApps({})).apps.length, 2);

  const credentials = user.client(CredentialService);
  const credential = { kind: "git", host: "example.org", username: "me", secret: "s" };
  await credentials.upsertCredential({ ...credential, name: "one" });
  await credentials.upsertCredential({ ...credential, name: "one", secret: "t" });
  const refused = await errorOf(credentials.upsertCredential({ ...credential, name: "two" }));
  t.like(refused, { code: "ResourceExhausted", reason: "too_many" });
  t.regex(refused.message, /max_credentials_per_user is 1/);

  for (const name of ["one", "two"]) {
    await daemon.client(CredentialService).upsertCredential({ ...credential, name });
  }
  for (const id of ["web-3", "web-4", "web-5"]) {
    t.is((await daemon.client(AppService).installApp({ spec })).id, id);
  }
});

rootTest(
  `backups of a user are limited in each directory, including the new one, and root's are not${needsRoot}`,
  async (t) => {
    const max = 400_000;
    await using daemon = await startDaemon({ config: `[limits]\nmax_backup_bytes_per_user = ${max}\n` });
    await writePackage(join(daemon.dir, "web"), await freePort());
    await using user = await daemon.as(games);
    const { directory } = await user.client(AppService).installApp({ spec: join(daemon.dir, "web") });
    await writeFile(join(directory, "data/bulk"), randomBytes(140_000));
    const [roots, own] = [daemon.client(BackupService), user.client(BackupService)];
    const kept = async () => (await own.listBackups({ storage: "local" })).backups;
    const backUp = (by: typeof own, ...storages: string[]) => by.createBackup({ appId: "web", storages });
    const upload = (archive: Uint8Array) =>
      own.uploadBackup(
        (async function* () {
          yield { storage: "local" };
          for (let at = 0; at < archive.length; at += 10_000)
            yield { storage: "local", content: { data: archive.subarray(at, at + 10_000) } };
        })(),
      );
    const refuses = async (work: Promise<unknown>): Promise<void> => {
      const refused = await errorOf(work);
      t.like(refused, { code: "ResourceExhausted", reason: "too_many" });
      t.regex(refused.message, /in the storage "local".*max_backup_bytes_per_user \(400000\).*remove some/);
      t.deepEqual(await readdir(join(daemon.storeDir, "spool")), []);
    };

    await backUp(own);
    const name = (await backUp(own)).results[0]?.name ?? "";
    const pieces = own.downloadBackup({ appId: "web", storage: "local", name });
    const archive = Buffer.concat(
      await Array.fromAsync(pieces, ({ content }) => content?.data ?? new Uint8Array()),
    );
    t.true(archive.length > 140_000 && archive.length < 190_000);
    await refuses(backUp(own));
    await refuses(upload(archive));
    t.is((await kept()).length, 2);

    t.is((await backUp(roots)).results[0]?.error, "");
    // A backup without space at its start reads nothing.
    const stop = new AbortController();
    await refuses(
      user.client(BackupService, "grpc").uploadBackup(
        (async function* () {
          yield { storage: "local" };
          await new Promise((resolve) => stop.signal.addEventListener("abort", resolve));
        })(),
      ),
    );
    stop.abort();

    const disk = join(daemon.dir, "disk");
    await mkdir(disk, { mode: 0o700 });
    await roots.upsertBackupStorage({ name: "disk", location: { case: "local", value: { dir: disk } } });
    const { results } = await backUp(own, "local", "disk");
    t.regex(results[0]?.error ?? "", /max_backup_bytes_per_user/);
    t.is(results[1]?.error, "");

    for (const { name: old } of (await kept()).slice(1)) {
      await own.deleteBackup({ appId: "web", storage: "local", name: old });
    }
    // Together with the remaining one there is space for one of these.
    const uploads = await Promise.allSettled([1, 2, 3].map(() => upload(archive)));
    t.true(uploads.filter(({ status }) => status === "fulfilled").length <= 1);
    const takenBytes = (await kept()).reduce((sum, { sizeBytes }) => sum + Number(sizeBytes), 0);
    t.true(takenBytes <= max, `${takenBytes}`);
  },
);

rootTest(`if backups have no limit, users have as many as there is space for${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  await writePackage(join(daemon.dir, "web"), await freePort());
  await using user = await daemon.as(games);
  await user.client(AppService).installApp({ spec: join(daemon.dir, "web") });
  t.is((await user.client(BackupService).createBackup({ appId: "web" })).results[0]?.error, "");
});

rootTest(`IDs do not reveal what others have${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  await writePackage(join(daemon.dir, "web"), await freePort());
  const spec = join(daemon.dir, "web");
  await using user = await daemon.as(games);
  const [roots, own] = [daemon.client(AppService), user.client(AppService)];
  t.is((await roots.installApp({ spec })).id, "web");
  t.is((await roots.installApp({ spec })).id, "web-2");
  t.is((await own.installApp({ spec })).id, "web-games");
  t.is((await own.installApp({ spec })).id, "web-games-2");
  t.is((await own.cloneApp({ id: "web-games" })).id, "web-games-3");
  await using other = await daemon.as(nobody);
  t.is((await other.client(AppService).installApp({ spec })).id, "web-nobody");
  await roots.removeApp({ id: "web" });
  t.is((await own.installApp({ spec })).id, "web");
  t.is((await own.cloneApp({ id: "web" })).id, "web-games-4", "web-2 is root's");
  t.is((await roots.installApp({ spec })).id, "web-3", "root sees them all");
});

rootTest(`the disk usage of fetched packages is in the disk report${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  const spec = await writeRepository(join(daemon.dir, "web"), await freePort(), [{ version: "1.0.0" }]);
  await using user = await daemon.as(games);
  const [roots, own] = [daemon.client(AppService), user.client(AppService)];
  await roots.installApp({ spec });
  const { cacheBytes } = await roots.getDiskReport({});
  t.true(cacheBytes > 0n);
  t.is((await own.getDiskReport({})).cacheBytes, 0n, "packages fetched for others are not shown");
  const broken = await writeRepository(join(daemon.dir, "broken"), await freePort(), [
    { id: "broken", files: { "svc.yaml": "id: 7\n" } },
  ]);
  t.like(await errorOf(roots.installApp({ spec: broken })), { reason: "package_invalid" });
  t.is((await roots.getDiskReport({})).cacheBytes, cacheBytes, "a failed install leaves nothing");
  const unbuilt = await writeRepository(join(daemon.dir, "unbuilt"), await freePort(), [
    {
      id: "unbuilt",
      files: {
        "svc.yaml":
          "id: unbuilt\nname: U\nversion: \"1\"\nprocess: {exec: [node], build: [{exec: ['false']}]}\n",
      },
    },
  ]);
  t.like(await errorOf(roots.installApp({ spec: unbuilt })), { reason: "build_failed" });
  t.is((await roots.getDiskReport({})).cacheBytes, cacheBytes);
  t.deepEqual(await readdir(join(daemon.storeDir, "apps")), ["web"]);
});

// Reports over all apps succeed, whatever one owner does to their files.

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
    t.regex(report.apps.find(({ id }) => id === "of-games")?.unknown ?? "", /may not read some/, directory);
    t.regex((await apps.getAppDisk({ id: "of-games" })).unknown ?? "", /may not read some/);
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
    /helper process .* does not respond/,
  );
  t.is(stats.length, 3);
  // Two seconds are required; without the timeout it is twelve, when the helper is killed.
  t.true(tookMs < 8_000);
  await eventually(() => assert.throws(() => process.kill(helper, 0)), 30_000);
  t.is((await apps.getAppDisk({ id: "of-games" })).unknown, undefined, "the next helper responds");
});

// The limits of regular users' builds with each version of control groups and each cgroup driver of the engine. A host
// has only one combination, and few hosts that run tests have systemd, so each is tested in an emulated machine, with
// SVC_LONG=1.

const guest = fileURLToPath(new URL("../../e2e/support/user-builds-guest.ts", import.meta.url));
const whyNoBuilds =
  process.env["SVC_LONG"] === undefined ? "takes minutes: SVC_LONG=1" : (whyNoEmulator ?? whyNoDocker);
const skippedBuilds = whyNoBuilds === undefined ? "" : ` (skipped: ${whyNoBuilds})`;
const longTest = whyNoBuilds === undefined ? test.serial : test.skip;
const timeoutMs = 20 * 60_000;

interface Result {
  readonly driver: string;
  readonly version: string;
  readonly output: string;
}

async function buildInMachine(drivers: readonly string[], systemdArguments: string): Promise<Result[]> {
  const program = await bundledProgram(guest);
  const script = `${process.execPath} ${program} ${drivers.join(" ")} 2>&1\n`;
  const output = await runEmulated(script, {}, timeoutMs, systemdArguments);
  const results = [...output.matchAll(/^result: (.*)$/gm)].map(([, json = ""]) => JSON.parse(json) as Result);
  if (results.length !== drivers.length) throw new Error(output.slice(-3_000));
  return results;
}

longTest(`with cgroup v2, both drivers limit the builds of a user${skippedBuilds}`, async (t) => {
  t.timeout(timeoutMs + 60_000);
  const results = await buildInMachine(["systemd", "cgroupfs"], "systemd.unified_cgroup_hierarchy=1");
  t.deepEqual(
    results.map(({ driver, version }) => [driver, version]),
    [
      ["systemd", "2"],
      ["cgroupfs", "2"],
    ],
  );
  for (const { driver, output } of results) {
    t.regex(output, /^memory\.max: 268435456$/m, driver);
    t.regex(output, /^memory\.swap\.max: 0$/m, driver);
    t.regex(output, /^cpu\.max: 100000 100000$/m, driver);
    t.regex(output, /can't fork: Resource temporarily unavailable/, driver);
  }
});

longTest(`with cgroup v1, the systemd driver limits the builds of a user${skippedBuilds}`, async (t) => {
  t.timeout(timeoutMs + 60_000);
  const [result] = await buildInMachine(["systemd"], "systemd.unified_cgroup_hierarchy=0");
  t.like(result, { driver: "systemd", version: "1" });
  const { output = "" } = result ?? {};
  t.regex(output, /^memory\/memory\.limit_in_bytes: 268435456$/m);
  t.regex(output, /^memory\/memory\.memsw\.limit_in_bytes: 268435456$/m);
  t.regex(output, /^cpu\/cpu\.cfs_quota_us: 100000$/m);
  t.regex(output, /can't fork: Resource temporarily unavailable/);
});

// The limits of a service take effect. systemd needs the cgroup controllers for them, which most test hosts use
// otherwise, so this test runs in an emulated machine, with SVC_LONG=1.

const unit = fileURLToPath(new URL("../../../packaging/svc.service", import.meta.url));
const whyNoServices = process.env["SVC_LONG"] === undefined ? "takes minutes: SVC_LONG=1" : whyNoEmulator;

function manifest(id: string, exec: string): string {
  return `id: ${id}
name: A service with limits
version: "1.0.0"
service: { exec: ${exec} }
limits: { memory: 64MiB, cpus: 0.25 }
restart: { policy: never }
`;
}

/** Prints lines with the kernel's counters, each after its name. */
const script = `
svc() { ${process.execPath} ${main} "$@"; }
for n in $(seq 300); do [ -S /run/svc/root/svc.sock ] && break; sleep 1; done
svc install /etc/svc/burner > /dev/null; svc install /etc/svc/eater > /dev/null
svc start burner > /dev/null
group=/sys/fs/cgroup$(systemctl show --property=ControlGroup --value svc-burner)
echo "limits: $(cat $group/memory.max $group/cpu.max | tr '\\n' ' ')"
used() { sed -n 's/^usage_usec //p' $group/cpu.stat; }
before=$(used); began=$(cut -d' ' -f1 /proc/uptime); sleep 20; after=$(used); ended=$(cut -d' ' -f1 /proc/uptime)
echo "used: $before $after $began $ended"
echo "throttled: $(sed -n 's/^nr_throttled //p' $group/cpu.stat)"
svc stop burner > /dev/null
svc start eater 2>&1 | sed 's/^/started: /'
for n in $(seq 60); do [ "$(systemctl show --property=Result --value svc-eater)" = success ] || break; sleep 1; done
svc info eater --json | tr -d '\\n' | sed 's/^/eater: /'; echo
svc status --json | tr -d '\\n' | sed 's/^/status: /'; echo
`;

(whyNoServices === undefined ? test : test.skip)(
  `a service gets no more memory and CPU time than its limits${whyNoServices === undefined ? "" : ` (skipped: ${whyNoServices})`}`,
  async (t) => {
    t.timeout(timeoutMs + 60_000);
    const said = await runEmulated(
      script,
      {
        "etc/systemd/system/svc.service": await readFile(unit, "utf8"),
        "etc/systemd/system/svc.service.d/sources.conf": `[Service]\nExecStart=\nExecStart=${process.execPath} ${main} daemon\n`,
        "etc/svc/svc.toml": `[apps]\npath = ["${dirname(process.execPath)}", "/usr/bin", "/bin"]\n`,
        "etc/svc/burner/svc.yaml": manifest("burner", `[sh, -c, "while :; do :; done"]`),
        // It buffers everything as long as no line ends.
        "etc/svc/eater/svc.yaml": manifest("eater", `[sh, -c, "sleep 5; exec tail /dev/zero"]`),
      },
      timeoutMs,
    );
    const line = (name: string): string => new RegExp(`^${name}: (.*)$`, "m").exec(said)?.[1]?.trim() ?? "";
    t.log(said.slice(-3_000));
    t.is(line("limits"), `${64 * 1024 * 1024} 25000 100000`);
    const [before = 0, after = 0, began = 0, ended = 0] = line("used").split(" ").map(Number);
    const share = (after - before) / 1e6 / (ended - began);
    t.true(share > 0.1 && share < 0.3, `it used ${share} of a CPU`);
    t.true(Number(line("throttled")) > 10);
    const { state, state_reason: stateReason } = JSON.parse(line("eater")) as Record<string, string>;
    t.is(state, "CRASHED");
    t.regex(stateReason ?? "", /^the container ran out of memory/);
  },
);
