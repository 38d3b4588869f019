/**
 * The Debian package on a clean Debian with a real systemd: installed, started, upgraded under an app and a client, removed
 * and purged. `.ci/run` makes that Debian with debootstrap.
 */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import {
  copyFile,
  lstat,
  mkdir,
  mkdtemp,
  readFile,
  readdir,
  readlink,
  rm,
  symlink,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import packageJson from "../../package.json" with { type: "json" };
import { ask, askWhile } from "../support/ask-often.ts";
import { eventually } from "../support/eventually.ts";
import { writeFiles, writePackage } from "../support/packages.ts";
import { SystemdMachine } from "../support/systemd.ts";
import { debian, debianTest, needsDebian } from "./support/clean-debian.ts";
import { fastPacking } from "./support/fast-packing.ts";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));
const deadlineMs = 60_000;
const { version } = packageJson;

/** @returns the file */
async function pack(tree: string): Promise<string> {
  await run("dpkg-deb", ["--root-owner-group", "-Znone", "--build", tree, `${tree}.deb`]);
  return `${tree}.deb`;
}

/** A package of the Node that runs this test: Debian's own is older than svc needs. */
async function packNode(tree: string): Promise<string> {
  await mkdir(join(tree, "DEBIAN"), { recursive: true, mode: 0o755 });
  await mkdir(join(tree, "usr/bin"), { recursive: true });
  await copyFile(process.execPath, join(tree, "usr/bin/node"));
  const fields = [
    "Package: nodejs",
    `Version: ${process.versions.node}`,
    "Architecture: all",
    "Maintainer: a test",
  ];
  await writeFile(join(tree, "DEBIAN/control"), [...fields, "Description: Node.js", ""].join("\n"));
  return pack(tree);
}

/** The package again, as a later version. */
async function packNext(deb: string, tree: string): Promise<string> {
  await run("dpkg-deb", ["--raw-extract", deb, tree]);
  const control = join(tree, "DEBIAN/control");
  const fields = await readFile(control, "utf8");
  await writeFile(control, fields.replace(`Version: ${version}\n`, `Version: ${version}+next\n`));
  await writeFile(join(tree, "usr/lib/svc/files/next"), "");
  return pack(tree);
}

let made: Promise<string> | undefined;
/** What people install, made once for all tests that do. Resolves with the directory. */
function packages(): Promise<string> {
  return (made ??= makePackages());
}

async function makePackages(): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "svc-packages-"));
  await run(process.execPath, ["src/build/packages.ts", dir], { cwd: root, env: fastPacking });
  return dir;
}

test.after.always(async () => {
  if (made !== undefined) await rm(await made, { recursive: true, force: true });
});

