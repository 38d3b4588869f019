/** Attacks of short programs, of containers with many processes, and of services on systemd. */
import { existsSync } from "node:fs";
import { mkdir, readdir, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { composeTest, needsCompose } from "../runtimes/support/compose-test.ts";
import { sharedFixture } from "../runtimes/support/container-tests.ts";
import { DockerFixture } from "../runtimes/support/docker-fixture.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import { isRoot, needsRoot } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { SystemdMachine, whyNoSystemd } from "../support/systemd.ts";
import { flood, floods } from "./floods.ts";
import { attackMounts } from "./mounts.ts";
import { attackAll } from "./scenario.ts";
import { attackFiles, leastTurns } from "./swaps.ts";

// Containers of one user that together would start as many processes as the kernel has.

const fixtureNow = sharedFixture();
/** No other test runs processes as this user. */
const uid = 7;
const maxUserProcesses = 120;

async function processesOf(owner: number): Promise<number> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const uids = await Promise.all(
    pids.map((pid) =>
      stat(`/proc/${pid}`).then(
        (status) => status.uid,
        () => undefined,
      ),
    ),
  );
  return uids.filter((each) => each === owner).length;
}

/** At the limit, the shell fails and becomes a program that needs no other process. */
const storm =
  "trap 'exec sleep 1000' EXIT; n=0; while [ $n -lt 100 ]; do sleep 1000 & n=$((n + 1)); done; exec sleep 1000";

composeTest(
  `the containers of a user together have a limited number of processes${needsCompose}`,
  async (t) => {
    t.timeout(120_000);
    const { engine } = fixtureNow();
    await using fixture = await DockerFixture.create(engine, { maxUserProcesses });
    const before = await processesOf(uid);
    const command = JSON.stringify(["sh", "-c", storm]);
    const single = await fixture.app("flood", `docker: { image: "svc/shell:1", command: ${command} }`, {
      uid,
    });
    const service = { image: "svc/shell:1", command: ["sh", "-c", storm.replaceAll("$", "$$$$")] };
    const files = {
      "compose.yaml": JSON.stringify({
        // A service cannot raise the limit.
        services: { one: service, two: { ...service, ulimits: { nproc: 60_000 } } },
      }),
    };
    const project = await fixture.app("floods", "compose: { file: compose.yaml }", { uid, files });
    for (const [runtime, app] of [
      [fixture.runtime, single],
      [fixture.compose, project],
    ] as const) {
      await runtime.prepare(app, {});
      await runtime.start(app);
    }
    const started = await processesOf(uid);
    t.true(started > 100, String(started));
    // The limit does not count the program with which a container starts.
    t.true(started <= before + maxUserProcesses + 6, `${started} processes, ${before} before`);
    await fixture.runtime.stop(single);
    await fixture.compose.stop(project);
    await fixture.runtime.remove(single);
    await fixture.compose.remove(project);
  },
);

// The short version of `npm run check:attack`.

const emptyDaemon = sharedDaemon();
const rootTest = isRoot ? test : test.skip;

test("a client is served during slow clients, stream resets and a decompression bomb", async (t) => {
  // A limit for a host that is busy with other tests; the real one is in check:attack.
  const mostP99Ms = 3_000;
  const findings = await attackAll({
    connections: 100,
    resets: 6_000,
    bombBytes: 256 * 1024 * 1024,
    mostP99Ms,
  });
  for (const { attack, text, isGood } of findings) {
    t.log(`${attack}: ${text}`);
    t.true(isGood, attack);
  }
});

rootTest(`an owner cannot make a container mount anything else${needsRoot}`, async (t) => {
  for (const { attack, text, isGood } of await attackMounts(2)) {
    t.log(`${attack}: ${text}`);
    t.true(isGood, attack);
  }
});

