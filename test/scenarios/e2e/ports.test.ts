/** New apps get free ports; a start at a port that is in use fails and names the holder. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { chown, mkdtempDisposable, readFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { AppService, type App } from "../../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../../gen/svc/v1/backup_pb.ts";
import { readUnprivilegedPortStart } from "../../../src/runtimes/containers/container-policy.ts";
import { sharedDaemon } from "../../support/daemon-test.ts";
import { isRoot, needsRoot, startDaemon } from "../../support/daemon.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { freePort, writePackage } from "../../support/packages.ts";
import { processesIn, signal } from "../../support/processes.ts";

const emptyDaemon = sharedDaemon();

const nobody = 65534;
/** Retries are seconds apart, and other tests keep the CPUs busy. */
const deadlineMs = 60_000;

test("a start at a port that another app or process uses names the holder and the command", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const port = await freePort();
  await writePackage(join(daemon.dir, "package"), port);
  await apps.installApp({ spec: join(daemon.dir, "package") });
  await apps.installApp({ spec: join(daemon.dir, "package"), settings: { port } });
  await apps.startApp({ id: "web" });
  await eventually(() => fetch(`http://127.0.0.1:${port}`));

  const refused = await errorOf(apps.startApp({ id: "web-2" }));
  const wayOut = async (id: string): Promise<string> => {
    const { stateReason } = await apps.getApp({ id });
    const [command = ""] = /svc settings set .*/.exec(stateReason) ?? [];
    t.regex(command, new RegExp(`^svc settings set ${id} port=\\d+$`));
    return `; use another one: ${command}`;
  };
  const reason = `port ${port} is in use by app "web"${await wayOut("web-2")}`;
  t.like(refused, { code: "FailedPrecondition", reason: "start_failed" });
  t.like(refused.payload.value, { takenPort: port });
  t.is(refused.message, `app "web-2" did not start: ${reason}`);
  t.like(await apps.getApp({ id: "web-2" }), { state: "FAILED", stateReason: reason, enabled: true });
  const report = (await apps.getPortReport({})).apps.map(({ id, ports }) => [id, ports[0]?.takenBy]);
  t.deepEqual(report, [
    ["web", undefined],
    ["web-2", 'app "web"'],
  ]);

  await apps.stopApp({ id: "web" });
  const foreign = createServer().listen(port, "127.0.0.1");
  foreign.unref();
  await once(foreign, "listening");
  const { message } = await errorOf(apps.startApp({ id: "web" }));
  const by = `process ${process.pid} (node)`;
  t.is(message, `app "web" did not start: port ${port} is in use by ${by}${await wayOut("web")}`);
  foreign.close();
  t.is((await apps.startApp({ id: "web" })).state, "RUNNING");
  await apps.removeApp({ id: "web" });
});

(isRoot ? test : test.skip)(
  `a port of root's is refused to a user's app when it is chosen${needsRoot}`,
  async (t) => {
    const daemon = await emptyDaemon();
    await using user = await daemon.as(nobody);
    const [apps, roots] = [user.client(AppService), daemon.client(AppService)];
    const [low, high] = [join(daemon.dir, "low"), join(daemon.dir, "high")];
    await writePackage(low, 80, { id: "low" });
    await writePackage(high, await freePort(), { id: "high" });
    const message =
      /^values\.port must be at least \d+: ports below it are for root's own apps; choose another, such as 8\d+$/;
    const lowError = await errorOf(apps.installApp({ spec: low }));
    t.regex(lowError.message, message);
    t.like(lowError.payload.value, { violations: [{ field: "values.port", suggestion: "8080" }] });
    t.deepEqual((await apps.listApps({})).apps, [], "nothing of it is left");
    t.is((await apps.installApp({ spec: low, settings: { port: await freePort() } })).id, "low");
    await apps.installApp({ spec: high });
    const before = await apps.getAppSettings({ id: "high" });
    const refused = await errorOf(apps.updateAppSettings({ id: "high", values: { port: 443 } }));
    t.like(refused, { code: "InvalidArgument", reason: "invalid_request" });
    t.regex(refused.message, message);
    t.deepEqual((await apps.getAppSettings({ id: "high" })).values, before.values);
    t.like((await roots.installApp({ spec: low })).ports, [{ port: 80 }], "root's app may use it");
  },
);

