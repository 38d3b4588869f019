/** The commands of the guide about services, as root would type them on a host with systemd. */
import assert from "node:assert/strict";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { readSection, typedLines } from "../support/docs.ts";
import { eventually } from "../support/eventually.ts";
import { main } from "../support/svc-main.ts";
import { SystemdMachine, whyNoSystemd } from "../support/systemd.ts";

const reason = whyNoSystemd === undefined ? "" : ` (skipped: ${whyNoSystemd})`;
const deadlineMs = 60_000;

async function shownLines(): Promise<string[]> {
  return typedLines(await readSection("docs/packages.md", "Services"));
}

(whyNoSystemd === undefined ? test : test.skip)(
  `the guide's tour of services works as it is written${reason}`,
  async (t) => {
    t.timeout(5 * 60_000);
    await using machine = await SystemdMachine.withSvc();
    await machine.boot();
    const apps = machine.client(AppService);
    await eventually(() => apps.listApps({}), deadlineMs);
    // In the machine's persistent directory. Questions are confirmed.
    const type = (line: string): Promise<string> => {
      const svc = `svc() { "${process.execPath}" "${main}" "$@"; }; cd /etc/svc;`;
      const command = line.replaceAll("sudo ", "").replace("app remove", "app remove --yes");
      return machine.run("sh", "-c", `${svc} ${command}`);
    };

    const lines = await shownLines();
    assert.ok(lines.length > 10, "the section has its lines");
    let restarts = 0;
    for (const line of lines) {
      const out = await type(line);
      if (line.includes("systemctl status")) t.regex(out, /svc-beat\.service[^]*Active: active \(running\)/);
      if (line.includes("systemctl kill")) {
        await eventually(async () => {
          const { state, restarts: now } = await apps.getApp({ id: "beat" });
          assert.equal(state, "RUNNING");
          assert.equal(now, 1);
        }, deadlineMs);
        restarts++;
      }
      if (line.includes("app info")) t.regex(out, /beat/);
      if (line.includes("app logs")) t.regex(out, /^.*beat$/m);
      if (line.includes("upgrade")) {
        await eventually(async () => assert.match(await type("svc app logs beat"), /louder/), deadlineMs);
      }
    }
    t.is(restarts, 1);
    t.deepEqual((await apps.listApps({})).apps, []);
    t.notRegex(await machine.systemctl("list-units", "--all", "svc-*"), /svc-beat/);
  },
);