for (const kind of floods) {
  rootTest(`root and others are served while a user floods with ${kind}${needsRoot}`, async (t) => {
    // A limit for a busy host, as above. Without fair queues half of all requests take more than a second.
    const { text, isGood } = await flood(await emptyDaemon(), [kind], {
      ...{ forMs: 1_500, scale: 0.5 },
      ...{ mostRootMs: 5_000, mostOthersMs: 5_000, mostMedianMs: 400 },
    });
    t.log(text);
    t.true(isGood, text);
  });
}

rootTest(`swapped directories never redirect file operations${needsRoot}`, async (t) => {
  for (const { verb, caller, tries, swaps } of await attackFiles(100)) {
    t.log(`${verb} by ${caller}: ${tries} tries among ${swaps} swaps`);
    t.true(tries >= 4 * leastTurns && swaps > 0, verb);
  }
});

// Attacks by the owner of a service package on systemd, which is root.

const reason = whyNoSystemd === undefined ? "" : ` (skipped: ${whyNoSystemd})`;
const serviceUid = 1;

(whyNoSystemd === undefined ? test : test.skip)(
  `no permission, name, directory, argument or variable makes a service of a regular user run as root${reason}`,
  async (t) => {
    t.timeout(5 * 60_000);
    await using machine = await SystemdMachine.withSvc();
    const etc = (name: string): string => join(machine.dir, "etc", name);
    // systemd also ends lines at NUL and carriage returns.
    const injected = ["x", "ExecStartPre=+/bin/touch /etc/svc/x", "User=root", ""];
    for (const [id, service, more] of [
      ["plain", "", ""],
      ["rooted", ", user: root", "permissions: [privileged]"],
      ["aside", `, working_dir: ${JSON.stringify(injected.join("\r"))}`, ""],
    ] as const) {
      await mkdir(etc(id), { mode: 0o755 });
      const manifest = `id: ${id}\nname: ${id}\nversion: "1"\nservice: { exec: [sleep, infinity]${service} }\n${more}\n`;
      await writeFile(join(etc(id), "svc.yaml"), manifest);
    }
    const hostileTexts = ["\n", "\r"].map((end) => injected.toSpliced(1, 0, "[Service]").join(end));
    const words = [...hostileTexts, "%h", "%%", "$HOME", ";", "+/bin/touch", "\\", '"', "x\\"];
    const worded = [
      "/bin/sh",
      "-c",
      'printf "%s\\0" "$@" "$A" "$B" > "$SVC_DATA_DIR/said"; exec sleep infinity',
      ...words,
    ];
    await mkdir(etc("worded"), { mode: 0o755 });
    const env = { A: hostileTexts.join("\\"), B: "x\\" };
    await writeFile(
      join(etc("worded"), "svc.yaml"),
      `id: worded\nname: worded\nversion: "1"\nservice: { exec: ${JSON.stringify(worded)}, env: ${JSON.stringify(env)} }\n`,
    );
    // U+2028 ends a line in JavaScript, but not in systemd.
    await mkdir(etc("apart"), { mode: 0o755 });
    await writeFile(
      join(etc("apart"), "svc.yaml"),
      'id: apart\nname: apart\nversion: "1"\nservice: { unit: x.service }\n',
    );
    await writeFile(
      join(etc("apart"), "x.service"),
      "[Service]\nExecStartPre=/bin/true \u2028a ; +/bin/touch /etc/svc/x\nExecStart=/bin/sleep infinity\n",
    );
    await machine.boot();
    await eventually(() => machine.client(AppService).listApps({}), 90_000);
    await using user = await machine.asUser(serviceUid);
    const apps = user.client(AppService);

    const names = ["\0", "\r", "\n"].map((end) => injected.toSpliced(1, 0, "[Service]").join(end));
    for (const [spec, name] of [
      ["rooted", ""] as const,
      ["aside", ""] as const,
      ["apart", ""] as const,
      ["worded", ""] as const,
      ...names.map((each) => ["plain", each] as const),
    ]) {
      const tried = await apps.installApp({ spec: `/etc/svc/${spec}`, name, licenseAck: true }).then(
        ({ id }) => id,
        () => undefined,
      );
      if (tried === undefined) continue;
      await apps.startApp({ id: tried }).catch(() => undefined);
      const shown = await machine.systemctl("show", "--property=User,ExecStartPre", `svc-${tried}`);
      t.is(shown.trim(), `User=${serviceUid}`, JSON.stringify([spec, name]));
    }
    t.false(existsSync(etc("x")));
    const said = (await machine.run("cat", "/var/lib/svc/apps/worded/data/said")).split("\0");
    t.deepEqual(said, [...words.slice(1), env.A, env.B, ""], "each text is passed on as it is");
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
    await using user = await machine.asUser(serviceUid);
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

(whyNoSystemd === undefined ? test : test.skip)(
  `a service does not become a unit of root with its name${reason}`,
  async (t) => {
    t.timeout(5 * 60_000);
    await using machine = await SystemdMachine.withSvc();
    const directories = { daily: "/usr/lib/systemd/system", nightly: "/etc/systemd/system" };
    for (const id of Object.keys(directories)) {
      const dir = join(machine.dir, "etc", id);
      await mkdir(dir, { mode: 0o755 });
      const service = "service: { exec: [sleep, infinity] }\nstop: { grace: 1s }";
      await writeFile(join(dir, "svc.yaml"), `id: ${id}\nname: ${id}\nversion: "1"\n${service}\n`);
    }
    await machine.boot();
    await eventually(() => machine.client(AppService).listApps({}), 90_000);
    await using user = await machine.asUser(serviceUid);
    const apps = user.client(AppService);
    for (const [id, directory] of Object.entries(directories)) {
      const unit = `svc-${id}.service`;
      const pid = async (): Promise<string> => machine.systemctl("show", "--property=MainPID", unit);
      const text = "[Service]\\nExecStart=/bin/sleep infinity\\n";
      await machine.run("sh", "-c", `printf '${text}' > ${directory}/${unit}; systemctl daemon-reload`);
      await machine.systemctl("start", unit);
      const before = await pid();
      const { reason: why } = await errorOf(apps.installApp({ spec: `/etc/svc/${id}` }));
      t.is(why, "already_exists");
      t.is(await pid(), before);

      // Root's unit may also be newer than the app.
      await machine.run(
        "sh",
        "-c",
        `systemctl stop ${unit}; rm ${directory}/${unit}; systemctl daemon-reload`,
      );
      await apps.installApp({ spec: `/etc/svc/${id}` });
      await machine.run(
        "sh",
        "-c",
        `mkdir -p /etc/systemd/system; printf '${text}' > /etc/systemd/system/${unit}; systemctl daemon-reload; systemctl start ${unit}`,
      );
      const later = await pid();
      await errorOf(apps.startApp({ id }));
      await apps.stopApp({ id }).catch(() => undefined);
      await apps.removeApp({ id });
      t.is(await pid(), later);
    }

    // The app's unit has priority over one of a package, which is newer than the app.
    const [id = "", directory = ""] = Object.entries(directories)[0] ?? [];
    const unit = `svc-${id}.service`;
    const path = `${directory}/${unit}`;
    await machine.run("sh", "-c", `rm -f /etc/systemd/system/${unit} ${path}; systemctl daemon-reload`);
    await apps.installApp({ spec: `/etc/svc/${id}` });
    await apps.startApp({ id });
    await apps.stopApp({ id });
    await machine.run(
      "sh",
      "-c",
      `printf '[Service]\\nExecStart=/bin/sleep infinity\\n' > ${path}; systemctl daemon-reload`,
    );
    const fragment = (): Promise<string> => machine.systemctl("show", "--property=FragmentPath", unit);
    const packages = /=(?:\/usr)?\/lib\/systemd\//;
    t.notRegex(await fragment(), packages);
    const { reason: whyNot } = await errorOf(apps.startApp({ id }));
    t.is(whyNot, "already_exists");
    t.regex(await fragment(), packages);
    await apps.removeApp({ id });
    t.regex(await fragment(), packages);
  },
);