for (const [title, capabilities, isAllowed] of [
  ["without the capability", "-all", false],
  ["with the capability", "+net_bind_service", true],
] as const) {
  (isRoot ? test : test.skip)(
    `a low port is ${isAllowed ? "accepted" : "rejected"} by a daemon of a regular user ${title}${needsRoot}`,
    async (t) => {
      await using place = await mkdtempDisposable(join(tmpdir(), "svc-low-port-"));
      await chown(place.path, nobody, nobody);
      const user = [`--reuid=${nobody}`, `--regid=${nobody}`, "--clear-groups"];
      const rights = [`--inh-caps=${capabilities}`, `--ambient-caps=${capabilities}`];
      await using daemon = await startDaemon({
        dir: place.path,
        launcher: ["setpriv", ...user, ...rights, "--"],
      });
      const apps = daemon.tokenClient(AppService);
      const spec = join(place.path, "package");
      await writePackage(spec, await freePort());
      await apps.installApp({ spec });
      const chosen = apps.updateAppSettings({ id: "web", values: { port: 80 } });
      if (isAllowed) t.like(await chosen, { values: { port: 80 } });
      else
        t.regex(
          (await errorOf(chosen)).message,
          /^values\.port must be at least \d+: svc does not run as root; /,
        );
    },
  );
}

(isRoot ? test : test.skip)(
  `a user's app with a port of root's does not start after an upgrade or a restore${needsRoot}`,
  async (t) => {
    const low = 1021;
    if ((await readUnprivilegedPortStart()) <= low) {
      t.pass("every user may use every port here");
      return;
    }
    const daemon = await emptyDaemon();
    await using user = await daemon.as(nobody);
    const [apps, backups] = [user.client(AppService), user.client(BackupService)];
    const dir = join(daemon.dir, "lower");
    await writePackage(dir, await freePort(), { id: "lower" });
    await apps.installApp({ spec: dir });
    await writePackage(dir, low, { id: "lower", version: "2.0.0" });
    t.is((await apps.upgradeApp({ id: "lower" })).to, "2.0.0");
    t.like((await apps.getApp({ id: "lower" })).ports, [{ port: low }]);
    t.is((await errorOf(apps.startApp({ id: "lower" }))).reason, "start_failed");
    await apps.stopApp({ id: "lower" });

    const { results } = await backups.createBackup({ appId: "lower" });
    const ref = { appId: "lower", storage: "local", name: results[0]?.name ?? "" };
    const { appId: id } = await backups.restoreBackup({ ...ref, asNew: true, newName: "restored" });
    t.is((await errorOf(apps.startApp({ id }))).reason, "start_failed");
    t.not((await apps.getApp({ id })).state, "RUNNING");
    for (const each of ["lower", id]) await apps.removeApp({ id: each });
  },
);

test("an app whose restart met a port in use starts when the port is free", async (t) => {
  t.timeout(120_000);
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const port = await freePort();
  await writePackage(join(daemon.dir, "back"), port, { id: "back" });
  await apps.installApp({ spec: join(daemon.dir, "back") });
  await apps.startApp({ id: "back" });
  const taken = await freePort();
  const holder = createServer().listen(taken, "127.0.0.1");
  await once(holder, "listening");
  await apps.updateAppSettings({ id: "back", values: { port: taken } });
  t.like(await errorOf(apps.restartApp({ id: "back" })), { reason: "start_failed" });
  const { state, nextRestartAt } = await apps.getApp({ id: "back" });
  t.is(state, "FAILED");
  t.not(nextRestartAt, undefined);
  holder.close();
  await eventually(
    async () => assert.equal((await apps.getApp({ id: "back" })).state, "RUNNING"),
    deadlineMs,
  );
  await apps.removeApp({ id: "back" });
});

