/** Attacks by the owner of a service package on systemd, which is root. */
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
    // systemd also ends lines at NUL and carriage returns.
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
    // U+2028 ends a line in JavaScript, but not in systemd.
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

/** Ignores SIGTERM, and extends its stop timeout by another minute every second. */
const stubborn = `import os, signal, socket, time
systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
systemd.connect(os.environ["NOTIFY_SOCKET"])
signal.signal(signal.SIGTERM, lambda *_: None)
systemd.send(b"READY=1")
while True:
  systemd.send(b"EXTEND_TIMEOUT_USEC=60000000")
  time.sleep(1)
`;

(whyNoSystemd === undefined ? test : test.skip)(
  `a service that extends its own timeouts without end can be stopped and removed${reason}`,
  async (t) => {
    t.timeout(10 * 60_000);
    await using machine = await SystemdMachine.withSvc();
    const dir = join(machine.dir, "etc", "stubborn");
    await mkdir(dir, { mode: 0o755 });
    const exec = "/usr/bin/python3 ./stubborn.py";
    for (const [name, text] of Object.entries({
      "svc.yaml":
        'id: stubborn\nname: stubborn\nversion: "1"\nservice: { unit: x.service }\nstop: { grace: 1s }\nrestart: { policy: never }\n',
      "x.service": `[Service]\nType=notify\nNotifyAccess=all\nExecStart=${exec}\nExecStopPost=${exec}\nExecStopPost=-${exec}\n`,
      "stubborn.py": stubborn,
    }))
      await writeFile(join(dir, name), text);
    await machine.boot();
    await eventually(() => machine.client(AppService).listApps({}), 90_000);
    await using user = await machine.asUser(uid);
    const apps = user.client(AppService);
    const { id } = await apps.installApp({ spec: "/etc/svc/stubborn" });
    t.is((await apps.startApp({ id })).state, "RUNNING");
    const root = machine.client(AppService);
    await root.stopApp({ id });
    t.is((await root.getApp({ id })).state, "STOPPED");
    await root.removeApp({ id });
    t.deepEqual((await root.listApps({})).apps, []);
  },
);
