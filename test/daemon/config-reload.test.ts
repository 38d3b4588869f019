/** `svc daemon reload` and SIGHUP: the changes that a running daemon applies, and those that need a restart. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { constants } from "node:fs";
import { mkdir, mkdtemp, open, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import { SourceService } from "../../gen/svc/v1/source_pb.ts";
import { ConfigReload } from "../../src/daemon/config-reload.ts";
import { loadConfig, parseConfig, type Config } from "../../src/daemon/config.ts";
import type { PathEnvironment } from "../../src/daemon/paths.ts";
import { runSvc } from "../cli/support/run-svc.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { eventually } from "../support/eventually.ts";
import { errorOf } from "../support/errors.ts";

async function sourcesOf(daemon: TestDaemon): Promise<string[]> {
  const { sources } = await daemon.client(SourceService).listSources({});
  return sources.map(({ name }) => name);
}

test("changes are applied or need a restart, which is named, and an invalid file changes nothing", async (t) => {
  await using daemon = await startDaemon();
  const service = daemon.client(DaemonService);
  const before = await readFile(daemon.configFile, "utf8");
  const index = join(daemon.dir, "index");
  await mkdir(index);
  const more = `
[[sources]]
name = "fresh"
url = ${JSON.stringify(index)}
[[alerts]]
name = "full"
when = "filesystem"
above_percent = 1
for_secs = 0
[limits]
max_apps_per_user = 7
`;
  t.like(await service.reloadConfig({}), { applied: [], needsRestart: [] });
  const same = await runSvc(["daemon", "reload"], { host: { sockets: socketsOf(daemon) } });
  t.deepEqual([same.stdout, same.stderr], ["", "Nothing has changed.\n"]);
  await writeFile(daemon.configFile, before + more);
  t.like(await service.reloadConfig({}), {
    applied: ["alerts", "sources"],
    needsRestart: ["limits.max_apps_per_user"],
  });
  t.true((await sourcesOf(daemon)).includes("fresh"));
  // It still waits, and applied changes are not reported again.
  const told = await runSvc(["daemon", "reload"], { host: { sockets: socketsOf(daemon) } });
  t.is(told.stdout, "Needs a restart of the daemon: limits.max_apps_per_user\n", told.stderr);
  await eventually(async () => {
    const { alerts } = await service.getStatus({});
    assert.ok(
      alerts.some(({ name }) => name === "full"),
      JSON.stringify(alerts.map(({ name }) => name)),
    );
  }, 60_000);

  await writeFile(daemon.configFile, `${before}nonsense = 1\n`);
  t.like(await errorOf(service.reloadConfig({})), { reason: "invalid_request" });
  t.true((await sourcesOf(daemon)).includes("fresh"));

  // A hang-up does the same, and the daemon continues.
  const { pid } = daemon;
  await writeFile(daemon.configFile, before);
  process.kill(pid, "SIGHUP");
  await eventually(async () => {
    assert.ok(!(await sourcesOf(daemon)).includes("fresh"), daemon.log());
  }, 40_000);
  t.is(daemon.pid, pid);
  // Its log comes through a pipe.
  await eventually(() => assert.match(daemon.log(), /svc has read its configuration again/), 40_000);
});

test("reloads during a reload share the next one", async (t) => {
  const environment: PathEnvironment = { uid: 0, home: "/root", env: {} };
  const config = parseConfig({}, "/etc/svc/svc.toml", environment);
  const reads: ((fresh: Config) => void)[] = [];
  const nothing = (): void => undefined;
  const reload = new ConfigReload({
    config,
    load: async () => {
      const { promise, resolve } = Promise.withResolvers<Config>();
      reads.push(resolve);
      return promise;
    },
    apply: { alerts: nothing, sources: nothing, "apps.backup_before_upgrade": nothing, "log.level": nothing },
  });
  const first = reload.reload();
  await eventually(() => assert.equal(reads.length, 1));
  const others = Array.from({ length: 1_000 }, () => reload.reload());
  await new Promise((resolve) => setImmediate(resolve));
  t.is(reads.length, 1, "not while another is read");
  reads[0]?.(config);
  t.deepEqual(await first, { applied: [], needsRestart: [] });
  // The second reads the current content of the file.
  await eventually(() => assert.equal(reads.length, 2));
  const after = reload.reload();
  reads[1]?.(parseConfig({ log: { level: "debug" } }, "/etc/svc/svc.toml", environment));
  t.deepEqual(await Promise.all(others), Array(1_000).fill({ applied: ["log.level"], needsRestart: [] }));
  await eventually(() => assert.equal(reads.length, 3));
  reads[2]?.(config);
  t.deepEqual(await after, { applied: ["log.level"], needsRestart: [] });
});

test("keys are named as the file spells them, each once, and pending ones are named again", async (t) => {
  const environment: PathEnvironment = { uid: 0, home: "/root", env: {} };
  const read = (file: Record<string, unknown>): Config => parseConfig(file, "/etc/svc/svc.toml", environment);
  const loaded = [
    read({ api: { listen: "127.0.0.1:1" }, apps: { backup_before_upgrade: true, build_env: { A: "b" } } }),
    read({ api: { listen: "127.0.0.1:1" }, apps: { backup_before_upgrade: true } }),
  ];
  const taken: boolean[] = [];
  const nothing = (): void => undefined;
  const reload = new ConfigReload({
    config: read({}),
    load: () => Promise.resolve(loaded.shift() ?? read({})),
    apply: {
      ...{ alerts: nothing, sources: nothing, "log.level": nothing },
      "apps.backup_before_upgrade": ({ apps }) => taken.push(apps.backUpBeforeUpgrade),
    },
  });
  t.deepEqual(await reload.reload(), {
    applied: ["apps.backup_before_upgrade"],
    needsRestart: ["api.listen", "apps.build_env"],
  });
  t.deepEqual(await reload.reload(), { applied: [], needsRestart: ["api.listen"] });
  t.deepEqual(await reload.reload(), { applied: ["apps.backup_before_upgrade"], needsRestart: [] });
  t.deepEqual(taken, [true, false]);
});

for (const [what, make] of [
  ["a FIFO", (file: string) => promisify(execFile)("mkfifo", [file])],
  ["a directory", (file: string) => mkdir(file)],
] as const) {
  test(`${what} is rejected as a configuration without blocking`, async (t) => {
    const dir = await mkdtemp(join(tmpdir(), "svc-config-"));
    t.teardown(() => rm(dir, { recursive: true }));
    const file = join(dir, "svc.toml");
    await make(file);
    // A writer that opens it after the check ends an endless wait.
    let hasWaited = false;
    const late = setTimeout(() => {
      hasWaited = true;
      void open(file, constants.O_RDWR | constants.O_NONBLOCK).then(
        (handle) => handle.close(),
        () => undefined,
      );
    }, 30_000);
    t.teardown(() => {
      clearTimeout(late);
    });
    const error = await t.throwsAsync(loadConfig({ file, environment: { uid: 0, home: "/root", env: {} } }));
    t.like(error, { reason: "invalid_request", message: `${file} is not a regular file` });
    t.false(hasWaited);
  });
}

function socketsOf({ socketPath }: TestDaemon): { checkoutDir: undefined; system: string; user: string } {
  return { checkoutDir: undefined, system: socketPath, user: socketPath };
}