test("no app gets the port of the daemon, even while another process has it", async (t) => {
  const port = await freePort();
  const squatter = createServer().listen(port, "127.0.0.1");
  await once(squatter, "listening");
  await using daemon = await startDaemon({ listen: `127.0.0.1:${port}` });
  squatter.close();
  const apps = daemon.client(AppService);
  const spec = join(daemon.dir, "same");
  await writePackage(spec, port, { id: "same" });
  const message = `values.port must not be ${port}: the port is reserved for svc`;
  t.is((await errorOf(apps.installApp({ spec, settings: { port } }))).message, message);
  const { id, ports } = await apps.installApp({ spec });
  t.not(ports[0]?.port, port, "the default moves to a free one");
  t.is((await errorOf(apps.updateAppSettings({ id, values: { port } }))).message, message);
});

(isRoot ? test : test.skip)(
  `the app of another user that uses a port is not named${needsRoot}`,
  async (t) => {
    const daemon = await emptyDaemon();
    await using user = await daemon.as(nobody);
    const port = await freePort();
    await writePackage(join(daemon.dir, "hidden"), port, { id: "hidden" });
    await writePackage(join(daemon.dir, "mine"), port, { id: "mine" });
    const [root, own] = [daemon.client(AppService), user.client(AppService)];
    await root.installApp({ spec: join(daemon.dir, "hidden") });
    await root.startApp({ id: "hidden" });
    await eventually(() => fetch(`http://127.0.0.1:${port}`));
    await own.installApp({ spec: join(daemon.dir, "mine"), settings: { port } });
    const { message } = await errorOf(own.startApp({ id: "mine" }));
    t.regex(
      message,
      new RegExp(`^app "mine" did not start: port ${port} is in use by root; use another one: svc `),
    );
    t.is((await own.listAppPorts({ id: "mine" })).ports[0]?.takenBy, "root");
    await root.stopApp({ id: "hidden" });
    await own.startApp({ id: "mine" });
    await eventually(() => fetch(`http://127.0.0.1:${port}`));
    const refused = await errorOf(root.startApp({ id: "hidden" }));
    t.regex(
      refused.message,
      new RegExp(`port ${port} is in use by app "mine" of \\w+; use another one: svc `),
    );
    await own.removeApp({ id: "mine" });
  },
);

test("apps that are installed and cloned concurrently get different ports", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const port = await freePort();
  await writePackage(join(daemon.dir, "package"), port);
  await writePackage(join(daemon.dir, "other"), port, { id: "other" });
  const spec = join(daemon.dir, "package");
  const first = await apps.installApp({ spec });
  const [clone, again, auto, chosen] = await Promise.all([
    apps.cloneApp({ id: "web" }),
    apps.installApp({ spec }),
    apps.installApp({ spec: join(daemon.dir, "other") }),
    apps.installApp({ spec, settings: { port: 4 } }),
  ]);
  const portOf = ({ ports }: { ports: { port: number }[] }): number => ports[0]?.port ?? 0;
  t.is(portOf(first), port);
  t.is(portOf(chosen), 4);
  t.is(new Set([first, clone, again, auto, chosen].map(portOf)).size, 5);
  for (const { id } of [clone, again, auto]) {
    t.is((await apps.startApp({ id })).state, "RUNNING");
    const now = portOf(await apps.getApp({ id }));
    await eventually(async () => assert.equal((await fetch(`http://127.0.0.1:${now}`)).status, 200));
  }
});

