/** Whose port: a taken one is refused before the start and says by whom, and copies get free ones (decisions 36, threat 62). */
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import { isRoot, needsRoot } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { processesIn, signal } from "../support/processes.ts";

const emptyDaemon = sharedDaemon();

const nobody = 65534;
/** Tries are seconds apart, and other tests keep the processors busy. */
const deadlineMs = 60_000;

test("a start refuses a port that another app or another process has, and says whose it is", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const port = await freePort();
  await writePackage(join(daemon.dir, "package"), port);
  await apps.installApp({ spec: join(daemon.dir, "package") });
  await apps.installApp({ spec: join(daemon.dir, "package"), settings: { port } });
  await apps.startApp({ id: "web" });
  await eventually(() => fetch(`http://127.0.0.1:${port}`));

  const refused = await errorOf(apps.startApp({ id: "web-2" }));
  const reason = `port ${port} is taken by web`;
  t.like(refused, { code: "FailedPrecondition", reason: "start_failed" });
  t.is(refused.message, `app "web-2" did not start: ${reason}`);
  t.like(await apps.getApp({ id: "web-2" }), { state: "FAILED", stateReason: reason, enabled: true });
  const report = (await apps.getPortReport({})).apps.map(({ id, ports }) => [id, ports[0]?.takenBy]);
  t.deepEqual(report, [
    ["web", undefined],
    ["web-2", "web"],
  ]);

  await apps.stopApp({ id: "web" });
  const foreign = createServer().listen(port, "127.0.0.1");
  foreign.unref();
  await once(foreign, "listening");
  const { message } = await errorOf(apps.startApp({ id: "web" }));
  t.is(message, `app "web" did not start: port ${port} is taken by process ${process.pid} (node)`);
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
    const message = /^values\.port must be at least \d+: ports below it are for root's own apps$/;
    t.regex((await errorOf(apps.installApp({ spec: low }))).message, message);
    t.deepEqual((await apps.listApps({})).apps, [], "nothing is left of it");
    t.is((await apps.installApp({ spec: low, settings: { port: await freePort() } })).id, "low");
    await apps.installApp({ spec: high });
    const before = await apps.getAppSettings({ id: "high" });
    const refused = await errorOf(apps.updateAppSettings({ id: "high", values: { port: 443 } }));
    t.like(refused, { code: "InvalidArgument", reason: "invalid_request" });
    t.regex(refused.message, message);
    t.deepEqual((await apps.getAppSettings({ id: "high" })).values, before.values);
    t.like((await roots.installApp({ spec: low })).ports, [{ port: 80 }], "root's may have it");
  },
);

(isRoot ? test : test.skip)(`what another user has is not named${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  await using user = await daemon.as(nobody);
  const port = await freePort();
  await writePackage(join(daemon.dir, "hidden"), port, { id: "hidden" });
  await writePackage(join(daemon.dir, "mine"), port, { id: "mine" });
  const [root, own] = [daemon.client(AppService), user.client(AppService)];
  await root.installApp({ spec: join(daemon.dir, "hidden") });
  await root.startApp({ id: "hidden" });
  await eventually(() => fetch(`http://127.0.0.1:${port}`));
  await own.installApp({ spec: join(daemon.dir, "mine") });
  const { message } = await errorOf(own.startApp({ id: "mine" }));
  t.is(message, `app "mine" did not start: port ${port} is taken by a process of root`);
  t.is((await own.listAppPorts({ id: "mine" })).ports[0]?.takenBy, "a process of root");
  await root.stopApp({ id: "hidden" });
  await own.startApp({ id: "mine" });
  await eventually(() => fetch(`http://127.0.0.1:${port}`));
  const refused = await errorOf(root.startApp({ id: "hidden" }));
  t.regex(refused.message, new RegExp(`port ${port} is taken by mine \\(of \\w+\\)$`));
  await own.removeApp({ id: "mine" });
});

test("a clone, a further install and one with port_auto get free ports at once", async (t) => {
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
    apps.installApp({ spec: join(daemon.dir, "other"), portAuto: true }),
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

test("what could not be started with the daemon, as its port was taken, comes up by itself once that is free", async (t) => {
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

  const reason = `port ${port} is taken by process ${process.pid} (node)`;
  const waiting = async (): Promise<void> => {
    const { state, stateReason, enabled, nextRestartAt } = await apps.getApp({ id: "web" });
    assert.deepEqual(
      { state, stateReason, enabled },
      { state: "FAILED", stateReason: reason, enabled: true },
    );
    assert.ok(nextRestartAt);
    const [listed] = (await apps.listApps({})).apps;
    assert.deepEqual(listed?.nextRestartAt, nextRestartAt);
  };
  await eventually(waiting, deadlineMs);

  // What a person tries is that person's to try again.
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
