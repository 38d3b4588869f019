/** With the shipped units on a real systemd: no connection is refused while one daemon replaces another. */
import assert from "node:assert/strict";
import { lstat } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { ask, askWhile } from "../support/ask-often.ts";
import { eventually } from "../support/eventually.ts";
import { writePackage } from "../support/packages.ts";
import { SystemdMachine, whyNoSystemd } from "../support/systemd.ts";

const deadlineMs = 60_000;
const reason = whyNoSystemd === undefined ? "" : ` (skipped: ${whyNoSystemd})`;

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
