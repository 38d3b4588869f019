/** `svc doctor` on this host, both healthy and misconfigured. */
import { chmod, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { once } from "node:events";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { cgroupFinding } from "../../src/doctor/cgroups.ts";
import { listenersAt } from "../../src/doctor/listeners.ts";
import { startDaemon } from "../support/daemon.ts";
import { runSvc, type SvcRun } from "./support/run-svc.ts";

interface Finding {
  readonly check: string;
  readonly state: "ok" | "warning" | "problem";
  readonly text: string;
}

const uid = process.getuid?.() ?? 0;

function examine(configFile: string, ...flags: string[]): Promise<SvcRun> {
  return runSvc(["doctor", "--config", configFile, ...flags], { host: { uid } });
}

async function findingsOf(configFile: string): Promise<{ exitCode: number; found: Map<string, Finding> }> {
  const { exitCode, stdout } = await examine(configFile, "--json");
  const { findings } = JSON.parse(stdout) as { findings: Finding[] };
  return { exitCode, found: new Map(findings.map((finding) => [finding.check, finding])) };
}

async function place(t: ExecutionContext, config: string): Promise<{ directory: string; file: string }> {
  const directory = await mkdtemp(join(tmpdir(), "svc-doctor-"));
  t.teardown(() => rm(directory, { recursive: true }));
  const file = join(directory, "svc.toml");
  await writeFile(file, config);
  await mkdir(join(directory, "store"));
  return { directory, file };
}

test("a host with a daemon passes all checks", async (t) => {
  await using daemon = await startDaemon();
  const { exitCode, found } = await findingsOf(daemon.configFile);
  t.is(exitCode, 0);
  t.deepEqual(
    [...found.values()].filter(({ state }) => state === "problem"),
    [],
  );
  t.is(found.size, 17);
  for (const check of ["node", "git", "daemon", "port", "exposure", "permissions", "store", "configuration"])
    t.is(found.get(check)?.state, "ok", check);
  t.regex(found.get("store")?.text ?? "", /is intact$/);
  const { stdout, exitCode: again } = await examine(daemon.configFile);
  t.is(again, 0);
  t.regex(stdout, /^ok +git +git version /m);
});

test("svc doctor with --socket checks the configuration of the daemon there", async (t) => {
  await using daemon = await startDaemon();
  const { stdout } = await runSvc(["--socket", daemon.socketPath, "doctor", "--json"], { host: { uid } });
  const { findings } = JSON.parse(stdout) as { findings: Finding[] };
  const textOf = (name: string): string | undefined => findings.find(({ check }) => check === name)?.text;
  t.is(textOf("configuration"), daemon.configFile);
  t.is(textOf("daemon"), `responds on ${daemon.socketPath}`);
  t.regex(textOf("store") ?? "", /is intact$/);
  const other = await runSvc(["--socket", daemon.socketPath, "doctor"], {
    host: { uid: uid === 0 ? 1000 : 0 },
  });
  t.not(other.exitCode, 0, other.stdout);
  t.regex(
    other.stderr,
    uid === 0 ? /is root's, so only root can .*; run it with sudo\n$/ : /as that user\n$/,
  );
});

test("svc doctor says that it cannot check another host, or a daemon that does not respond", async (t) => {
  const remote = await runSvc(["--host", "ssh://attic", "doctor"]);
  t.is(remote.exitCode, 2);
  t.is(
    remote.stderr,
    "svc: svc doctor checks only this host, not ssh://attic: run it there, or check this host with --node local\n",
  );
  const silent = await runSvc(["--socket", "/nonexistent/svc.sock", "doctor"]);
  t.is(silent.exitCode, 6);
  t.regex(silent.stderr, /\/nonexistent\/svc\.sock/);
});

test("in a checkout doctor reads the configuration that npm start has written", async (t) => {
  const { directory, file } = await place(
    t,
    `[api]\nlisten = "127.0.0.1:0"\n[docker]\nsocket = "here.sock"\n`,
  );
  const sockets = { checkoutDir: directory, system: join(directory, "a"), user: join(directory, "b") };
  const { stdout } = await runSvc(["doctor"], { host: { uid, sockets } });
  t.regex(stdout, new RegExp(`not found at ${join(directory, "here.sock")}`), file);
});

test("problems are reported with a fix, and by the exit code", async (t) => {
  const taken = createServer().listen(0, "0.0.0.0");
  await once(taken, "listening");
  t.teardown(() => taken.close());
  const { port } = taken.address() as AddressInfo;
  const { directory, file } = await place(
    t,
    [
      `[api]\nlisten = "0.0.0.0:${port}"\nsocket = "svc.sock"`,
      `[store]\ndir = "store"`,
      `[docker]\nsocket = "engine.sock"`,
      `[[sources]]\nname = "nowhere"\nurl = "https://nowhere.invalid/index.yaml"`,
    ].join("\n"),
  );
  await writeFile(join(directory, "api.token"), "secret\n");
  await chmod(join(directory, "api.token"), 0o644);
  await writeFile(join(directory, "store/svc.db"), "this is not a database, however long it may be");
  const { exitCode, found } = await findingsOf(file);
  t.is(exitCode, 1);
  for (const [check, state, text] of [
    ["engine", "warning", /engine\.sock, so container and compose apps cannot run: install Docker/],
    ["dns", "warning", /^nowhere\.invalid cannot be resolved: see/],
    ["daemon", "warning", /svc\.sock; start it/],
    ["port", "problem", /\(EADDRINUSE\): another program listens there.*set \[api\] listen/],
    ["exposure", "warning", /without TLS/],
    ["permissions", "problem", /others may use .*api\.token: chmod go= it/],
    ["store", "problem", /svc\.db is damaged \(.+\): restart the daemon/],
  ] as const) {
    t.is(found.get(check)?.state, state, check);
    t.regex(found.get(check)?.text ?? "", text, check);
  }
});

test("a socket that is not a container engine, and a store that does not exist yet, are reported", async (t) => {
  const { directory, file } = await place(
    t,
    `[api]\nlisten = "127.0.0.1:0"\n[store]\ndir = "store"\n[docker]\nsocket = "engine.sock"\n`,
  );
  const mute = createServer((socket) => socket.end("HTTP/1.1 200 OK\r\n\r\n{}"));
  mute.listen(join(directory, "engine.sock"));
  await once(mute, "listening");
  t.teardown(() => mute.close());
  const { found } = await findingsOf(file);
  t.is(found.get("engine")?.state, "warning");
  t.regex(found.get("engine")?.text ?? "", /is it a container engine\?/);
  t.regex(found.get("store")?.text ?? "", /the first start creates it/);
});

test("a user of root's daemon sees only checks of the host, and how root can check the rest", async (t) => {
  await using daemon = await startDaemon();
  const directory = await mkdtemp(join(tmpdir(), "svc-doctor-"));
  t.teardown(() => rm(directory, { recursive: true }));
  const sockets = {
    checkoutDir: undefined,
    system: daemon.socketPath,
    user: join(directory, "svc.sock"),
  };
  const { stdout } = await runSvc(["doctor"], { host: { uid: uid + 1000, home: directory, sockets } });
  t.deepEqual(stdout.match(/(?<=^\w+ +)\w+/gm), ["node", "git", "cgroups", "clock", "time", "daemon"]);
  t.regex(stdout, /^ok +daemon +responds on .*; root can check .*: sudo svc doctor$/m);
});

test("the daemon's cgroup subtree is checked", async (t) => {
  const { directory } = await place(t, "");
  const root = join(directory, "cgroup");
  for (const name of ["self", "41", "42"]) await mkdir(join(directory, name));
  await mkdir(root);
  await writeFile(join(directory, "self/mountinfo"), `41 31 0:38 / ${root} rw - cgroup2 cgroup2 rw\n`);
  await writeFile(join(root, "cgroup.controllers"), "cpuset cpu io pids\n");
  await writeFile(join(directory, "41/cgroup"), "0::/system.slice/svc.service/daemon\n");
  await writeFile(join(directory, "42/cgroup"), "0::/user.slice/session-1.scope\n");
  const finding = async (...pids: number[]): Promise<string> => {
    const { state, text } = await cgroupFinding(pids, directory);
    return `${state}: ${text}`;
  };
  t.regex(await finding(41), /^warning: the controllers memory are missing .*: enable them/);
  await writeFile(join(root, "cgroup.controllers"), "cpuset cpu io memory pids\n");
  t.regex(await finding(41), /^ok: .* with a subtree for the daemon$/);
  t.regex(await finding(42), /^warning: the daemon has no subtree of its own, .* Delegate=yes/);
  t.regex(await finding(), /^ok: .* if the daemon's unit has Delegate=yes$/);
});

test("the daemon is found by its socket", async (t) => {
  await using daemon = await startDaemon();
  t.deepEqual(await listenersAt(daemon.socketPath), [daemon.pid]);
  t.deepEqual(await listenersAt("/nonexistent"), []);
});

test("the other checks use the defaults if the configuration is invalid", async (t) => {
  const { file } = await place(t, "[api]\nlistn = 1\n");
  for (const [config, why] of [
    [file, /svc\.toml: api\.listn.*; the other checks use the defaults$/],
    [`${file}.missing`, /^there is no configuration file .*\.missing; the other checks/],
  ] as const) {
    const { exitCode, found } = await findingsOf(config);
    t.is(exitCode, 1);
    t.is(found.get("configuration")?.state, "problem");
    t.regex(found.get("configuration")?.text ?? "", why);
    t.is(found.size, 17);
    t.is(found.get("git")?.state, "ok");
  }
});
