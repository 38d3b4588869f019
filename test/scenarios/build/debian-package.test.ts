/**
 * The Debian package and the single executable on a clean Debian with a real systemd, which `.ci/run` creates with
 * debootstrap. Tests reproducibility, contents, installation, upgrade during use, removal and purge, and the tour.
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
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { gunzipSync } from "node:zlib";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import packageJson from "../../../package.json" with { type: "json" };
import { completionScripts } from "../../../src/cli/completion/completion-scripts.ts";
import { ask, askWhile } from "../../support/ask-often.ts";
import { eventually } from "../../support/eventually.ts";
import { writeFiles, writePackage } from "../../support/packages.ts";
import { SystemdMachine } from "../../support/systemd.ts";
import { debian, debianTest, needsDebian } from "../../build/support/clean-debian.ts";
import { fastPacking } from "../../build/support/fast-packing.ts";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../../..", import.meta.url));
const deadlineMs = 60_000;
const { version } = packageJson;

/** @returns the path of the file */
async function pack(tree: string): Promise<string> {
  await run("dpkg-deb", ["--root-owner-group", "-Znone", "--build", tree, `${tree}.deb`]);
  return `${tree}.deb`;
}

/** A package with the Node that runs this test, because Debian's own is older than svc requires. */
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

/** The package again with a later version. */
async function packNext(deb: string, tree: string): Promise<string> {
  await run("dpkg-deb", ["--raw-extract", deb, tree]);
  const control = join(tree, "DEBIAN/control");
  const fields = await readFile(control, "utf8");
  await writeFile(control, fields.replace(`Version: ${version}\n`, `Version: ${version}+next\n`));
  await writeFile(join(tree, "usr/lib/svc/files/next"), "");
  return pack(tree);
}

/** @param umask of the build */
async function build(dir: string, umask: string): Promise<void> {
  const script = `umask ${umask}; exec "$0" src/build/packages.ts "$1"`;
  await run("sh", ["-c", script, process.execPath, dir], {
    cwd: root,
    env: { ...fastPacking, SOURCE_DATE_EPOCH: "1767225600" },
  });
}

let made: Promise<string> | undefined;
/** The built packages, built once for all tests. Resolves with their directory. */
function packages(): Promise<string> {
  return (made ??= makePackages());
}

async function makePackages(): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "svc-packages-"));
  await build(dir, "022");
  return dir;
}

test.after.always(async () => {
  if (made !== undefined) await rm(await made, { recursive: true, force: true });
});

