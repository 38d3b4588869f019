/** The configuration file: what it may say, what is refused, and where things lie without it. */
import test from "ava";
import { parseConfig } from "../../src/daemon/config.ts";
import { defaultPaths, type PathEnvironment } from "../../src/daemon/paths.ts";
import type { SvcError } from "../../src/errors.ts";

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

test("without a file, root serves everybody and a user themselves", (t) => {
  const system = parseConfig({}, "/etc/svc/svc.toml", root);
  t.like(system, { mode: "system", tokenFile: "/etc/svc/api.token" });
  t.like(system.api, { listen: { host: "127.0.0.1", port: 8420 }, socket: "/run/svc/svc.sock" });
  t.is(system.store.dir, "/var/lib/svc");
  t.is(system.docker.socket, "/var/run/docker.sock");
  t.false(system.apps.path.includes("/opt/bin"));
  t.deepEqual(system.apps.buildEnv, { SSL_CERT_FILE: "/ca.pem" }, "a proxy's password is not every user's");
  const own = parseConfig({}, "/home/u/.config/svc/svc.toml", user);
  t.like(own, { mode: "user", tokenFile: "/home/u/.config/svc/api.token" });
  t.is(own.api.socket, "/run/user/1000/svc/svc.sock");
  t.is(own.store.dir, "/home/u/.local/state/svc");
  t.deepEqual(own.apps.path, ["/opt/bin", "/bin"]);
  t.deepEqual(own.apps.buildEnv, { HTTPS_PROXY: "http://u:p@proxy" });
});

test("without a runtime directory a user's socket lies in the state directory", (t) => {
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
  "a table that is none": { document: { api: 7 }, fields: ["api"] },
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
  "an environment that is none": {
    document: { apps: { build_env: { "A B": "x" } } },
    fields: ["apps.build_env"],
  },
  "a socket that is no path": { document: { docker: { socket: true } }, fields: ["docker.socket"] },
  "an address that is none": {
    document: { docker: { publish_address: "localhost" } },
    fields: ["docker.publish_address"],
  },
  "no reboot command": { document: { system: { reboot_command: [] } }, fields: ["system.reboot_command"] },
  "an unknown level": { document: { log: { level: "loud" } }, fields: ["log.level"] },
  "several at once": {
    document: { log: { level: "loud" }, store: { dir: 7 } },
    fields: ["log.level", "store.dir"],
  },
};

for (const [name, { document, fields }] of Object.entries(refused)) {
  test(`${name} is refused by its key`, (t) => {
    const error = t.throws<SvcError<"invalid_request">>(() =>
      parseConfig(document, "/etc/svc/svc.toml", root),
    );
    t.is(error.reason, "invalid_request");
    t.deepEqual(error.payload?.violations?.map(({ field }) => field).toSorted(), fields.toSorted());
    t.true(error.message.startsWith("/etc/svc/svc.toml: "));
  });
}
