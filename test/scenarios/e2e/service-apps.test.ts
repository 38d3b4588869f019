/** Packages with systemd units on a real systemd, and the owners of their ports and processes. */
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { chmod, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { DaemonService } from "../../../gen/svc/v1/daemon_pb.ts";
import { MonitorService } from "../../../gen/svc/v1/monitor_pb.ts";
import { ProcessService } from "../../../gen/svc/v1/process_pb.ts";
import { startDaemon } from "../../support/daemon.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { writeFiles } from "../../support/packages.ts";
import { SystemdMachine, whyNoSystemd } from "../../support/systemd.ts";

// Packages with systemd units on a real systemd: installed, crashed, upgraded, cloned and removed.

const deadlineMs = 90_000;
const reason = whyNoSystemd === undefined ? "" : ` (skipped: ${whyNoSystemd})`;
const uid = 1;
const nasty = `a b"c\\d$HOME %n \${x} 'q' ü\n2`;

/** Prints its identity and permissions once; exits as a file in its data directory tells it. */
const server = `
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
const may = (path) => { try { writeFileSync(path, "x"); return true; } catch { return false; } };
const status = readFileSync("/proc/self/status", "utf8");
console.log(JSON.stringify({
  version: process.env.VERSION, uid: process.getuid(), args: process.argv.slice(2), text: process.env.TEXT,
  noNewPrivs: /NoNewPrivs:\\t1/.test(status), capabilities: /CapBnd:\\t0+\\n/.test(status),
  cwd: process.cwd() + "/", writes: [may("/usr/own"), may("/var/tmp/own"), may(process.env.SVC_DATA_DIR + "/own")],
}));
const die = process.env.SVC_DATA_DIR + "/die";
const done = process.env.SVC_DATA_DIR + "/done";
const once = process.env.SVC_DATA_DIR + "/once";
setInterval(() => { if (existsSync(once)) { rmSync(once); process.exit(4); } if (existsSync(die)) process.exit(3); if (existsSync(done)) process.exit(0); }, 50);
`;

interface PackageOptions {
  version?: string;
  service?: string;
  extra?: string;
  files?: Record<string, string>;
}

async function writeService(dir: string, id: string, options: PackageOptions = {}): Promise<void> {
  const { version = "1.0.0", extra = "", files = {} } = options;
  const service =
    options.service ??
    `{ exec: [node, server.mjs, ${JSON.stringify(nasty.replaceAll("${", () => "$${"))}], env: { VERSION: "${version}" } }`;
  await mkdir(dir, { recursive: true });
  await chmod(dir, 0o755);
  const manifest = `id: ${id}
name: A service
version: "${version}"
service: ${service}
settings:
  properties:
    text: { type: string, default: plain, env: TEXT }
restart: { delay: 200ms, max_attempts: 3 }
limits: { memory: 512MiB, cpus: 0.5 }
${extra}
`;
  for (const [name, content] of Object.entries({ "svc.yaml": manifest, "server.mjs": server, ...files }))
    await writeFile(join(dir, name), content);
}

(existsSync("/run/systemd/system") ? test.skip : test)(
  "where no systemd runs, a service is refused in a sentence and the capability is absent",
  async (t) => {
    await using daemon = await startDaemon();
    const dir = join(daemon.dir, "unit");
    await writeService(dir, "unit");
    const refusal = await errorOf(daemon.client(AppService).installApp({ spec: dir, licenseAck: true }));
    t.like(refusal, { code: "FailedPrecondition", reason: "not_possible" });
    t.regex(refusal.message, /^service packages cannot be installed here: the host does not use systemd/);
    t.deepEqual((await daemon.client(AppService).listApps({})).apps, []);
    const { capabilities } = await daemon.client(DaemonService).getStatus({});
    t.false(capabilities.includes("app.service"));
  },
);

(whyNoSystemd === undefined ? test : test.skip)(
  `a service of a regular user through its whole life, on a real systemd${reason}`,
  async (t) => {
    t.timeout(10 * 60_000);
    await using machine = await SystemdMachine.withSvc();
    const etc = (name: string): string => join(machine.dir, "etc", name);
    await writeService(etc("hello"), "hello");
    await machine.boot();
    await eventually(() => machine.client(AppService).listApps({}), deadlineMs);
    const { capabilities } = await machine.client(DaemonService).getStatus({});
    t.true(capabilities.includes("app.service"));
    const user = await machine.asUser(uid);
    const apps = user.client(AppService);

    await apps.installApp({ spec: "/etc/svc/hello", settings: { text: nasty } });
    const unit = await machine.systemctl("cat", "svc-hello.service");
    t.regex(unit, /^ProtectSystem=strict$/m);
    t.regex(unit, /^MemoryMax=536870912$/m);
    t.regex(unit, /^CPUQuota=50%$/m);
    t.notRegex(unit, /plain|ü\n2/, "no setting value is in a world-readable file");
    t.is((await apps.startApp({ id: "hello" })).state, "RUNNING");
    const said = async (id = "hello") => {
      const { lines } = await apps.getAppLogs({ id, tail: 1_000 });
      const texts = lines.filter(({ text }) => text.startsWith('{"version')).map(({ text }) => text);
      return texts.map((text) => JSON.parse(text) as Record<string, unknown>);
    };
    const [first] = await eventually(async () => {
      const all = await said();
      assert.equal(all.length, 1);
      return all;
    }, deadlineMs);
    t.like(first, {
      version: "1.0.0",
      uid,
      noNewPrivs: true,
      capabilities: true,
      args: [nasty],
      text: nasty,
    });
    t.deepEqual(first?.["writes"], [false, true, true]);
    t.false(existsSync("/var/tmp/own"), "its /var/tmp is private");
    t.log("installed and started as its owner, hardened");

    const stats = await apps.getAppStats({ ids: ["hello"] });
    // Memory and process counts only if their controllers are in the unified hierarchy.
    t.deepEqual(
      stats.stats.map(({ id, cpuPercent }) => [id, typeof cpuPercent]),
      [["hello", "number"]],
    );

    // It keeps running without the daemon, and the next daemon reattaches to it.
    const { startedAt } = await apps.getApp({ id: "hello" });
    await machine.systemctl("restart", "svc");
    await eventually(async () => {
      const { state, startedAt: now } = await apps.getApp({ id: "hello" });
      assert.deepEqual({ state, now }, { state: "RUNNING", now: startedAt });
    }, deadlineMs);
    t.log("adopted");

    // It is killed, and systemd restarts it.
    const followed: string[] = [];
    const following = new AbortController();
    const reader = (async () => {
      for await (const { lines } of apps.streamAppLogs(
        { id: "hello", tail: 0 },
        { signal: following.signal },
      ))
        followed.push(...lines.map(({ text }) => text));
    })().catch(() => undefined);
    await machine.systemctl("kill", "--signal=SIGKILL", "svc-hello.service");
    await eventually(async () => {
      const { state, restarts, exitSignal } = await apps.getApp({ id: "hello" });
      assert.deepEqual(
        { state, restarts, exitSignal },
        { state: "RUNNING", restarts: 1, exitSignal: "SIGKILL" },
      );
    }, deadlineMs);
    await eventually(() => assert.ok(followed.some((text) => text.includes('"version"'))), deadlineMs);
    following.abort();
    await reader;
    t.log("restarted by systemd, and its log followed across the restart");

    const whole = (await apps.getAppLogs({ id: "hello", tail: 1_000 })).lines.map(({ text }) => text);
    t.true(whole.length > 4);
    const newest = (await apps.getAppLogs({ id: "hello", tail: 2 })).lines.map(({ text }) => text);
    t.deepEqual(newest, whole.slice(-2), "a small number of lines returns the newest");
    for await (const { lines } of apps.streamAppLogs({ id: "hello", tail: 2 })) {
      t.deepEqual(
        lines.map(({ text }) => text),
        newest,
        "following starts with them, too",
      );
      break;
    }

    // It restarted between two polls: the journal has its exit status, also for the next daemon.
    const restartedWith = (exitCode: number) =>
      eventually(async () => {
        const { state, restarts, exitCode: code, exitSignal } = await apps.getApp({ id: "hello" });
        assert.deepEqual(
          { state, restarts, code, exitSignal },
          { state: "RUNNING", restarts: 2, code: exitCode, exitSignal: undefined },
        );
      }, deadlineMs);
    await machine.run("touch", "/var/lib/svc/apps/hello/data/once");
    await restartedWith(4);
    await machine.systemctl("restart", "svc");
    await restartedWith(4);
    t.log("exit codes of units restarted by systemd");

    // Somebody stops it outside of svc: its desired state is running.
    await machine.systemctl("stop", "svc-hello.service");
    await eventually(async () => {
      const shown = await machine.systemctl("show", "--property=ActiveState", "--value", "svc-hello.service");
      assert.equal(shown.trim(), "active");
    }, deadlineMs);
    await eventually(
      async () => assert.equal((await apps.getApp({ id: "hello" })).state, "RUNNING"),
      deadlineMs,
    );

    // It exits until systemd gives up.
    await machine.run("touch", "/var/lib/svc/apps/hello/data/die");
    await eventually(async () => {
      const { state, exitCode, stateReason } = await apps.getApp({ id: "hello" });
      assert.equal(state, "CRASHED");
      assert.equal(exitCode, 3);
      assert.match(stateReason, /restarted \d+ times/);
    }, deadlineMs);
    await apps.stopApp({ id: "hello" });
    await machine.run("rm", "/var/lib/svc/apps/hello/data/die");
    t.log("crashed");

    // It exits as intended, and only its owner starts it again: svc polls it every two seconds.
    await apps.startApp({ id: "hello" });
    const invocation = () =>
      machine.systemctl("show", "--property=InvocationID", "--value", "svc-hello.service");
    const begun = await invocation();
    await machine.run("touch", "/var/lib/svc/apps/hello/data/done");
    const isOver = () =>
      eventually(async () => {
        const { state, exitCode, stateReason } = await apps.getApp({ id: "hello" });
        const reason = "the restart policy is on-failure";
        assert.deepEqual(
          { state, exitCode, stateReason },
          { state: "STOPPED", exitCode: 0, stateReason: reason },
        );
      }, deadlineMs);
    await isOver();
    await wait(7_000);
    await isOver();
    t.is(await invocation(), begun);
    await machine.run("rm", "/var/lib/svc/apps/hello/data/done");
    t.is((await apps.startApp({ id: "hello" })).state, "RUNNING");
    await apps.stopApp({ id: "hello" });
    t.log("exited by itself");

    // An upgrade that fails to start is rolled back; one that starts is kept.
    await apps.startApp({ id: "hello" });
    await apps.stopApp({ id: "hello" });
    await writeService(etc("hello"), "hello", { version: "2.0.0", service: "{ exec: [node, missing.mjs] }" });
    t.like(await errorOf(apps.upgradeApp({ id: "hello" })), { reason: "start_failed" });
    t.is((await apps.getApp({ id: "hello" })).version, "1.0.0");
    t.regex(await machine.systemctl("cat", "svc-hello.service"), /server\.mjs/);
    await writeService(etc("hello"), "hello", { version: "3.0.0" });
    t.is((await apps.upgradeApp({ id: "hello" })).to, "3.0.0");
    await apps.startApp({ id: "hello" });
    await eventually(async () => assert.equal((await said()).at(-1)?.["version"], "3.0.0"), deadlineMs);
    t.log("upgraded, after a rollback");

    // A clone has its own unit.
    const { id: cloned } = await apps.cloneApp({ id: "hello" });
    await apps.startApp({ id: cloned });
    await eventually(async () => assert.equal((await said(cloned)).at(-1)?.["uid"], uid), deadlineMs);
    t.regex((await said(cloned)).at(-1)?.["cwd"] as string, new RegExp(`/${cloned}/`));
    await apps.removeApp({ id: cloned });

    // After a reboot svc starts apps whose desired state is running.
    await user[Symbol.asyncDispose]();
    await machine.powerOff();
    await machine.boot();
    const root = machine.client(AppService);
    await eventually(
      async () => assert.equal((await root.getApp({ id: "hello" })).state, "RUNNING"),
      deadlineMs,
    );
    t.log("runs again after a reboot");
    await root.removeApp({ id: "hello" });
    t.is(await machine.systemctl("list-units", "--all", "--plain", "--no-legend", "svc-*.service"), "");
    t.is(await machine.run("sh", "-c", "ls /run/systemd/system /var/lib/svc/units | grep svc- || true"), "");
  },
);

(whyNoSystemd === undefined ? test : test.skip)(
  `what a unit of a package may say goes by its owner${reason}`,
  async (t) => {
    t.timeout(5 * 60_000);
    await using machine = await SystemdMachine.withSvc();
    const etc = (name: string): string => join(machine.dir, "etc", name);
    const unit = (lines: string): string => `[Service]\nExecStart=./run.sh\n${lines}`;
    const script = "#!/bin/sh\nid -u\nexec sleep 600\n";
    for (const [id, lines, extra] of [
      ["plain", "PrivateDevices=yes\n", ""],
      ["grabs", "User=root\n", ""],
      ["starts", "ExecStartPre=+/bin/touch /pwned\n", ""],
      ["asks", "AmbientCapabilities=CAP_NET_ADMIN\nUser=2\n", "permissions: [privileged]"],
    ] as const) {
      await writeService(etc(id), id, {
        service: "{ unit: own.service, build: [{ exec: [chmod, +x, run.sh] }] }",
        extra,
        files: { "own.service": unit(lines), "run.sh": script },
      });
    }
    await machine.boot();
    await eventually(() => machine.client(AppService).listApps({}), deadlineMs);
    await using user = await machine.asUser(uid);
    const [own, root] = [user.client(AppService), machine.client(AppService)];

    await own.installApp({ spec: "/etc/svc/plain" });
    await own.startApp({ id: "plain" });
    await eventually(async () => {
      const { lines } = await own.getAppLogs({ id: "plain", tail: 10 });
      assert.ok(lines.some(({ text, stream }) => stream === "stdout" && text === String(uid)));
    }, deadlineMs);
    for (const id of ["grabs", "starts", "asks"]) {
      const refusal = await errorOf(own.installApp({ spec: `/etc/svc/${id}`, licenseAck: true }));
      t.like(refusal, { code: "PermissionDenied", reason: "denied" }, id);
      t.regex(refusal.message, /^own\.service, line 3: \w+= is not allowed: /, id);
    }
    t.deepEqual(
      (await own.listApps({})).apps.map(({ id }) => id),
      ["plain"],
    );
    t.is(
      await machine.run("sh", "-c", "ls -d /pwned /run/systemd/system/svc-grabs* 2>/dev/null || true"),
      "",
    );

    // Root's package with the acknowledged permission gets its unit unchanged.
    t.like(await errorOf(root.installApp({ spec: "/etc/svc/grabs" })), { reason: "denied" });
    t.like(await errorOf(root.installApp({ spec: "/etc/svc/asks" })), { reason: "license_required" });
    await root.installApp({ spec: "/etc/svc/asks", permissionsAck: true });
    const text = await machine.systemctl("cat", "svc-asks.service");
    t.regex(text, /^AmbientCapabilities=CAP_NET_ADMIN$/m);
    t.notRegex(text, /ProtectSystem/);
    // An unmanaged unit of that name is not touched.
    await machine.run(
      "sh",
      "-c",
      "printf '[Service]\\nExecStart=/bin/true\\n' > /run/systemd/system/svc-plain-2.service",
    );
    t.like(await errorOf(own.cloneApp({ id: "plain" })), { reason: "already_exists" });
    t.regex(await machine.run("cat", "/run/systemd/system/svc-plain-2.service"), /bin\/true/);
  },
);

// Owners of ports and processes for packages with systemd units, on a real systemd.

const [ownerUid, otherUid] = [1, 2];
const port = 18_080;

/** Listens in a child process while a file in its data directory asks for it. */
const portServer = `
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
    await writeFiles(dir, { "svc.yaml": manifest, "server.mjs": portServer });
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