test("packages are reproducible and contain all required files", async (t) => {
  t.timeout(10 * 60_000);
  const dir = await mkdtemp(join(tmpdir(), "svc-built-twice-"));
  try {
    const [one, other] = [await packages(), join(dir, "other")];
    await build(other, "077");
    const names = (await readdir(one)).sort();
    const executable = `svc-${version}-${process.platform}-${process.arch}`;
    t.deepEqual(
      names.filter((name) => !name.endsWith(".deb")),
      ["SHA256SUMS", executable, `${executable}.tar.gz`],
    );
    t.is(names.length, 4);
    for (const name of names) {
      t.true((await readFile(join(one, name))).equals(await readFile(join(other, name))), name);
    }

    const deb = names.find((name) => name.endsWith(".deb")) ?? "";
    const tarball = names.find((name) => name.endsWith(".tar.gz")) ?? "";
    const { stdout: checked } = await run("sha256sum", ["--check", "--strict", "SHA256SUMS"], { cwd: one });
    t.deepEqual(
      checked.trim().split("\n").sort(),
      [deb, executable, tarball].map((each) => `${each}: OK`).sort(),
    );

    const { stdout: fields } = await run("dpkg-deb", ["--field", join(one, deb)]);
    t.regex(fields, new RegExp(`^Package: svc\nVersion: ${version}\nArchitecture: (amd64|arm64)\n`));
    t.regex(fields, /^Depends: nodejs \(>= 24\), /m);
    t.regex(fields, /^Recommends: ca-certificates$/m);
    t.regex(fields, /^Suggests: bash-completion$/m);
    const { stdout: list } = await run("dpkg-deb", ["--contents", join(one, deb)]);
    t.notRegex(list, /^.{11}(?!root\/root)/m);
    t.notRegex(list, /^-.{7}w/m);
    t.regex(list, /\/koffi\.node$/m);
    t.notRegex(list, /musl/, "for another C library");

    const tree = join(dir, "tree");
    await run("dpkg-deb", ["--raw-extract", join(one, deb), tree]);
    t.true((await lstat(join(tree, "usr/bin/svc"))).isSymbolicLink());
    // The layout that the maintainer scripts create.
    await symlink("files", join(tree, "usr/lib/svc/current"));
    t.is(await svc(join(tree, "usr/bin/svc"), "--version"), `${version}\n`);
    t.regex(await svc(join(tree, "usr/bin/svc"), "--help"), /^Usage: svc /);
    t.regex(await svc(join(tree, "usr/bin/svc"), "app", "--help"), /^Usage: svc app /);
    const content = (path: string): Promise<string> => readFile(join(tree, path), "utf8");
    for (const [path, script] of [
      ["bash-completion/completions/svc", completionScripts.bash],
      ["zsh/vendor-completions/_svc", completionScripts.zsh],
      ["fish/vendor_completions.d/svc.fish", completionScripts.fish],
    ] as const)
      t.is(await content(join("usr/share", path)), script, path);
    const changelog = gunzipSync(await readFile(join(tree, "usr/share/doc/svc/changelog.gz"))).toString();
    t.is(changelog, await readFile(join(root, "CHANGELOG.md"), "utf8"));
    t.regex(await content("usr/lib/systemd/system/svc.service"), /^ExecStart=\/usr\/bin\/svc daemon$/m);
    t.notRegex(await content("usr/lib/systemd/system/svc.service"), /^DelegateSubgroup=/m);
    t.regex(await content("usr/lib/systemd/system/svc.service"), /^ExecStopPost=-/m);
    t.regex(await content("usr/lib/systemd/system/svc.socket"), /^ListenStream=\/run\/svc\/svc.sock$/m);
    for (const script of ["postinst", "prerm", "postrm"])
      await run("sh", ["-n", join(tree, "DEBIAN", script)]);
    t.regex(
      await content("DEBIAN/postinst"),
      /not started\. Next: sudo svc setup && sudo systemctl enable --now svc" >&2$/m,
    );

    const page = gunzipSync(await readFile(join(tree, "usr/share/man/man1/svc.1.gz"))).toString();
    t.regex(page, /^\.TH SVC 1 "2026-01-01" "svc /);
    for (const heading of [
      "svc start [id...]",
      "svc backup storage add <name>",
      "svc schedule add <trigger> <action>",
      "svc daemon",
      "svc daemon reload",
    ]) {
      t.true(page.includes(`.SS "${heading}`), heading);
    }
    t.false(page.includes('.SS "svc app start'), "each command is described once");

    const formats = {
      yaml: /^\.B health\.http\.path$/m,
      toml: /^\.nf$[^]*^#listen = \\\(dq127\.0\.0\.1:8420/m,
    };
    for (const [name, said] of Object.entries(formats)) {
      const file = join(tree, `usr/share/man/man5/svc.${name}.5.gz`);
      const format = gunzipSync(await readFile(file)).toString();
      t.regex(format, said, name);
      t.notRegex(format, /^'|^\.(?!TH|SH|TP|B |BR |nf|fi)/m, "nothing else is an instruction");
      const { stderr } = await run("man", ["--warnings", "--local-file", "-Tutf8", file], {
        env: { ...process.env, MANWIDTH: "100" },
      });
      t.is(stderr, "", name);
    }

    const bom = JSON.parse(await content("usr/lib/svc/files/bom.cdx.json")) as {
      components: { name: string; purl: string; licenses: object[] }[];
    };
    const bundled = new Set(bom.components.map(({ name }) => name));
    for (const name of ["commander", "@bufbuild/protobuf", "koffi", "yazl", "swagger-ui-dist"]) {
      t.true(bundled.has(name), name);
    }
    t.false(bundled.has("ava"));
    t.true(bom.components.some(({ purl }) => purl.startsWith("pkg:npm/%40bufbuild/protobuf@")));
    const licenses = await content("usr/share/doc/svc/copyright");
    for (const name of bundled) t.true(licenses.includes(`\n${name} `), name);
    t.true(licenses.startsWith(await readFile(join(root, "LICENSE"), "utf8")));

    const unpacked = join(dir, "unpacked");
    await mkdir(unpacked);
    await run("tar", ["--extract", "--file", join(one, tarball), "--directory", unpacked]);
    const ofTarball = join(unpacked, `svc-${version}`);
    t.is(await svc(join(ofTarball, "svc.cjs"), "--version"), `${version}\n`);
    for (const name of ["LICENSE", "LICENSES.txt", "bom.cdx.json"])
      t.is(await readFile(join(ofTarball, name), "utf8"), await content(`usr/lib/svc/files/${name}`), name);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});

async function svc(main: string, ...args: string[]): Promise<string> {
  const { stdout } = await run(main, args, {
    env: {
      PATH: `${dirname(process.execPath)}:${process.env["PATH"] ?? ""}`,
      HOME: "/nonexistent",
      XDG_CACHE_HOME: "/nonexistent",
    },
  });
  return stdout;
}

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
  // The index of all manual pages, which Debian rebuilds after each installation, takes longer than the default
  // timeout.
  await rm(machine.path("/var/lib/man-db/auto-update"), { force: true });
  await writePackage(machine.path("/root/kept"), 8080, { id: "kept" });
  const property = async (what: string, unit = "svc.service"): Promise<string> =>
    (await machine.systemctl("show", "--value", `--property=${what}`, unit)).trim();

  // The installation starts and enables nothing.
  await dpkg("--install", "/root/node.deb", "/root/svc.deb");
  for (const unit of ["svc.service", "svc.socket", "svc-tcp.socket"]) {
    t.is(await property("ActiveState", unit), "inactive", unit);
    t.is(await property("UnitFileState", unit), "disabled", unit);
  }
  t.is(await machine.run("svc", "--version"), `${version}\n`);
  t.regex(await machine.run("man", "-P", "cat", "svc"), /svc start \[id\.\.\.\]/);
  t.regex(await machine.run("man", "-P", "cat", "svc.yaml"), /health\.http\.path/);

  t.regex(
    await machine.run("svc", "setup"),
    /^wrote \/etc\/svc\/svc.toml\nkept {2}\/usr\/share\/bash-completion/,
  );
  t.is(await machine.run("svc", "daemon", "--check"), "the configuration is valid\n");
  await machine.systemctl("enable", "--now", "svc");
  t.is(await property("UnitFileState", "svc.socket"), "enabled");
  t.is(await property("UnitFileState", "svc-tcp.socket"), "enabled");
  await eventually(() => machine.run("svc", "ls"), deadlineMs);
  await machine.run("hostname", "unheard-of");
  const doctor = await machine.run("svc", "doctor");
  t.regex(doctor, /^ok +daemon /m);
  t.regex(doctor, /^warning +dns +unheard-of, this host's own name, .*\/etc\/hosts$/m);
  // Debian's own kill(1) is in a package that is not installed.
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
  // A new package from `svc package init` until the app responds, and one made from a compose file.
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
    // The daemon still runs, and its files are still installed.
    t.is(await property("MainPID"), pid);
    t.deepEqual(await runs(), [first]);
    t.false(existsSync(machine.path(`/usr/lib/svc/${first}/next`)), "no file of the new version");
    t.true(existsSync(machine.path("/usr/lib/svc/files/next")));
    t.is(await machine.run("svc", "--version"), `${version}\n`);
    // The remains of a configuration step that was killed.
    await symlink(first, machine.path("/usr/lib/svc/current.new"));
    await dpkg("--configure", "svc");
    await ask(socketPath);
  });
  const now = await readlink(machine.path("/usr/lib/svc/current"));
  t.true(existsSync(machine.path(`/usr/lib/svc/${now}/next`)));
  t.deepEqual(await runs(), [first, now].sort(), "the app's supervisor still uses the first version");
  t.log(`${answers.length} responses during an upgrade`);
  t.deepEqual(
    answers.filter((answer) => answer !== 200),
    [],
  );
  t.true(answers.length > 20);
  t.not(await property("MainPID"), pid);
  const after = await apps.getApp({ id: "kept" });
  t.deepEqual([after.state, after.startedAt], [before.state, before.startedAt]);

  // A daemon that a user started keeps its directory over any number of upgrades, because it loads some files only
  // later.
  await writeFiles(machine.path("/home/someone/.config/svc"), {
    "svc.toml": '[api]\nlisten = "127.0.0.1:0"\n',
  });
  await writePackage(machine.path("/home/someone/own"), 8070, { id: "own" });
  await machine.run("chown", "--recursive", "someone", "/home/someone");
  await machine.run("systemd-run", "--unit=own", "--uid=someone", "svc", "daemon");
  const own = [...asSomeone.slice(0, -1), "--socket", "/home/someone/.local/state/svc/svc.sock"];
  await eventually(() => machine.run(...own, "ls"), deadlineMs);
  for (const _upgrade of [1, 2]) await dpkg("--install", "/root/next.deb");
  t.true((await runs()).includes(now), "the user's daemon keeps the version that was new when it started");
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
  t.true(existsSync(machine.path("/var/lib/svc")), "apps are retained by default");
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
  `the single executable works on a clean Debian without Node: the tour, a restart, and damaged files${needsDebian}`,
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

    // The first daemon has unpacked its files system-wide; the next one finds one of them damaged.
    const programs = machine.path("/var/cache/svc/programs");
    const [id = ""] = await readdir(programs);
    t.regex(await readFile(join(programs, id, "LICENSES.txt"), "utf8"), /^Node\.js is licensed/m);
    const spoiled = join(programs, id, "run-as/helper.cjs");
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

/** Whether the app's port accepts connections. */
async function appAnswers(machine: SystemdMachine, isExpected: boolean): Promise<void> {
  const program = `fetch("http://127.0.0.1:8080").then(() => console.log(true), () => console.log(false))`;
  await eventually(
    async () => assert.equal((await machine.run("node", "-e", program)).trim(), String(isExpected)),
    deadlineMs,
  );
}
