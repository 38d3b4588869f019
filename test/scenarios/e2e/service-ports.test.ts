/** Owners of ports and processes for packages with systemd units, on a real systemd. */
import assert from "node:assert/strict";
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { MonitorService } from "../../../gen/svc/v1/monitor_pb.ts";
import { ProcessService } from "../../../gen/svc/v1/process_pb.ts";
import { eventually } from "../../support/eventually.ts";
import { SystemdMachine, whyNoSystemd } from "../../support/systemd.ts";
import { writeFiles } from "../../support/packages.ts";

const deadlineMs = 90_000;
const reason = whyNoSystemd === undefined ? "" : ` (skipped: ${whyNoSystemd})`;
const [ownerUid, otherUid] = [1, 2];
const port = 18_080;

/** Listens in a child process while a file in its data directory asks for it. */
const server = `
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { createServer } from "node:net";
if (process.argv[2] === "child") {
  createServer((socket) => socket.on("error", () => {}).end()).listen(Number(process.env.PORT), "127.0.0.1");
} else {
  const listens = process.env.SVC_DATA_DIR + "/listens";
  const timer = setInterval(() => {
    if (!existsSync(listens)) return;
    clearInterval(timer);
    spawn(process.execPath, [process.argv[1], "child"], { stdio: "inherit" });
  }, 50);
}
`;
const manifest = `id: web
name: A service with a port
version: "1.0.0"
service: { exec: [node, server.mjs] }
settings:
  properties:
    port: { type: integer, default: ${port}, env: PORT }
ports:
  - { name: main, setting: port }
health:
  tcp: { port: main }
  interval: 1s
  start_period: 10m
`;
const foreign = `require("net").createServer((socket) => socket.on("error", () => {}).end()).listen(${port}, "127.0.0.1", () => console.log("up"))`;

(whyNoSystemd === undefined ? test : test.skip)(
  `a service's port and processes belong to its app, and an external listener does not pass its health check${reason}`,
  async (t) => {
    t.timeout(5 * 60_000);
    await using machine = await SystemdMachine.withSvc();
    const dir = join(machine.dir, "etc", "web");
    await writeFiles(dir, { "svc.yaml": manifest, "server.mjs": server });
    await machine.boot();
    await eventually(() => machine.client(AppService).listApps({}), deadlineMs);
    await using owner = await machine.asUser(ownerUid);
    await using other = await machine.asUser(otherUid);
    const apps = owner.client(AppService);
    await apps.installApp({ spec: "/etc/svc/web" });
    await apps.startApp({ id: "web" });

    // An external process listens on its port.
    const unit = `--unit=stranger --property=StandardOutput=journal`;
    await machine.run("systemd-run", "--quiet", ...unit.split(" "), process.execPath, "-e", foreign);
    await eventually(async () => {
      const { state, health, healthReason } = await apps.getApp({ id: "web" });
      assert.deepEqual([state, health], ["RUNNING", "starting"]);
      assert.match(healthReason ?? "", new RegExp(`^port ${port} is in use by process \\d+ \\(.+\\)$`));
    }, deadlineMs);
    const holder = async (client = machine.client(MonitorService)) =>
      (await client.listListeningPorts({})).ports.find((each) => each.port === port);
    const stranger = await holder();
    t.is(stranger?.appId, undefined);
    t.not(stranger?.pid, undefined);
    await machine.systemctl("stop", "stranger.service");

    // A child of its main process listens.
    await machine.run("touch", "/var/lib/svc/apps/web/data/listens");
    await eventually(async () => {
      const { state, stateReason, health, healthReason } = await apps.getApp({ id: "web" });
      assert.deepEqual(
        { state, stateReason, health, healthReason },
        { state: "RUNNING", stateReason: "", health: "healthy", healthReason: undefined },
      );
    }, deadlineMs);
    const own = await holder();
    t.is(own?.appId, "web");
    t.like(await holder(owner.client(MonitorService)), { appId: "web", pid: own?.pid });
    t.like(await holder(other.client(MonitorService)), { appId: undefined, pid: undefined });

    // A unit of the same name in a user's own part of the tree does not belong to the app.
    const look = "/sys/fs/cgroup/user.slice/app.slice/svc-web.service";
    const pidInLook = Number(
      await machine.run(
        "sh",
        "-c",
        `mkdir -p ${look} && { sleep 600 >/dev/null 2>&1 & } && echo $! > ${look}/cgroup.procs && echo $!`,
      ),
    );
    const { processes } = await machine.client(ProcessService).listProcesses({});
    const found = processes.filter(({ appId }) => appId === "web");
    t.is(found.length, 2, "the main process and the child");
    t.true(found.some(({ pid }) => pid === own?.pid));
    t.true(processes.some(({ pid, appId }) => pid === pidInLook && appId === undefined));
    const seen = await other.client(ProcessService).listProcesses({});
    t.true(seen.processes.every(({ appId }) => appId === undefined));

    await apps.stopApp({ id: "web" });
    t.is(await holder(), undefined);
    await apps.removeApp({ id: "web" });
  },
);
