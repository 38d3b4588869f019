/** What the owner of a service package tries to get of systemd, which is root (threat 67). */
import { existsSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { eventually } from "../support/eventually.ts";
import { SystemdMachine, whyNoSystemd } from "../support/systemd.ts";

const reason = whyNoSystemd === undefined ? "" : ` (skipped: ${whyNoSystemd})`;
const uid = 1;

(whyNoSystemd === undefined ? test : test.skip)(
  `no permission, name or directory makes a service of a regular user run as root${reason}`,
  async (t) => {
    t.timeout(5 * 60_000);
    await using machine = await SystemdMachine.withSvc();
    const etc = (name: string): string => join(machine.dir, "etc", name);
    // systemd ends lines at NUL and carriage returns, too.
    const injected = ["x", "ExecStartPre=+/bin/touch /etc/svc/root-was-here", "User=root", ""];
    for (const [id, service, more] of [
      ["plain", "", ""],
      ["rooted", ", user: root", "permissions: [privileged]"],
      ["aside", `, working_dir: ${JSON.stringify(injected.join("\r"))}`, ""],
    ] as const) {
      await mkdir(etc(id), { mode: 0o755 });
      const manifest = `id: ${id}\nname: ${id}\nversion: "1"\nservice: { exec: [sleep, infinity]${service} }\n${more}\n`;
      await writeFile(join(etc(id), "svc.yaml"), manifest);
    }
    // U+2028 ends a line to JavaScript, and none to systemd.
    await mkdir(etc("apart"), { mode: 0o755 });
    await writeFile(
      join(etc("apart"), "svc.yaml"),
      'id: apart\nname: apart\nversion: "1"\nservice: { unit: x.service }\n',
    );
    await writeFile(
      join(etc("apart"), "x.service"),
      "[Service]\nExecStartPre=/bin/true \u2028a ; +/bin/touch /etc/svc/root-was-here\nExecStart=/bin/sleep infinity\n",
    );
    await machine.boot();
    await eventually(() => machine.client(AppService).listApps({}), 90_000);
    await using user = await machine.asUser(uid);
    const apps = user.client(AppService);

    const names = ["\0", "\r", "\n"].map((end) => injected.toSpliced(1, 0, "[Service]").join(end));
    for (const [spec, name] of [
      ["rooted", ""] as const,
      ["aside", ""] as const,
      ["apart", ""] as const,
      ...names.map((each) => ["plain", each] as const),
    ]) {
      const tried = await apps.installApp({ spec: `/etc/svc/${spec}`, name, licenseAck: true }).then(
        ({ id }) => id,
        () => undefined,
      );
      if (tried === undefined) continue;
      await apps.startApp({ id: tried }).catch(() => undefined);
      const shown = await machine.systemctl("show", "--property=User,ExecStartPre", `svc-${tried}`);
      t.is(shown.trim(), `User=${uid}`, JSON.stringify([spec, name]));
    }
    t.false(existsSync(etc("root-was-here")));
  },
);
