/** With the shipped unit on a real systemd: apps keep running without the daemon, and run again after a reboot. */
import assert from "node:assert/strict";
import { readFile, writeFile, lstat } from "node:fs/promises";
import { connect } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import { ask, askWhile } from "../support/ask-often.ts";
import { eventually } from "../support/eventually.ts";
import { writePackage } from "../support/packages.ts";
import { someController, SystemdMachine, whyNoSystemd } from "../support/systemd.ts";

const deadlineMs = 60_000;
const reason = whyNoSystemd === undefined ? "" : ` (skipped: ${whyNoSystemd})`;

const polite = `
import { createServer } from "node:http";
process.on("SIGTERM", () => process.exit(0));
createServer((request, response) => response.end("here")).listen(Number(process.env.PORT), "127.0.0.1");
`;

/** Stops the daemon with systemctl and waits for the next one, while the app `kept` keeps running. */
async function expectOutlived(machine: SystemdMachine, args: readonly string[]): Promise<void> {
  const { startedAt } = await machine.client(AppService).getApp({ id: "kept" });
  const before = await machine.systemctl("show", "--property=MainPID", "svc");
  await machine.systemctl(...args, "svc");
  await eventually(async () => {
    assert.notEqual(await machine.systemctl("show", "--property=MainPID", "svc"), before);
    const { state, startedAt: now } = await machine.client(AppService).getApp({ id: "kept" });
    assert.deepEqual({ state, now }, { state: "RUNNING", now: startedAt });
  }, deadlineMs);
}

(whyNoSystemd === undefined ? test : test.skip)(
  `two boots under a real systemd, with restarts and a crash of the daemon${reason}`,
  async (t) => {
    t.timeout(10 * 60_000);
    await using machine = await SystemdMachine.withSvc();
    for (const id of ["kept", "idle"]) {
      await writePackage(join(machine.dir, "etc", id), id === "kept" ? 8080 : 8081, {
        id,
        files: { "server.mjs": polite },
      });
    }

    await machine.boot();
    const apps = machine.client(AppService);
    await eventually(() => apps.listApps({}), deadlineMs);
    for (const id of ["kept", "idle"]) {
      await apps.installApp({ spec: `/etc/svc/${id}` });
      await apps.startApp({ id });
    }
    await apps.stopApp({ id: "idle" });

    // Neither a restart of the unit nor a killed daemon affects running apps.
    for (const args of [["restart"], ["kill", "--signal=SIGKILL", "--kill-who=main"]]) {
      await expectOutlived(machine, args);
      t.log(`it keeps running after systemctl ${args.join(" ")}`);
    }

    for (const boot of [2, 3]) {
      await machine.powerOff();
      await machine.boot();
      await eventually(async () => {
        const { apps: listed } = await machine.client(AppService).listApps({});
        assert.deepEqual(
          listed.map(({ id, state, enabled }) => [id, state, enabled]),
          [
            ["idle", "STOPPED", false],
            ["kept", "RUNNING", true],
          ],
        );
      }, deadlineMs);
      t.log(`boot ${boot}: desired state`);
    }
    t.pass();
  },
);

const whyNone =
  whyNoSystemd ?? (someController === undefined ? "needs a controller of cgroup v2" : undefined);
(whyNone === undefined ? test : test.skip)(
  `a daemon follows another though the cgroups of apps were handed controllers${whyNone === undefined ? "" : ` (skipped: ${whyNone})`}`,
  async (t) => {
    t.timeout(5 * 60_000);
    await using machine = await SystemdMachine.withSvc();
    await writePackage(join(machine.dir, "etc", "kept"), 8080, {
      id: "kept",
      files: { "server.mjs": polite },
    });
    await machine.boot();
    const apps = machine.client(AppService);
    await eventually(() => apps.listApps({}), deadlineMs);
    await apps.installApp({ spec: "/etc/svc/kept" });
    await apps.startApp({ id: "kept" });
    for (const args of [["restart"], ["kill", "--signal=SIGKILL", "--kill-who=main"], ["restart"]]) {
      // The daemon's settings on hosts with the memory and CPU controllers of version 2.
      await machine.delegateTo("system.slice/svc.service/apps/kept");
      await expectOutlived(machine, args);
    }
    t.pass();
  },
);

