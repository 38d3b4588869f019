/** The output of `svc doctor` with a single problem, check by check. */
import { execFile } from "node:child_process";
import { chmod, chown, mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { once } from "node:events";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import { loadConfig } from "../../src/daemon/config.ts";
import { checkDisk, diskFinding } from "../../src/doctor/disk.ts";
import { checkDaemon, checkPort } from "../../src/doctor/addresses.ts";
import { checkEngine } from "../../src/doctor/engine.ts";
import { examine } from "../../src/doctor/examine.ts";
import type { Finding, ExaminedHost } from "../../src/doctor/finding.ts";
import { nodeFinding } from "../../src/doctor/programs.ts";
import { checkPermissions, checkRegistries, checkStore } from "../../src/doctor/store.ts";
import { checkTimeZone, clockFinding } from "../../src/doctor/time.ts";
import { migrations } from "../../src/store/migrations.ts";
import { openStore } from "../../src/store/store.ts";
import { nextEvent } from "../support/eventually.ts";

const isRoot = process.getuid?.() === 0;
const rootTest = isRoot ? test : test.skip;
const uid = process.getuid?.() ?? 0;
const mib = 1024 ** 2;

interface Prepared extends ExaminedHost {
  readonly dir: string;
}

async function place(t: ExecutionContext, servedAt?: string): Promise<Prepared> {
  const dir = await mkdtemp(join(tmpdir(), "svc-checks-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const file = join(dir, "svc.toml");
  const text = `[api]\nlisten = "127.0.0.1:0"\nsocket = "svc.sock"\n[store]\ndir = "store"\n[docker]\nsocket = "engine.sock"\n`;
  await writeFile(file, text);
  await writeFile(join(dir, "api.token"), "secret\n", { mode: 0o600 });
  await mkdir(join(dir, "store"), { mode: 0o700 });
  const environment = { uid, home: dir, env: {} };
  const config = await loadConfig({ file, environment });
  return { dir, config, uid, env: {}, servedAt };
}

const describeFinding = ({ state, text }: Finding): string => `${state}: ${text}`;

test("a node that is too old is reported", (t) => {
  t.is(describeFinding(nodeFinding("24.0.0")), "ok: version 24.0.0");
  t.regex(
    describeFinding(nodeFinding("22.21.1")),
    /^problem: version 22\.21\.1 is too old: install Node\.js 24/,
  );
});

for (const { name, room, finding } of [
  { name: "a large disk", room: { bavail: 20_480 }, finding: /^ok: 20 GiB are free for \/here$/ },
  { name: "a disk with room", room: {}, finding: /^ok: 2048 MiB are free for \/here$/ },
  {
    name: "a disk with little room",
    room: { bavail: 1023 },
    finding: /^warning: only 1023 MiB .*: free some space/,
  },
  {
    name: "a full disk",
    room: { bavail: 63 },
    finding: /^problem: only 63 MiB are free .*: free some space$/,
  },
  {
    name: "a disk with few inodes",
    room: { ffree: 9_999 },
    finding: /^warning: only 9999 inodes .*: free some space$/,
  },
  { name: "a disk without a number of inodes", room: { files: 0, ffree: 0 }, finding: /^ok: / },
]) {
  test(name, (t) => {
    const usual = { bavail: 2048, bsize: mib, files: 1e6, ffree: 10_000 };
    const stats = { ...usual, ...room };
    t.regex(describeFinding(diskFinding("/here", stats)), finding);
  });
}

test("the disk of a store that does not exist yet is checked", async (t) => {
  const { dir, config, ...rest } = await place(t);
  const store = { ...config.store, dir: join(dir, "not/there/yet") };
  t.regex(
    describeFinding(await checkDisk({ ...rest, config: { ...config, store } })),
    /[MG]iB are free for \S+yet/,
  );
});

test("a clock that was never set is reported", async (t) => {
  t.regex(
    describeFinding(await clockFinding(new Date(0))),
    /^problem: the clock says 1970-01-01.*: set it, and install an NTP/,
  );
  t.regex(describeFinding(await clockFinding(new Date("2026-01-01"))), /^ok: 2026-01-01/);
});

test("a missing daemon is reported with the command to start it", async (t) => {
  const ready = await place(t);
  for (const [mode, start] of [
    ["system", "systemctl enable --now svc,"],
    ["user", "systemctl --user enable --now svc,"],
  ] as const) {
    const found = describeFinding(await checkDaemon({ ...ready, config: { ...ready.config, mode } }));
    t.true(
      found.startsWith(`warning: no daemon responds on ${ready.config.api.socket}; start it with ${start}`),
      found,
    );
  }
  t.is(describeFinding(await checkDaemon({ ...ready, servedAt: "/run/svc" })), "ok: responds on /run/svc");
});

test("a time zone that only this shell has is reported as such", async (t) => {
  const ready = await place(t);
  const { timeZone } = new Intl.DateTimeFormat().resolvedOptions();
  t.is(describeFinding(await checkTimeZone(ready)), `ok: ${timeZone}`);
  t.is(
    describeFinding(await checkTimeZone({ ...ready, env: { TZ: timeZone } })),
    `ok: ${timeZone}, by TZ of this shell`,
  );
});

test("a TCP address that the daemon could not bind is a warning with the daemon's reason", async (t) => {
  const ready = await place(t, "/nowhere");
  const reason = "cannot listen on 127.0.0.1:1 (EADDRINUSE): stop it";
  const listeners = [
    { kind: "tcp", address: "127.0.0.1:1", state: "FAILED", reason },
    { kind: "socket", address: "/nowhere", state: "LISTENING", reason: "" },
  ];
  t.is(describeFinding(await checkPort({ ...ready, listeners })), `warning: ${reason}`);
});

test("a port in use, and one that the daemon does not listen on, are reported", async (t) => {
  const ready = await place(t, "/nowhere");
  const { config } = ready;
  const free = createServer().listen(0, "127.0.0.1");
  await once(free, "listening");
  const { port } = free.address() as { port: number };
  const at = (servedAt: string | undefined) =>
    checkPort({
      ...ready,
      servedAt,
      config: { ...config, api: { ...config.api, listen: { host: "127.0.0.1", port } } },
    });
  t.is(
    describeFinding(await at(config.api.socket)),
    `ok: 127.0.0.1:${port} is in use, as expected while a daemon runs`,
  );
  t.regex(
    describeFinding(await at(undefined)),
    /^problem: cannot listen on \S+ \(EADDRINUSE\): another program listens there; /,
  );
  free.close();
  await nextEvent(free, "close");
  t.is(describeFinding(await at(undefined)), `ok: 127.0.0.1:${port} is free`);
  t.is(
    describeFinding(await at(config.api.socket)),
    `warning: the daemon does not listen on 127.0.0.1:${port}`,
  );
});

for (const { name, spoil, finding } of [
  { name: "all as the daemon leaves it", spoil: () => undefined, finding: /^ok: / },
  {
    name: "a configuration that others may change",
    spoil: (dir: string) => chmod(join(dir, "svc.toml"), 0o666),
    finding: /^problem: others may change \S+svc\.toml: chmod go-w it$/,
  },
  {
    name: "a token that others may read",
    spoil: (dir: string) => chmod(join(dir, "api.token"), 0o640),
    finding: /^problem: others may use \S+api\.token: chmod go= it$/,
  },
  {
    name: "a store that others may change",
    spoil: (dir: string) => chmod(join(dir, "store"), 0o770),
    finding: /^problem: others may change \S+store: chmod go-w it$/,
  },
  {
    name: "no token yet",
    spoil: (dir: string) => rm(join(dir, "api.token")),
    finding: /^ok: /,
  },
]) {
  test(`permissions: ${name}`, async (t) => {
    const ready = await place(t);
    await spoil(ready.dir);
    t.regex(describeFinding(await checkPermissions(ready)), finding);
  });
}

rootTest("permissions: a store of another user", async (t) => {
  const ready = await place(t);
  await chown(join(ready.dir, "store"), 65_534, 0);
  t.regex(
    describeFinding(await checkPermissions(ready)),
    /^problem: \S+store belongs to uid 65534: chown it$/,
  );
});

rootTest("permissions: a store below a directory of another user", async (t) => {
  const ready = await place(t);
  await chown(ready.dir, 65_534, 0);
  const finding =
    /^problem: other users can replace \S+store, as they can change \S+: run chown root and chmod go-w on it$/;
  t.regex(describeFinding(await checkPermissions(ready)), finding);
});

rootTest("root does not open the database of another user", async (t) => {
  const ready = await place(t);
  const dir = join(ready.dir, "store");
  await (await openStore({ dir }))[Symbol.asyncDispose]();
  await chown(ready.dir, 65_534, 0);
  const before = await readdir(dir);
  const finding =
    /^warning: did not examine \S+svc\.db, as another user can change \S+: run svc doctor as the user/;
  t.regex(describeFinding(await checkStore(ready)), finding);
  t.regex(describeFinding(await checkRegistries(ready)), finding);
  t.deepEqual(await readdir(dir), before);
});

rootTest("root does not read the configuration of another user", async (t) => {
  const { dir, config } = await place(t);
  await chown(config.file, 65_534, 65_534);
  const [finding] = await examine({
    configFile: config.file,
    environment: { uid: 0, home: dir, env: {} },
    findDaemon: () => Promise.resolve(undefined),
  });
  t.regex(
    describeFinding(finding!),
    /^problem: did not read \S+svc\.toml, as another user can change \S+svc\.toml: run/,
  );
});

test("images of users from registries that are not listed are reported while these users have apps", async (t) => {
  const ready = await place(t);
  const dir = join(ready.dir, "store");
  {
    await using store = await openStore({ dir });
    const image =
      "INSERT INTO user_images (uid, reference, image_id, recorded_at) VALUES (?, ?, 'sha256:1', 0)";
    for (const [owner, reference] of [
      [1000, "docker.io/library/nginx:1"],
      [1000, "registry.lan:5000/web:1"],
      [1001, "registry.lan:5000/gone:1"],
    ] as const)
      await store.write([{ sql: image, params: [owner, reference] }]);
    const app = `INSERT INTO apps (id, owner_uid, name, runtime, package_id, record, state, created_at, updated_at)
                 VALUES ('web', 1000, 'web', 'docker', 'web', '{}', 'STOPPED', 0, 0)`;
    await store.write([{ sql: app, params: [] }]);
  }
  t.regex(
    describeFinding(await checkRegistries(ready)),
    /^warning: apps of regular users .* users_registries: registry\.lan:5000\/web:1 \(uid 1000\); these apps run,/,
  );
  const docker = { ...ready.config.docker, usersRegistries: ["docker.io", "registry.lan:5000"] };
  t.regex(
    describeFinding(await checkRegistries({ ...ready, config: { ...ready.config, docker } })),
    /^ok: all images/,
  );
});

test("a store of an older svc is reported", async (t) => {
  const ready = await place(t);
  const dir = join(ready.dir, "store");
  await (await openStore({ dir, migrations: migrations.slice(0, 1) }))[Symbol.asyncDispose]();
  t.regex(
    describeFinding(await checkStore(ready)),
    /^warning: \S+svc\.db is intact, from an older svc: the next start/,
  );
  await (await openStore({ dir }))[Symbol.asyncDispose]();
  t.regex(describeFinding(await checkStore(ready)), /^ok: \S+svc\.db is intact$/);
});

test("an engine that does not respond is reported", async (t) => {
  const ready = await place(t);
  const path = join(ready.dir, "engine.sock");
  await writeFile(path, "");
  t.regex(
    describeFinding(await checkEngine(ready)),
    /^warning: not responding at \S+ \(ECONNREFUSED\).*: start the engine$/,
  );
});

rootTest("an engine that this user may not use is not reported as off", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-checks-"));
  t.teardown(() => rm(dir, { recursive: true }));
  await chmod(dir, 0o755);
  const engine = createServer().listen(join(dir, "engine.sock"));
  await once(engine, "listening");
  t.teardown(() => engine.close());
  await chmod(join(dir, "engine.sock"), 0o660);
  const module = fileURLToPath(new URL("../../src/doctor/engine.ts", import.meta.url));
  const program = `import(${JSON.stringify(module)}).then(async ({ checkEngine }) =>
    console.log((await checkEngine({ config: { docker: { socket: ${JSON.stringify(join(dir, "engine.sock"))} } } })).text))`;
  const found = async (): Promise<string> => {
    const options = { uid: 65_534, gid: 65_534 };
    return (await promisify(execFile)(process.execPath, ["--eval", program], options)).stdout;
  };
  t.regex(
    await found(),
    /^this user may not open \S+engine\.sock, so containers cannot run: use the daemon of root$/m,
  );
  await chown(join(dir, "engine.sock"), 0, 1);
  t.regex(await found(), /: join the group that owns it, or use the daemon of root$/m);
});

test("missing or failing programs are reported", async (t) => {
  const ready = await place(t);
  const bin = join(ready.dir, "bin");
  await mkdir(bin);
  const module = fileURLToPath(new URL("../../src/doctor/programs.ts", import.meta.url));
  const program = `import(${JSON.stringify(module)}).then(async (all) => {
    for (const check of [all.checkGit, all.checkSetpriv])
      console.log(JSON.stringify(await check({ config: { mode: "system" } })));
    console.log(JSON.stringify(await all.checkUnshare({ config: { mode: "system" }, uid: 0 })));
    console.log(JSON.stringify(await all.checkSetpriv({ config: { mode: "user" } })));
  })`;
  const look = async (): Promise<string[]> => {
    const { stdout } = await promisify(execFile)(process.execPath, ["--eval", program], {
      env: { PATH: bin },
    });
    return stdout
      .trim()
      .split("\n")
      .map((line) => describeFinding(JSON.parse(line) as Finding));
  };
  const [git = "", setpriv = "", unshare = "", asUser = ""] = await look();
  t.is(git, "problem: packages cannot be fetched: install git");
  t.is(setpriv, "problem: apps cannot run as their users: install util-linux");
  t.is(unshare, "problem: compose files cannot be read: install util-linux");
  t.regex(asUser, /^ok: not needed/);
  await writeFile(join(bin, "git"), "#!/bin/sh\nexit 3\n", { mode: 0o755 });
  t.is((await look())[0], "problem: git does not work, so packages cannot be fetched: install git");
  await writeFile(join(bin, "unshare"), "#!/bin/sh\nexit 1\n", { mode: 0o755 });
  t.regex((await look())[2] ?? "", /^ok: this host does not allow PID namespaces/);
});

test("a check that fails is a problem beside the others", async (t) => {
  const ready = await place(t);
  await rm(join(ready.dir, "store"), { recursive: true });
  await writeFile(join(ready.dir, "store"), "");
  const found = await examine({
    configFile: join(ready.dir, "svc.toml"),
    environment: { uid, home: ready.dir, env: {} },
    findDaemon: () => Promise.resolve(undefined),
  });
  t.is(found.length, 17);
  const failed = found.filter(({ text }) => text.startsWith("the check failed: "));
  t.true(failed.length > 0);
  t.true(failed.every(({ state }) => state === "problem"));
});
