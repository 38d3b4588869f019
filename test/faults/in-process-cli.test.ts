/** A CLI that works in-process holds its operation: a daemon that starts at the same time does not roll it back. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { eventually, nextEvent } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { main } from "../support/svc-main.ts";
import { asUserWithoutSvc } from "../support/without-svc.ts";

/** A home directory for a regular user. */
async function createHome() {
  const dir = await mkdtemp(join(tmpdir(), "svc-home-"));
  await chmod(dir, 0o777);
  const env = {
    PATH: process.env["PATH"] ?? "",
    HOME: dir,
    XDG_STATE_HOME: join(dir, "state"),
    XDG_CONFIG_HOME: join(dir, "config"),
    XDG_RUNTIME_DIR: join(dir, "runtime"),
    XDG_CACHE_HOME: join(dir, "cache"),
  };
  const svc = (...args: string[]) => {
    const [command = "", ...rest] = [...asUserWithoutSvc, process.execPath, main, ...args];
    const child = spawn(command, rest, { env, stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (chunk) => (output += String(chunk)));
    return { child, output: () => output };
  };
  return { dir, svc, [Symbol.asyncDispose]: () => rm(dir, { recursive: true, force: true, maxRetries: 3 }) };
}

/** The content of a checkout while it is built: the package, and the limit of npm's search. */
const builds = ["node_modules", "server.mjs", "svc.yaml"];

test("a starting daemon does not interrupt a running in-process install", async (t) => {
  t.timeout(120_000);
  await using home = await createHome();
  const dir = join(home.dir, "package");
  await writePackage(dir, await freePort());
  const gate = join(home.dir, "gate");
  await writeFile(
    join(dir, "svc.yaml"),
    `id: slow
name: Slow
version: "1"
process:
  exec: [node, server.mjs]
  build: [{ exec: [sh, -c, "until test -e ${gate}; do sleep 0.05; done"] }]
`,
  );
  await mkdir(join(home.dir, "config", "svc"), { recursive: true });
  await writeFile(join(home.dir, "config", "svc", "svc.toml"), '[api]\nlisten = "127.0.0.1:0"\n');
  await chmod(join(home.dir, "config"), 0o777);
  await chmod(join(home.dir, "config", "svc"), 0o777);
  const install = home.svc("install", dir);
  const installed = once(install.child, "exit");
  const appsDir = join(home.dir, "state", "svc", "apps");
  await eventually(
    async () => assert.deepEqual(await readdir(join(appsDir, "slow", "repo")), builds),
    30_000,
  );

  const daemon = home.svc("daemon");
  await eventually(() => assert.match(daemon.output(), /svc is ready/), 30_000);
  const list = home.svc("ls", "--json");
  await nextEvent(list.child, "exit");
  t.regex(list.output(), /INSTALLING/, "the daemon shows the CLI's operation");
  // Longer than the daemon's interval for finding interrupted operations.
  await new Promise((resolve) => setTimeout(resolve, 7_000));
  await writeFile(gate, "");
  const [exitCode] = (await installed) as [number | null];
  t.is(exitCode, 0, install.output());
  await eventually(async () => {
    const after = home.svc("ls", "--json");
    await nextEvent(after.child, "exit");
    assert.match(after.output(), /"state": ?"STOPPED"/);
  });
  daemon.child.kill("SIGTERM");
  await nextEvent(daemon.child, "exit");
});

test("an install whose CLI was killed is rolled back by the next daemon", async (t) => {
  t.timeout(120_000);
  await using home = await createHome();
  const dir = join(home.dir, "package");
  await writePackage(dir, await freePort());
  await writeFile(
    join(dir, "svc.yaml"),
    'id: slow\nname: Slow\nversion: "1"\nprocess:\n  exec: [node, server.mjs]\n  build: [{ exec: [sleep, "60"] }]\n',
  );
  await mkdir(join(home.dir, "config", "svc"), { recursive: true });
  await writeFile(join(home.dir, "config", "svc", "svc.toml"), '[api]\nlisten = "127.0.0.1:0"\n');
  await chmod(join(home.dir, "config"), 0o777);
  await chmod(join(home.dir, "config", "svc"), 0o777);
  const install = home.svc("install", dir);
  const appsDir = join(home.dir, "state", "svc", "apps");
  await eventually(
    async () => assert.deepEqual(await readdir(join(appsDir, "slow", "repo")), builds),
    30_000,
  );
  install.child.kill("SIGKILL");
  await nextEvent(install.child, "exit");
  const daemon = home.svc("daemon");
  await eventually(() => assert.match(daemon.output(), /svc is ready/), 30_000);
  await eventually(async () => assert.deepEqual(await readdir(appsDir), []), 20_000);
  daemon.child.kill("SIGTERM");
  await nextEvent(daemon.child, "exit");
  t.pass();
});