debianTest(`the package on a clean Debian, from its installation to its purge${needsDebian}`, async (t) => {
  t.timeout(15 * 60_000);
  const dir = await mkdtemp(join(tmpdir(), "svc-debian-"));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const out = await packages();
  const deb = join(out, (await readdir(out)).find((file) => file.endsWith(".deb")) ?? "");
  const files = {
    "svc.deb": deb,
    "next.deb": await packNext(deb, join(dir, "next")),
    "node.deb": await packNode(join(dir, "node")),
  };

  await using machine = await SystemdMachine.withRoot(debian);
  await machine.boot();
  const dpkg = (...args: string[]): Promise<string> =>
    machine.run("env", "DEBIAN_FRONTEND=noninteractive", "dpkg", ...args);
  for (const [file, path] of Object.entries(files)) await copyFile(path, machine.path(`/root/${file}`));
  await writePackage(machine.path("/root/kept"), 8080, { id: "kept" });
  const property = async (what: string, unit = "svc.service"): Promise<string> =>
    (await machine.systemctl("show", "--value", `--property=${what}`, unit)).trim();

  // Nothing is started or enabled unasked.
  const install = "DEBIAN_FRONTEND=noninteractive dpkg --install /root/node.deb /root/svc.deb 2>&1";
  const said = await machine.run("sh", "-c", install);
  for (const unit of ["svc.service", "svc.socket"]) {
    t.is(await property("ActiveState", unit), "inactive", unit);
    t.is(await property("UnitFileState", unit), "disabled", unit);
  }
  t.is(await machine.run("svc", "--version"), `${version}\n`);
  for (const pack of ["first-stage", "ahead", "daemon"]) {
    const compiled = `/usr/lib/svc/current/chunks/${pack}.code`;
    t.true(
      existsSync(machine.path(compiled)),
      `${pack}: compiled for the Node that is here; the installation said ${said}`,
    );
  }
  t.regex(await machine.run("man", "-P", "cat", "svc"), /svc app start <id\.\.\.>/);
  t.regex(await machine.run("man", "-P", "cat", "svc.yaml"), /health\.http\.path/);

  t.regex(
    await machine.run("svc", "setup"),
    /^wrote \/etc\/svc\/svc.toml\nkept {2}\/usr\/share\/bash-completion/,
  );
  t.is(await machine.run("svc", "daemon", "--check"), "the configuration is fine\n");
  await machine.systemctl("enable", "--now", "svc");
  t.is(await property("UnitFileState", "svc.socket"), "enabled");
  await eventually(() => machine.run("svc", "ls"), deadlineMs);
  await machine.run("hostname", "unheard-of");
  const doctor = await machine.run("svc", "doctor");
  t.regex(doctor, /^ok +daemon /m);
  t.regex(doctor, /^warning +dns +unheard-of, this host's own name, .*\/etc\/hosts$/m);
  // Debian's own kill(1) is in a package that is not there.
  await writeFile(machine.path("/etc/svc/svc.toml"), '[log]\nlevel = "debug"\n');
  await machine.systemctl("reload", "svc");
  await eventually(
    async () => assert.match(await machine.run("journalctl", "--unit", "svc"), /"applied":\["log\.level"\]/),
    deadlineMs,
  );
  await machine.run("svc", "install", "/root/kept", "--start");
  const apps = machine.client(AppService);
  const before = await apps.getApp({ id: "kept" });
  t.is(before.state, "RUNNING");
  // A package of one's own, from nothing to where it answers, and one made of a compose file.
  await machine.run("svc", "package", "init", "/root/fresh", "--template", "node", "--yes");
  await machine.run("svc", "package", "check", "/root/fresh");
  t.regex(
    await machine.run("svc", "install", "/root/fresh", "--set", "port=8090", "--start"),
    /^Running fresh 1\.0\.0/,
  );
  await machine.run("svc", "app", "remove", "fresh", "--yes");
  await mkdir(machine.path("/root/stack"));
  const compose = 'services: { web: { image: "example/web:1", ports: ["${PORT:-8080}:80"] } }\n';
  await writeFile(machine.path("/root/stack/compose.yaml"), compose);
  await machine.run("svc", "package", "init", "/root/stack", "--yes");
  t.regex(await readFile(machine.path("/root/stack/svc.yaml"), "utf8"), /compose:\n {2}file: compose\.yaml/);
  await machine.run("useradd", "--create-home", "someone");
  const asSomeone = [
    "setpriv",
    "--reset-env",
    "--reuid=someone",
    "--regid=someone",
    "--clear-groups",
    "svc",
    "ls",
  ];
  t.notRegex(await machine.run(...asSomeone), /kept/);

  const socketPath = machine.path("/run/svc/svc.sock");
  const pid = await property("MainPID");
  const runs = async (): Promise<string[]> =>
    (await readdir(machine.path("/usr/lib/svc"))).filter((name) => name.startsWith("run.")).sort();
  const [first = ""] = await runs();
  const answers = await askWhile(socketPath, async () => {
    await dpkg("--unpack", "/root/next.deb");
    // The daemon still runs, and so does what it lies beside.
    t.is(await property("MainPID"), pid);
    t.deepEqual(await runs(), [first]);
    t.false(existsSync(machine.path(`/usr/lib/svc/${first}/next`)), "no file of the new version");
    t.true(existsSync(machine.path("/usr/lib/svc/files/next")));
    t.is(await machine.run("svc", "--version"), `${version}\n`);
    // What is left of a configuration that was killed in the middle.
    await symlink(first, machine.path("/usr/lib/svc/current.new"));
    await dpkg("--configure", "svc");
    await ask(socketPath);
  });
  const now = await readlink(machine.path("/usr/lib/svc/current"));
  t.true(existsSync(machine.path(`/usr/lib/svc/${now}/next`)));
  t.deepEqual(await runs(), [first, now].sort(), "the supervisor of the app goes on in the first");
  t.log(`${answers.length} answers over an upgrade`);
  t.deepEqual(
    answers.filter((answer) => answer !== 200),
    [],
  );
  t.true(answers.length > 20);
  t.not(await property("MainPID"), pid);
  const after = await apps.getApp({ id: "kept" });
  t.deepEqual([after.state, after.startedAt], [before.state, before.startedAt]);

  // A daemon that a user runs goes on in its directory over any number of upgrades, and finds there what it loads only then.
  await writeFiles(machine.path("/home/someone/.config/svc"), {
    "svc.toml": '[api]\nlisten = "127.0.0.1:0"\n',
  });
  await writePackage(machine.path("/home/someone/own"), 8070, { id: "own" });
  await machine.run("chown", "--recursive", "someone", "/home/someone");
  await machine.run("systemd-run", "--unit=own", "--uid=someone", "svc", "daemon");
  const own = [...asSomeone.slice(0, -1), "--socket", "/home/someone/.local/state/svc/svc.sock"];
  await eventually(() => machine.run(...own, "ls"), deadlineMs);
  for (const _upgrade of [1, 2]) await dpkg("--install", "/root/next.deb");
  t.true((await runs()).includes(now), "the user's daemon goes on in what was the new one");
  t.regex(await machine.run(...own, "install", "/home/someone/own"), /^Installed own/);
  await machine.systemctl("stop", "own");

  await dpkg("--remove", "svc");
  t.is(await property("ActiveState", "svc.socket"), "inactive");
  await t.throwsAsync(lstat(socketPath), { code: "ENOENT" });
  t.false(existsSync(machine.path("/usr/lib/svc")), "no file of the package is left");
  await appAnswers(machine, true);
  await dpkg("--install", "/root/next.deb");
  await machine.systemctl("start", "svc");
  await eventually(async () => {
    const { state, startedAt } = await apps.getApp({ id: "kept" });
    assert.deepEqual([state, startedAt], [before.state, before.startedAt]);
  }, deadlineMs);

  await dpkg("--purge", "svc");
  t.true(existsSync(machine.path("/var/lib/svc")), "nobody was asked: apps are kept");
  t.false(existsSync(machine.path("/var/cache/svc")));
  await appAnswers(machine, true);

  await dpkg("--install", "/root/next.deb");
  await machine.run("sh", "-c", "echo svc svc/keep-apps boolean false | debconf-set-selections");
  await dpkg("--purge", "svc");
  for (const path of ["/var/lib/svc", "/etc/svc"]) t.false(existsSync(machine.path(path)), path);
  await appAnswers(machine, false);
  t.is((await machine.run("sh", "-c", "systemctl list-unit-files | grep -c '^svc' || true")).trim(), "0");
});

debianTest(
  `the single executable on a clean Debian without Node: the tour, a restart, and files that are spoiled${needsDebian}`,
  async (t) => {
    t.timeout(15 * 60_000);
    const executable = `svc-${version}-${process.platform}-${process.arch}`;
    await using machine = await SystemdMachine.withRoot(debian);
    await machine.boot();
    await copyFile(join(await packages(), executable), machine.path("/usr/local/bin/svc"));
    await t.throwsAsync(machine.run("node", "--version"));

    const svc = (...args: string[]): Promise<string> => machine.run("svc", ...args);
    t.regex(await svc("setup"), /^wrote .*\/svc\.service$/m);
    await machine.systemctl("enable", "--now", "svc");
    await eventually(async () => assert.match(await svc("doctor"), /^ok +daemon /m), deadlineMs);
    const exec = '[sh, -c, "echo \\"$GREETING\\"; exec sleep 100000"]';
    await writeFiles(machine.path("/root/shell"), {
      "svc.yaml": `id: shell\nname: A shell\nversion: "1"\nprocess: { exec: ${exec}, env: { GREETING: hello } }\n`,
    });
    await svc("install", "/root/shell", "--start");
    const apps = machine.client(AppService);
    const before = await apps.getApp({ id: "shell" });
    t.is(before.state, "RUNNING");
    await eventually(async () => assert.match(await svc("logs", "shell"), /hello/), deadlineMs);
    await svc("backup", "create", "shell");
    t.regex(await svc("backup", "ls", "shell"), /shell-/);
    await svc("schedule", "add", "daily@03:00", "shell", "--command", "echo of the job", "--id", "job");
    t.regex(await svc("schedule", "run", "job"), /of the job/);
    await machine.run("useradd", "--create-home", "someone");
    const asSomeone = ["setpriv", "--reset-env", "--reuid=someone", "--regid=someone", "--clear-groups"];
    t.notRegex(await machine.run(...asSomeone, "svc", "ls"), /shell/);

    // The first daemon has unpacked its files for everybody; the next one finds one of them spoiled.
    const programs = machine.path("/var/cache/svc/programs");
    const [id = ""] = await readdir(programs);
    t.regex(await readFile(join(programs, id, "LICENSES.txt"), "utf8"), /^Node\.js is licensed/m);
    const spoiled = join(programs, id, "identity/helper.cjs");
    const whole = await readFile(spoiled, "utf8");
    await writeFile(spoiled, "");
    await machine.systemctl("restart", "svc");
    await eventually(async () => {
      const { state, startedAt } = await apps.getApp({ id: "shell" });
      assert.deepEqual([state, startedAt], [before.state, before.startedAt]);
    }, deadlineMs);
    t.is(await readFile(spoiled, "utf8"), whole);
    await svc("app", "stop", "shell");
    t.is((await apps.getApp({ id: "shell" })).state, "STOPPED");
  },
);

/** Whether something listens at the app's port. */
async function appAnswers(machine: SystemdMachine, isExpected: boolean): Promise<void> {
  const program = `fetch("http://127.0.0.1:8080").then(() => console.log(true), () => console.log(false))`;
  await eventually(
    async () => assert.equal((await machine.run("node", "-e", program)).trim(), String(isExpected)),
    deadlineMs,
  );
}