(whyNoSystemd === undefined ? test : test.skip)(
  `a wrong configuration is not tried again, and the journal knows what is an error${reason}`,
  async (t) => {
    t.timeout(5 * 60_000);
    await using machine = await SystemdMachine.withSvc();
    const file = join(machine.dir, "etc", "svc.toml");
    const right = await readFile(file, "utf8");
    await writeFile(file, `${right}\n[nothing]\n`);
    await machine.boot();
    const properties = ["ActiveState", "SubState", "NRestarts", "ExecMainStatus"];
    const state = async (): Promise<string[]> =>
      (await machine.systemctl("show", "svc", ...properties.map((name) => `--property=${name}`)))
        .split("\n")
        .sort();
    await eventually(async () => {
      assert.deepEqual(await state(), [
        "",
        "ActiveState=failed",
        "ExecMainStatus=78",
        "NRestarts=0",
        "SubState=failed",
      ]);
    }, deadlineMs);
    const journal = (priority: string): Promise<string> =>
      machine.run("journalctl", `--priority=${priority}`, "--output=cat", "_SYSTEMD_UNIT=svc.service");
    t.regex(await journal("err"), /^svc: \S+svc\.toml: .*nothing.*\n$/);

    // A client waiting at the socket starts it again, which must not be so often that systemd fails the socket.
    const waiting = connect(machine.path("/run/svc/svc.sock"));
    t.teardown(() => waiting.destroy());
    await sleep(4_000);
    t.is(await machine.systemctl("is-active", "svc.socket"), "active\n");
    t.is((await journal("err")).split("\n").length, 3);
    waiting.destroy();

    // After a repair it starts; a recoverable setting is only a warning.
    await writeFile(file, `${right}\n[api]\nlisten = "0.0.0.0:8420"\n`);
    await machine.systemctl("reset-failed", "svc");
    await machine.systemctl("start", "svc");
    await eventually(() => machine.client(AppService).listApps({}), deadlineMs);
    await eventually(async () => {
      assert.match(await journal("info"), /^\{"level":30,.*svc is ready/m);
    }, deadlineMs);
    const warnings = await journal("warning..warning");
    t.regex(warnings, /^\{"level":40,/);
    t.notRegex(warnings, /svc is ready/);
  },
);

(whyNoSystemd === undefined ? test : test.skip)(
  `systemd holds the TCP port between two daemons: no other user gets it, and connections wait${reason}`,
  async (t) => {
    t.timeout(5 * 60_000);
    await using machine = await SystemdMachine.withSvc();
    await machine.boot();
    const daemon = machine.client(DaemonService);
    const tcpState = async (): Promise<string | undefined> =>
      (await daemon.getStatus({})).listeners.find(({ kind }) => kind === "tcp")?.state;
    await eventually(async () => assert.equal(await tcpState(), "LISTENING"), deadlineMs);
    const asUser = (program: string): Promise<string> =>
      machine.run(
        ...["setpriv", "--reuid=4001", "--regid=4001", "--clear-groups", "--"],
        ...[process.execPath, "--input-type=module", "-e", program],
      );
    const squat = (host: string) => `import { createServer } from "node:net";
      createServer().once("error", ({ code }) => console.log(code))
        .listen(8420, "${host}", function () { console.log("taken"); this.close(); });`;
    const ask = `import { get } from "node:http";
      get("http://127.0.0.1:8420/healthz", (response) => console.log(response.statusCode));`;

    // Held only by systemd: the daemon is down as long as its unit is masked.
    await machine.systemctl("mask", "--runtime", "--now", "svc");
    t.is(await machine.systemctl("is-active", "svc-tcp.socket"), "active\n");
    for (const host of ["127.0.0.1", "::1"]) t.is(await asUser(squat(host)), "EADDRINUSE\n", host);
    const waiting = asUser(ask);
    await sleep(1_000);
    await machine.systemctl("unmask", "--runtime", "svc");
    await machine.systemctl("start", "svc");
    t.is(await waiting, "200\n");
    await eventually(async () => assert.equal(await tcpState(), "LISTENING"), deadlineMs);

    // Another port in the configuration: the daemon serves it, and reports the one that systemd still holds.
    const file = join(machine.dir, "etc", "svc.toml");
    await writeFile(file, `${await readFile(file, "utf8")}\n[api]\nlisten = "127.0.0.1:9000"\n`);
    await machine.systemctl("restart", "svc");
    await eventually(async () => {
      const { listeners } = await daemon.getStatus({});
      assert.deepEqual(
        listeners.filter(({ kind }) => kind === "tcp").map(({ address, state }) => [address, state]),
        [
          ["127.0.0.1:9000", "LISTENING"],
          ["127.0.0.1:8420", "UNUSED"],
          ["[::1]:8420", "UNUSED"],
        ],
      );
    }, deadlineMs);
  },
);

// With the shipped units on a real systemd: no connection is refused while one daemon replaces another.

(whyNoSystemd === undefined ? test : test.skip)(
  `who asks every 10 ms is answered while the daemon is restarted, killed and started by a client${reason}`,
  async (t) => {
    t.timeout(10 * 60_000);
    await using machine = await SystemdMachine.withSvc();
    await writePackage(join(machine.dir, "etc", "kept"), 8080, { id: "kept" });
    await machine.boot();
    const apps = machine.client(AppService);
    await eventually(() => apps.listApps({}), deadlineMs);
    await apps.installApp({ spec: "/etc/svc/kept" });
    await apps.startApp({ id: "kept" });
    const before = await apps.getApp({ id: "kept" });

    const socketPath = machine.path("/run/svc/svc.sock");
    t.is((await lstat(socketPath)).mode & 0o777, 0o666);
    const { ino } = await lstat(socketPath);
    const property = async (name: string): Promise<string> =>
      (await machine.systemctl("show", "--value", `--property=${name}`, "svc")).trim();

    const answers = await askWhile(socketPath, async () => {
      // More often than systemd starts a unit in ten seconds, unless the unit sets another limit.
      for (let round = 0; round < 6; round++) {
        const pid = await property("MainPID");
        await machine.systemctl("restart", "svc");
        assert.notEqual(await property("MainPID"), pid);
        await ask(socketPath);
      }
    });
    t.log(`${answers.length} responses over six restarts`);
    t.deepEqual(
      answers.filter((answer) => answer !== 200),
      [],
    );
    t.true(answers.length > 100);
    t.is((await lstat(socketPath)).ino, ino);

    // A killed daemon breaks its open connections, and no later ones.
    const killed = await property("MainPID");
    await machine.systemctl("kill", "--signal=SIGKILL", "--kill-who=main", "svc");
    await eventually(
      async () => assert.ok(!["0", killed].includes(await property("MainPID")), "none has followed it"),
      deadlineMs,
    );
    t.is(await ask(socketPath), 200);

    await machine.systemctl("stop", "svc");
    t.is(await property("ActiveState"), "inactive");
    t.is(await ask(socketPath), 200);
    t.is(await property("ActiveState"), "active");

    const { state, startedAt } = await machine.client(AppService).getApp({ id: "kept" });
    t.deepEqual({ state, startedAt }, { state: "RUNNING", startedAt: before.startedAt });
  },
);
