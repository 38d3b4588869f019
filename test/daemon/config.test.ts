/** The configuration file: accepted and rejected values, and the default paths. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { parseConfig } from "../../src/daemon/config.ts";
import { defaultPaths, type PathEnvironment } from "../../src/daemon/paths.ts";
import type { SvcError } from "../../src/errors.ts";
import { main } from "../support/svc-main.ts";
import { exposureWarning } from "../../src/daemon/exposure.ts";
import { startDaemon } from "../support/daemon.ts";

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