test("the first app of a package gets a free port if a process uses the default, and says so", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const port = await freePort();
  await writePackage(join(daemon.dir, "package"), port);
  const foreign = createServer().listen(port, "127.0.0.1").unref();
  await once(foreign, "listening");
  const notes: string[] = [];
  let installed: App | undefined;
  for await (const { event } of apps.installAppStream({ spec: join(daemon.dir, "package") })) {
    if (event.case === "app") installed = event.value;
    else if (event.case === "progress" && event.value.step === "ports") notes.push(event.value.message);
  }
  const chosen = installed?.ports[0]?.port;
  t.not(chosen, port);
  t.deepEqual(notes, [
    `port "http" is ${chosen}, because ${port} is in use by process ${process.pid} (node)`,
  ]);
  t.is((await apps.startApp({ id: "web" })).state, "RUNNING");
  foreign.close();
});

(isRoot ? test : test.skip)(
  `a stopped app of another user keeps its port, and a new app is not told whose it is${needsRoot}`,
  async (t) => {
    const daemon = await emptyDaemon();
    await using user = await daemon.as(nobody);
    const port = await freePort();
    await writePackage(join(daemon.dir, "hidden"), port, { id: "hidden" });
    await writePackage(join(daemon.dir, "mine"), port, { id: "mine" });
    await daemon.client(AppService).installApp({ spec: join(daemon.dir, "hidden") });
    const notes: string[] = [];
    for await (const { event } of user
      .client(AppService)
      .installAppStream({ spec: join(daemon.dir, "mine") })) {
      if (event.case === "progress" && event.value.step === "ports") notes.push(event.value.message);
    }
    t.is(notes.length, 1);
    t.regex(notes.join(), new RegExp(`^port "http" is \\d+, because ${port} is in use by another app$`));
  },
);

test("a port that the user chooses stays, and a note says that it is in use", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const port = await freePort();
  await writePackage(join(daemon.dir, "package"), port);
  await apps.installApp({ spec: join(daemon.dir, "package") });
  const notes: string[] = [];
  for await (const { event } of apps.installAppStream({
    spec: join(daemon.dir, "package"),
    settings: { port },
  })) {
    if (event.case === "app") t.is(event.value.ports[0]?.port, port);
    else if (event.case === "progress" && event.value.step === "ports") notes.push(event.value.message);
  }
  t.deepEqual(notes, [`port ${port} ("http") is in use by app "web", so the app cannot start`]);
});

test("a change of settings to a port that something else uses returns the same note", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const [port, other] = [await freePort(), await freePort()];
  await writePackage(join(daemon.dir, "package"), port);
  await apps.installApp({ spec: join(daemon.dir, "package") });
  await apps.installApp({ spec: join(daemon.dir, "package"), settings: { port: other } });
  await apps.startApp({ id: "web-2" });
  const notesAt = async (number: number): Promise<readonly string[]> =>
    (await apps.updateAppSettings({ id: "web-2", values: { port: number } })).notes;
  t.deepEqual(await notesAt(port), [`port ${port} ("http") is in use by app "web", so the app cannot start`]);
  t.deepEqual(await notesAt(other), []);
  t.deepEqual(await notesAt(await freePort()), []);
});

test("two daemons give the apps of one package different ports while both are stopped", async (t) => {
  const daemon = await emptyDaemon();
  await using other = await startDaemon();
  const port = await freePort();
  const spec = join(daemon.dir, "package");
  await writePackage(spec, port);
  const [first, second] = await Promise.all(
    [daemon, other].map((each) => each.client(AppService).installApp({ spec })),
  );
  t.not(first?.ports[0]?.port, second?.ports[0]?.port);
});

