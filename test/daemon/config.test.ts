/** The configuration file: values, default paths, limits, the template, what a running daemon applies, and the log. */
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { constants } from "node:fs";
import { mkdir, mkdtemp, open, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { parse } from "smol-toml";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import { SourceService } from "../../gen/svc/v1/source_pb.ts";
import { ConfigReload } from "../../src/daemon/config-reload.ts";
import { configTemplate } from "../../src/daemon/config-template.ts";
import { type Config, loadConfig, parseConfig } from "../../src/daemon/config.ts";
import { exposureWarning } from "../../src/daemon/exposure.ts";
import { type PathEnvironment, defaultPaths } from "../../src/daemon/paths.ts";
import { userLimits } from "../../src/daemon/user-limits.ts";
import { SvcError } from "../../src/errors.ts";
import { defaultsOf } from "../../src/lib/limit-table.ts";
import { defaultTransportLimits, transportLimits } from "../../src/server/http/limits.ts";
import { runSvc } from "../cli/support/run-svc.ts";
import { type TestDaemon, startDaemon } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { eventually, nextEvent } from "../support/eventually.ts";
import { main } from "../support/svc-main.ts";

// The configuration file: accepted and rejected values, and the default paths.

const root: PathEnvironment = {
  uid: 0,
  home: "/root",
  env: { PATH: "/opt/bin:/bin", HTTPS_PROXY: "http://u:p@proxy", SSL_CERT_FILE: "/ca.pem" },
};
const user: PathEnvironment = {
  uid: 1000,
  home: "/home/u",
  env: { PATH: "/opt/bin:/bin", HTTPS_PROXY: "http://u:p@proxy", XDG_RUNTIME_DIR: "/run/user/1000" },
};

test("without a file, root's daemon serves all users and a user's serves only them", (t) => {
  const system = parseConfig({}, "/etc/svc/svc.toml", root);
  t.like(system, { mode: "system", tokenFile: "/etc/svc/api.token" });
  t.like(system.api, { listen: { host: "127.0.0.1", port: 8420 }, socket: "/run/svc/svc.sock" });
  t.is(system.store.dir, "/var/lib/svc");
  t.is(system.docker.socket, "/var/run/docker.sock");
  t.false(system.apps.path.includes("/opt/bin"));
  t.deepEqual(
    system.apps.buildEnv,
    { SSL_CERT_FILE: "/ca.pem" },
    "a proxy's password is not shared with all users",
  );
  const own = parseConfig({}, "/home/u/.config/svc/svc.toml", user);
  t.like(own, { mode: "user", tokenFile: "/home/u/.config/svc/api.token" });
  t.is(own.api.socket, "/run/user/1000/svc/svc.sock");
  t.is(own.store.dir, "/home/u/.local/state/svc");
  t.deepEqual(own.apps.path, ["/opt/bin", "/bin"]);
  t.deepEqual(own.apps.buildEnv, { HTTPS_PROXY: "http://u:p@proxy" });
});

test("without a runtime directory a user's socket is in the state directory", (t) => {
  const paths = defaultPaths({ uid: 1000, home: "/home/u", env: { XDG_STATE_HOME: "relative" } });
  t.is(paths.socket, "/home/u/.local/state/svc/svc.sock");
});

test("relative paths are relative to the file", (t) => {
  const config = parseConfig(
    {
      api: { socket: "svc.sock", listen: "[::1]:0" },
      store: { dir: "./store" },
      docker: { socket: "../engine.sock" },
      sources: [{ name: "mine", url: "../packages" }],
    },
    "/srv/svc/svc.toml",
    root,
  );
  t.is(config.api.socket, "/srv/svc/svc.sock");
  t.deepEqual(config.api.listen, { host: "::1", port: 0 });
  t.is(config.store.dir, "/srv/svc/store");
  t.is(config.docker.socket, "/srv/engine.sock");
  t.is(config.sources[0]?.url, "/srv/packages");
});

const refused: Readonly<Record<string, { document: Record<string, unknown>; fields: string[] }>> = {
  "an unknown key": { document: { api: { lissten: "x" } }, fields: ["api.lissten"] },
  "an unknown table": { document: { apis: {} }, fields: ["apis"] },
  "a value in place of a table": { document: { api: 7 }, fields: ["api"] },
  "no port": { document: { api: { listen: "localhost" } }, fields: ["api.listen"] },
  "a port too high": { document: { api: { listen: "localhost:65536" } }, fields: ["api.listen"] },
  "a number as a path": { document: { store: { dir: 7 } }, fields: ["store.dir"] },
  "an empty path": { document: { store: { dir: "" } }, fields: ["store.dir"] },
  "a source without a name": { document: { sources: [{ url: "/x" }] }, fields: ["sources[0].name"] },
  "a source's odd name": { document: { sources: [{ name: "A/b", url: "/x" }] }, fields: ["sources[0].name"] },
  "one name twice": {
    document: {
      sources: [
        { name: "a", url: "/x" },
        { name: "a", url: "/y" },
      ],
    },
    fields: ["sources.name"],
  },
  "a relative program directory": { document: { apps: { path: ["bin"] } }, fields: ["apps.path"] },
  "an invalid environment": {
    document: { apps: { build_env: { "A B": "x" } } },
    fields: ["apps.build_env"],
  },
  "a socket that is not a path": { document: { docker: { socket: true } }, fields: ["docker.socket"] },
  "an invalid address": {
    document: { docker: { publish_address: "localhost" } },
    fields: ["docker.publish_address"],
  },
  "a shared image without a valid name, and a build network of the host": {
    document: { docker: { users_build_network: "host", shared_images: ["team/*", "Not A Name"] } },
    fields: ["docker.users_build_network", "docker.shared_images"],
  },
  "a registry with a scheme": {
    document: { docker: { users_registries: ["ghcr.io", "https://registry.lan"] } },
    fields: ["docker.users_registries"],
  },
  "a registry with a repository": {
    document: { docker: { users_registries: ["docker.io/library"] } },
    fields: ["docker.users_registries"],
  },
  "a name that is not a registry in image names": {
    document: { docker: { users_registries: ["team"] } },
    fields: ["docker.users_registries"],
  },
  "a pattern inside of a registry": {
    document: { docker: { users_registries: ["registry.*.lan"] } },
    fields: ["docker.users_registries"],
  },
  "an allowed host with a port": {
    document: { api: { allowed_hosts: ["svc.example.org:8443"] } },
    fields: ["api.allowed_hosts"],
  },
  "an allowed host with a scheme": {
    document: { api: { allowed_hosts: ["https://svc.example.org"] } },
    fields: ["api.allowed_hosts"],
  },
  "a trusted proxy's name": {
    document: { api: { trusted_proxies: ["127.0.0.1", "proxy.example.org"] } },
    fields: ["api.trusted_proxies"],
  },
  "a trusted range with too many bits": {
    document: { api: { trusted_proxies: ["10.0.0.0/33"] } },
    fields: ["api.trusted_proxies"],
  },
  "no reboot command": { document: { system: { reboot_command: [] } }, fields: ["system.reboot_command"] },
  "an unknown level": { document: { log: { level: "loud" } }, fields: ["log.level"] },
  "several at once": {
    document: { log: { level: "loud" }, store: { dir: 7 } },
    fields: ["log.level", "store.dir"],
  },
};

for (const [name, { document, fields }] of Object.entries(refused)) {
  test(`${name} is rejected by its key`, (t) => {
    const error = t.throws<SvcError<"invalid_request">>(() =>
      parseConfig(document, "/etc/svc/svc.toml", root),
    );
    t.is(error.reason, "invalid_request");
    t.deepEqual(error.payload?.violations?.map(({ field }) => field).toSorted(), fields.toSorted());
    t.true(error.message.startsWith("/etc/svc/svc.toml: "));
  });
}

// `svc daemon --check`: a configuration is read as at a start, and nothing is started.

for (const [title, lines, code, sentence] of [
  ["that is valid", "", 0, /^the configuration is valid$/m],
  ["with an unknown key", '[api]\nlissten = "x"', 2, /api\.lissten/],
  ["that is not TOML", "[api", 2, /svc\.toml, line \d+: /],
  [
    "that names a missing account",
    '[apps]\nroot_runs_as = "no-such-account"',
    2,
    /no account "no-such-account"/,
  ],
  ["that does not exist", undefined, 3, /there is no configuration file \//],
] as const) {
  test(`a configuration ${title}`, async (t) => {
    const dir = await mkdtemp(join(tmpdir(), "svc-check-"));
    t.teardown(() => rm(dir, { recursive: true }));
    const file = join(dir, "svc.toml");
    const own = `[store]\ndir = "${dir}/store"\n${lines ?? ""}\n`;
    if (lines !== undefined) await writeFile(file, own);
    const child = spawn(process.execPath, [main, "daemon", "--check", "--config", file], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    t.teardown(() => child.kill("SIGKILL"));
    let said = "";
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (bytes: Buffer) => (said += bytes.toString()));
    // Without the option it would run forever: the deadline is for a busy host.
    const [exitCode] = (await once(child, "close", { signal: AbortSignal.timeout(60_000) })) as [number];
    t.regex(said, sentence);
    t.is(exitCode, code);
    t.deepEqual(await readdir(dir), lines === undefined ? [] : ["svc.toml"]);
  });
}

// Listening beyond this host without TLS is logged once at each start.

const warningOf = (listen: string): string | undefined =>
  exposureWarning(parseConfig({ api: { listen } }, "/etc/svc/svc.toml", { uid: 0, home: "/root", env: {} }));

for (const listen of ["127.0.0.1:8420", "127.8.0.1:1", "localhost:8420", "[::1]:8420"]) {
  test(`${listen} is local to this host`, (t) => {
    t.is(warningOf(listen), undefined);
  });
}

for (const listen of ["0.0.0.0:8420", "[::]:8420", "192.0.2.7:8420", "host.example:8420"]) {
  test(`${listen} is reported to be without TLS`, (t) => {
    t.regex(warningOf(listen) ?? "", /without TLS/);
    t.true(warningOf(listen)?.includes(`listen is ${listen},`));
  });
}

test("a daemon that other hosts reach warns once", async (t) => {
  const warnings = (log: string): number => log.split("without TLS").length - 1;
  await using quiet = await startDaemon();
  t.is(warnings(quiet.log()), 0);
  await using exposed = await startDaemon({ listen: "0.0.0.0:0" });
  t.is(warnings(exposed.log()), 1);
});

// The configuration that `svc setup` writes: every key, and the same effect as no file.

const environments = {
  root: { uid: 0, home: "/root", env: {} },
  user: { uid: 1000, home: "/home/me", env: { PATH: "/usr/bin:/bin", SSL_CERT_FILE: '/etc/"ca".pem' } },
};
const file = "/etc/svc/svc.toml";

/** Every table of `document`, recording keys that are read and missing. */
function watched(
  document: Record<string, unknown>,
  prefix: string,
  missing: Set<string>,
): Record<string, unknown> {
  const tables = Object.entries(document).map(([key, value]) => {
    if (Array.isArray(value) && typeof value[0] === "object")
      return [
        key,
        value.map((each) => watched(each as Record<string, unknown>, `${prefix}${key}.`, missing)),
      ];
    const isTable = typeof value === "object" && !Array.isArray(value) && key !== "build_env";
    return [key, isTable ? watched(value as Record<string, unknown>, `${prefix}${key}.`, missing) : value];
  });
  return new Proxy(Object.fromEntries(tables) as Record<string, unknown>, {
    get: (target, key: string) => {
      if (!(key in target)) missing.add(prefix + key);
      return target[key];
    },
  });
}

for (const [who, environment] of Object.entries(environments)) {
  test(`the template, as written for ${who}, has the same effect as no file`, (t) => {
    const text = configTemplate(file, environment);
    t.deepEqual(parseConfig(parse(text), file, environment), parseConfig({}, file, environment));
  });

  test(`the template with all keys enabled sets every key to its default, for ${who}`, (t) => {
    const text = configTemplate(file, environment).replaceAll(/^#(?=[a-z_[])/gm, "");
    const missing = new Set<string>();
    const config = parseConfig(watched(parse(text), "", missing), file, environment);
    // An alert has one of two.
    t.deepEqual([...missing], ["alerts.url"]);
    const defaults = parseConfig({}, file, environment);
    t.deepEqual(
      { ...config, sources: [], alerts: [], apps: { ...config.apps, rootRunsAs: undefined } },
      { ...defaults, sources: [], alerts: [] },
    );
    t.is(config.sources.length, 1);
    t.is(config.alerts.length, 1);
  });
}

test("a commented-out key shows its default, or is marked as an example", (t) => {
  for (const environment of Object.values(environments)) {
    const text = configTemplate(file, environment);
    const defaults = parseConfig({}, file, environment);
    let section = "";
    let words: string[] = [];
    let keys = 0;
    for (const line of text.split("\n")) {
      if (line.startsWith("[")) section = line;
      if (/^#\[\[/.test(line)) {
        t.regex(words.join(" "), / An example:$/, line);
        section = "";
      }
      if (line.startsWith("# ")) words.push(line);
      else {
        const isExample = words.at(-1)?.endsWith(" An example:") === true;
        if (/^#[a-z_]+ =/.test(line) && section !== "") {
          const taken = parseConfig(parse(`${section}\n${line.slice(1)}`), file, environment);
          if (isExample) t.notDeepEqual(taken, defaults, line);
          else t.deepEqual(taken, defaults, line);
          keys += 1;
        }
        words = [];
      }
    }
    t.true(keys > 40, String(keys));
  }
});

// The limits of listeners and of users are settings.

const environment = { uid: 0, home: "/root", env: {} };

function limitsOf(limits: Record<string, unknown>): unknown {
  return parseConfig({ api: { limits } }, "/etc/svc/svc.toml", environment).api.limits;
}

test("without settings the limits are the defaults, each within its own range", (t) => {
  t.deepEqual(limitsOf({}), defaultTransportLimits);
  for (const [name, { default: value, min, max }] of Object.entries(transportLimits))
    t.true(value >= min && value <= max, name);
});

test("without settings users have the default limits, each within its own range; a setting replaces its own", (t) => {
  const read = (limits: Record<string, unknown>): unknown =>
    parseConfig({ limits }, "/etc/svc/svc.toml", environment).limits;
  const defaultUserLimits = defaultsOf(userLimits);
  t.deepEqual(read({}), defaultUserLimits);
  for (const [name, { default: value, min, max }] of Object.entries(userLimits))
    t.true(value >= min && value <= max, name);
  t.deepEqual(read({ max_backup_bytes_per_user: 0 }), { ...defaultUserLimits, maxBackupBytesPerUser: 0 });
  t.deepEqual(read({ max_installs: 9 }), { ...defaultUserLimits, maxInstalls: 9 });
  t.throws(() => read({ max_installs: 0 }), {
    message: /limits\.max_installs: 0 must be a whole number from 1/,
  });
});

test("a setting replaces its own limit", (t) => {
  t.deepEqual(limitsOf({ max_connections: 7, headers_timeout_ms: 900 }), {
    ...defaultTransportLimits,
    maxConnections: 7,
    headersTimeoutMs: 900,
  });
});

for (const [key, value, expected] of [
  ["max_connection", 7, "api.limits.max_connection is not a setting of svc"],
  ["maxConnections", 7, "api.limits.maxConnections is not a setting of svc"],
  ["max_connections", 0, "api.limits.max_connections: 0 must be a whole number from 1 to 1000000"],
  ["max_connections", "7", 'api.limits.max_connections: "7" must be a whole number from 1 to 1000000'],
  [
    "headers_timeout_ms",
    0.5,
    "api.limits.headers_timeout_ms: 0.5 must be a whole number from 100 to 86400000",
  ],
  [
    "max_message_bytes",
    2 ** 25,
    "api.limits.max_message_bytes: 33554432 must be a whole number from 1024 to 16777216",
  ],
] as const) {
  test(`${key} = ${JSON.stringify(value)} is rejected`, (t) => {
    const error = t.throws(() => limitsOf({ [key]: value }), { instanceOf: SvcError });
    t.is(error.message, `/etc/svc/svc.toml: ${expected}`);
  });
}

test("the daemon applies the limits of its file", async (t) => {
  await using daemon = await startDaemon({ config: "[api.limits]\nfirst_bytes_timeout_ms = 200\n" });
  const startMs = performance.now();
  const socket = connect(daemon.port, "127.0.0.1");
  await nextEvent(socket, "close");
  t.true(performance.now() - startMs < 5_000);
});

// `svc daemon reload` and SIGHUP: the changes that a running daemon applies, and those that need a restart.

async function sourcesOf(daemon: TestDaemon): Promise<string[]> {
  const { sources } = await daemon.client(SourceService).listSources({});
  return sources.map(({ name }) => name);
}

test("changes are applied or need a restart, which is named, and an invalid file changes nothing", async (t) => {
  await using daemon = await startDaemon();
  const service = daemon.client(DaemonService);
  const before = await readFile(daemon.configFile, "utf8");
  const index = join(daemon.dir, "index");
  await mkdir(index);
  const more = `
[[sources]]
name = "fresh"
url = ${JSON.stringify(index)}
[[alerts]]
name = "full"
when = "filesystem"
above_percent = 1
for_secs = 0
[limits]
max_apps_per_user = 7
`;
  t.like(await service.reloadConfig({}), { applied: [], needsRestart: [] });
  const same = await runSvc(["daemon", "reload"], { host: { sockets: socketsOf(daemon) } });
  t.deepEqual([same.stdout, same.stderr], ["", "Nothing has changed.\n"]);
  await writeFile(daemon.configFile, before + more);
  t.like(await service.reloadConfig({}), {
    applied: ["alerts", "sources"],
    needsRestart: ["limits.max_apps_per_user"],
  });
  t.true((await sourcesOf(daemon)).includes("fresh"));
  // It still waits, and applied changes are not reported again.
  const told = await runSvc(["daemon", "reload"], { host: { sockets: socketsOf(daemon) } });
  t.is(told.stdout, "Needs a restart of the daemon: limits.max_apps_per_user\n", told.stderr);
  await eventually(async () => {
    const { alerts } = await service.getStatus({});
    assert.ok(
      alerts.some(({ name }) => name === "full"),
      JSON.stringify(alerts.map(({ name }) => name)),
    );
  }, 60_000);

  await writeFile(daemon.configFile, `${before}nonsense = 1\n`);
  t.like(await errorOf(service.reloadConfig({})), { reason: "invalid_request" });
  t.true((await sourcesOf(daemon)).includes("fresh"));

  // A hang-up does the same, and the daemon continues.
  const { pid } = daemon;
  await writeFile(daemon.configFile, before);
  process.kill(pid, "SIGHUP");
  await eventually(async () => {
    assert.ok(!(await sourcesOf(daemon)).includes("fresh"), daemon.log());
  }, 40_000);
  t.is(daemon.pid, pid);
  // Its log comes through a pipe.
  await eventually(() => assert.match(daemon.log(), /svc has read its configuration again/), 40_000);
});

test("reloads during a reload share the next one", async (t) => {
  const environment: PathEnvironment = { uid: 0, home: "/root", env: {} };
  const config = parseConfig({}, "/etc/svc/svc.toml", environment);
  const reads: ((fresh: Config) => void)[] = [];
  const nothing = (): void => undefined;
  const reload = new ConfigReload({
    config,
    load: async () => {
      const { promise, resolve } = Promise.withResolvers<Config>();
      reads.push(resolve);
      return promise;
    },
    apply: { alerts: nothing, sources: nothing, "apps.backup_before_upgrade": nothing, "log.level": nothing },
  });
  const first = reload.reload();
  await eventually(() => assert.equal(reads.length, 1));
  const others = Array.from({ length: 1_000 }, () => reload.reload());
  await new Promise((resolve) => setImmediate(resolve));
  t.is(reads.length, 1, "not while another is read");
  reads[0]?.(config);
  t.deepEqual(await first, { applied: [], needsRestart: [] });
  // The second reads the current content of the file.
  await eventually(() => assert.equal(reads.length, 2));
  const after = reload.reload();
  reads[1]?.(parseConfig({ log: { level: "debug" } }, "/etc/svc/svc.toml", environment));
  t.deepEqual(await Promise.all(others), Array(1_000).fill({ applied: ["log.level"], needsRestart: [] }));
  await eventually(() => assert.equal(reads.length, 3));
  reads[2]?.(config);
  t.deepEqual(await after, { applied: ["log.level"], needsRestart: [] });
});

test("keys are named as the file spells them, each once, and pending ones are named again", async (t) => {
  const environment: PathEnvironment = { uid: 0, home: "/root", env: {} };
  const read = (file: Record<string, unknown>): Config => parseConfig(file, "/etc/svc/svc.toml", environment);
  const loaded = [
    read({ api: { listen: "127.0.0.1:1" }, apps: { backup_before_upgrade: true, build_env: { A: "b" } } }),
    read({ api: { listen: "127.0.0.1:1" }, apps: { backup_before_upgrade: true } }),
  ];
  const taken: boolean[] = [];
  const nothing = (): void => undefined;
  const reload = new ConfigReload({
    config: read({}),
    load: () => Promise.resolve(loaded.shift() ?? read({})),
    apply: {
      ...{ alerts: nothing, sources: nothing, "log.level": nothing },
      "apps.backup_before_upgrade": ({ apps }) => taken.push(apps.backUpBeforeUpgrade),
    },
  });
  t.deepEqual(await reload.reload(), {
    applied: ["apps.backup_before_upgrade"],
    needsRestart: ["api.listen", "apps.build_env"],
  });
  t.deepEqual(await reload.reload(), { applied: [], needsRestart: ["api.listen"] });
  t.deepEqual(await reload.reload(), { applied: ["apps.backup_before_upgrade"], needsRestart: [] });
  t.deepEqual(taken, [true, false]);
});

for (const [what, make] of [
  ["a FIFO", (file: string) => promisify(execFile)("mkfifo", [file])],
  ["a directory", (file: string) => mkdir(file)],
] as const) {
  test(`${what} is rejected as a configuration without blocking`, async (t) => {
    const dir = await mkdtemp(join(tmpdir(), "svc-config-"));
    t.teardown(() => rm(dir, { recursive: true }));
    const file = join(dir, "svc.toml");
    await make(file);
    // A writer that opens it after the check ends an endless wait.
    let hasWaited = false;
    const late = setTimeout(() => {
      hasWaited = true;
      void open(file, constants.O_RDWR | constants.O_NONBLOCK).then(
        (handle) => handle.close(),
        () => undefined,
      );
    }, 30_000);
    t.teardown(() => {
      clearTimeout(late);
    });
    const error = await t.throwsAsync(loadConfig({ file, environment: { uid: 0, home: "/root", env: {} } }));
    t.like(error, { reason: "invalid_request", message: `${file} is not a regular file` });
    t.false(hasWaited);
  });
}

function socketsOf({ socketPath }: TestDaemon): { checkoutDir: undefined; system: string; user: string } {
  return { checkoutDir: undefined, system: socketPath, user: socketPath };
}

// The destination of the daemon's log, as `svc status` shows it.

const log = new URL("../../src/daemon/log.ts", import.meta.url).href;

async function destination(stderr: number | "pipe", isJournal: boolean): Promise<string> {
  const code = `console.log((await import(${JSON.stringify(log)})).logDestination(${String(isJournal)}))`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", code], {
    stdio: ["ignore", "pipe", stderr],
  });
  let text = "";
  child.stdout?.on("data", (piece: Buffer) => (text += piece.toString()));
  await once(child, "close");
  return text.trim();
}

test("the log goes to the journal, to a file, or to a pipe without a name", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-log-"));
  const path = join(dir, "daemon.log");
  const file = await open(path, "w");
  t.is(await destination(file.fd, false), path);
  t.is(await destination(file.fd, true), "journal");
  t.is(await destination("pipe", false), "");
  await file.close();
  await rm(dir, { recursive: true });
});
