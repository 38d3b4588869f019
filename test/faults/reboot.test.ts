/** After a reboot of the host, apps that were running start again, and stopped ones stay stopped (decisions 15). */
import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { startDaemon } from "../support/daemon.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";

test("apps that ran when the host went down start again", async (t) => {
  await using daemon = await startDaemon();
  const apps = daemon.client(AppService);
  const port = await freePort();
  await writePackage(join(daemon.dir, "package"), port);
  await apps.installApp({ spec: join(daemon.dir, "package") });
  await apps.cloneApp({ id: "web" });
  await apps.startApp({ id: "web" });
  await daemon.kill();

  // A reboot as the next daemon finds it: nothing runs, and the last word is from another boot.
  const stateFile = join(daemon.storeDir, "run", "web", "state.json");
  const state = JSON.parse(await readFile(stateFile, "utf8")) as {
    bootId: string;
    supervisor: { pid: number };
    app: { pid: number };
  };
  for (const pid of [state.supervisor.pid, state.app.pid]) process.kill(pid, "SIGKILL");
  await writeFile(stateFile, JSON.stringify({ ...state, bootId: "11111111-2222-3333-4444-555555555555" }));
  await daemon.restart();

  const web = await eventually(async () => {
    const app = await apps.getApp({ id: "web" });
    assert.equal(app.state, "RUNNING");
    return app;
  });
  t.true(web.enabled);
  t.is((await eventually(() => fetch(`http://127.0.0.1:${port}`))).status, 200);
  t.is((await apps.getApp({ id: "web-2" })).state, "STOPPED");
  await apps.removeApp({ id: "web" });
});

test("an app that crashed while no daemon ran shows how it ended", async (t) => {
  await using daemon = await startDaemon();
  const apps = daemon.client(AppService);
  const port = await freePort();
  await writePackage(join(daemon.dir, "package"), port, { manifest: "restart: { policy: never }\n" });
  await apps.installApp({ spec: join(daemon.dir, "package") });
  await apps.startApp({ id: "web" });
  await eventually(() => fetch(`http://127.0.0.1:${port}`));
  await daemon.kill();
  await fetch(`http://127.0.0.1:${port}/exit`).catch(() => undefined);
  await daemon.restart();
  const app = await eventually(async () => {
    const found = await apps.getApp({ id: "web" });
    assert.notEqual(found.state, "RUNNING");
    return found;
  });
  t.is(app.exitCode, 3);
  t.true(["CRASHED", "STOPPED", "FAILED"].includes(app.state), app.state);
  const logs = await apps.getAppLogs({ id: "web" });
  t.true(logs.lines.some(({ text }) => text.startsWith("listening on")));
  await apps.removeApp({ id: "web" });
});