test("while an app runs, its ports are those that it was started with", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const [port, next] = [await freePort(), await freePort()];
  await writePackage(join(daemon.dir, "package"), port);
  await apps.installApp({ spec: join(daemon.dir, "package") });
  await apps.startApp({ id: "web" });
  await apps.updateAppSettings({ id: "web", values: { port: next } });
  const shown = async (): Promise<unknown[]> => {
    const listed = (await apps.listAppPorts({ id: "web" })).ports[0]?.port;
    const reported = (await apps.getPortReport({})).apps[0]?.ports[0]?.port;
    return [listed, reported, (await apps.getApp({ id: "web" })).ports[0]?.port];
  };
  t.deepEqual(await shown(), [port, port, port]);
  t.true((await apps.getApp({ id: "web" })).restartRequired);
  await apps.restartApp({ id: "web" });
  t.deepEqual(await shown(), [next, next, next]);
  await apps.removeApp({ id: "web" });
});

for (const host of ["127.0.0.2", "::1", "0.0.0.0"]) {
  test(`an app that listens at ${host} is healthy, and its port is listed with that address`, async (t) => {
    const daemon = await emptyDaemon();
    const apps = daemon.client(AppService);
    const port = await freePort();
    const dir = join(daemon.dir, "package");
    const server = `import { createServer } from "node:http";
createServer((request, response) => response.end("ok")).listen(Number(process.env.PORT), process.env.LISTEN);`;
    await writePackage(dir, port, {
      settings: "listen: { type: string, default: 127.0.0.1, env: LISTEN }",
      manifest: "health: { http: { port: http }, start_period: 30s }",
      files: { "server.mjs": server },
    });
    await apps.installApp({ spec: dir, settings: { listen: host } });
    await apps.startApp({ id: "web" });
    await eventually(async () => t.like(await apps.getApp({ id: "web" }), { health: "healthy" }));
    t.deepEqual((await apps.listAppPorts({ id: "web" })).ports[0]?.addresses, [host]);
    await apps.removeApp({ id: "web" });
  });
}

test("an app that could not start with the daemon because of its port starts by itself once the port is free", async (t) => {
  t.timeout(180_000);
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const port = await freePort();
  await writePackage(join(daemon.dir, "package"), port);
  await apps.installApp({ spec: join(daemon.dir, "package") });
  await apps.startApp({ id: "web" });
  await daemon.kill();
  const { supervisor } = JSON.parse(
    await readFile(join(daemon.storeDir, "run", "web", "state.json"), "utf8"),
  ) as { supervisor: { pid: number } };
  for (const pid of [supervisor.pid, ...processesIn(daemon.storeDir)]) signal(pid, "SIGKILL");
  const foreign = createServer().unref();
  await eventually(() => once(foreign.listen(port, "127.0.0.1"), "listening"), deadlineMs);
  await daemon.restart();

  const reason = `port ${port} is in use by process ${process.pid} (node); use another one: svc `;
  const waiting = async (): Promise<void> => {
    const { state, stateReason, enabled, nextRestartAt } = await apps.getApp({ id: "web" });
    assert.deepEqual({ state, enabled }, { state: "FAILED", enabled: true });
    assert.ok(stateReason.startsWith(reason), stateReason);
    assert.ok(nextRestartAt);
    const [listed] = (await apps.listApps({})).apps;
    assert.deepEqual(listed?.nextRestartAt, nextRestartAt);
  };
  await eventually(waiting, deadlineMs);

  // A start by a user is not retried automatically.
  await eventually(async () => {
    const refused = await errorOf(apps.startApp({ id: "web" }));
    assert.equal(refused.reason, "start_failed");
  }, deadlineMs);
  t.like(await apps.getApp({ id: "web" }), { state: "FAILED", nextRestartAt: undefined });
  t.is((await apps.listApps({})).apps[0]?.nextRestartAt, undefined);

  await daemon.stop();
  await daemon.restart();
  await eventually(waiting, deadlineMs);
  foreign.close();
  await eventually(async () => {
    assert.equal((await fetch(`http://127.0.0.1:${port}`)).status, 200);
    const { state, nextRestartAt } = await apps.getApp({ id: "web" });
    assert.deepEqual([state, nextRestartAt], ["RUNNING", undefined]);
  }, deadlineMs);
  await apps.removeApp({ id: "web" });
});
