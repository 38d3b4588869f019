/**
 * The package's maintainer scripts on a clean Debian, step by step, with a dummy program and a `systemctl` that only
 * records its arguments. `debian-package.test.ts` uses the real ones.
 */
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import {
  chmod,
  copyFile,
  cp,
  mkdir,
  mkdtemp,
  readFile,
  readdir,
  readlink,
  rm,
  symlink,
  writeFile,
} from "node:fs/promises";
import { existsSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { ExecutionContext } from "ava";
import { eventually } from "../../support/eventually.ts";
import { debian, debianTest, needsDebian } from "../../build/support/clean-debian.ts";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../../..", import.meta.url));

const program = (version: number): string => `#!/bin/sh
echo ${version}
`;

/** @returns the path of the file */
async function pack(dir: string, version: number): Promise<string> {
  const tree = join(dir, String(version));
  const files = join(tree, "usr/lib/svc/files");
  await mkdir(files, { recursive: true });
  await mkdir(join(tree, "usr/bin"));
  await cp(join(root, "packaging/debian"), join(tree, "DEBIAN"), { recursive: true });
  for (const script of ["postinst", "prerm", "postrm"]) await chmod(join(tree, "DEBIAN", script), 0o755);
  const fields = ["Package: svc", `Version: ${version}`, "Architecture: all", "Maintainer: a test"];
  await writeFile(join(tree, "DEBIAN/control"), [...fields, "Description: a test", ""].join("\n"));
  await writeFile(join(files, "svc.cjs"), program(version));
  await chmod(join(files, "svc.cjs"), 0o755);
  await writeFile(join(files, "supervisor"), "sleep 1000; :\n");
  await symlink("../lib/svc/current/svc.cjs", join(tree, "usr/bin/svc"));
  await run("dpkg-deb", ["--root-owner-group", "-Znone", "--build", tree, `${tree}.deb`]);
  return `${tree}.deb`;
}

interface Debian {
  /** The path on this host. */
  readonly path: (inside: string) => string;
  /** Runs a shell script; resolves with its stdout and stderr. */
  readonly sh: (script: string) => Promise<string>;
  readonly install: (version: number) => Promise<void>;
  /** The arguments of `systemctl` since the last call of this function. */
  readonly told: () => Promise<string[]>;
  /** The version directories. */
  readonly runs: () => Promise<string[]>;
  readonly current: () => Promise<string>;
}

/** A clean Debian that is removed after the test, with packages of four versions. */
async function openDebian(t: ExecutionContext): Promise<Debian> {
  const dir = await mkdtemp(join(tmpdir(), "svc-scripts-"));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const debs = await Promise.all([1, 2, 3, 4].map((version) => pack(dir, version)));
  await mkdir(join(dir, "box"));
  const box = `mount -t tmpfs tmpfs "$1" && cd "$1" && mkdir upper work root &&
    mount -t overlay overlay -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" root &&
    mount -t proc proc root/proc && exec chroot root sh -c "touch /ready; exec sleep infinity"`;
  const namespaces = ["--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"];
  const child = spawn("unshare", [...namespaces, "sh", "-c", box, "sh", join(dir, "box"), debian], {
    stdio: ["ignore", "ignore", "inherit"],
  });
  t.teardown(() => child.kill("SIGKILL"));
  const pid = await eventually(async () => {
    const children = await readFile(`/proc/${child.pid ?? 0}/task/${child.pid ?? 0}/children`, "utf8");
    assert.ok(existsSync(`/proc/${Number(children)}/root/ready`));
    return Number(children);
  });
  const path = (inside: string): string => `/proc/${pid}/root${inside}`;
  for (const [at, deb] of debs.entries()) await copyFile(deb, path(`/root/${at + 1}.deb`));
  const systemctl =
    '#!/bin/sh\n[ "$1" = --version ] && exec cat /root/systemd-version\necho "$@" >> /root/told\n';
  await writeFile(path("/usr/bin/systemctl.new"), systemctl, { mode: 0o755 });
  const sh = async (script: string): Promise<string> => {
    const env = { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", DEBIAN_FRONTEND: "noninteractive" };
    const { stdout, stderr } = await run(
      "nsenter",
      [`--target=${pid}`, "--mount", "--pid", "--root", "--wd", "sh", "-ec", script],
      { env },
    );
    return stdout + stderr;
  };
  await sh("mv /usr/bin/systemctl.new /usr/bin/systemctl; mkdir -p /run/systemd/system");
  return {
    ...{ path, sh },
    install: async (version) => {
      await sh(`dpkg --install /root/${version}.deb`);
    },
    told: async () =>
      (await sh("cat /root/told 2>/dev/null || true; rm -f /root/told")).split("\n").slice(0, -1),
    runs: async () => (await readdir(path("/usr/lib/svc"))).filter((name) => name.startsWith("run.")).sort(),
    current: () => readlink(path("/usr/lib/svc/current")),
  };
}

debianTest(
  `an installation starts nothing, and an upgrade keeps the versions that are still running${needsDebian}`,
  async (t) => {
    t.timeout(120_000);
    const { path, sh, install, told, runs, current } = await openDebian(t);
    await install(1);
    t.deepEqual(await told(), ["daemon-reload"]);
    const first = await current();
    t.deepEqual(await runs(), [first]);
    t.is(await sh("setpriv --reuid=1 --regid=1 --clear-groups svc"), "1\n", "for everybody");
    // What watches over an app, and says no more than where it lies.
    const supervisor = await sh(`sh /usr/lib/svc/${first}/supervisor > /dev/null 2>&1 & echo $!`);

    await install(2);
    // The previous version's script reports it, too.
    t.deepEqual(await told(), ["daemon-reload", "daemon-reload", "try-restart svc.service"]);
    const second = await current();
    t.deepEqual(await runs(), [first, second].sort());
    t.is(await sh("svc"), "2\n");
    // A daemon that a user has started: no more of it says where it lies than the native code that it has loaded.
    await sh(`cp /lib/*/libm.so.6 /usr/lib/svc/${second}/native.node`);
    const native = "LD_PRELOAD=/usr/lib/svc/current/native.node";
    const daemon = await sh(
      `${native} setpriv --reuid=1 --clear-groups sleep 1000 > /dev/null 2>&1 & echo $!`,
    );

    // A long-running command of a user, which has files of its version open.
    const command = await sh(
      `setpriv --reuid=1 --clear-groups sleep 1000 9< /usr/lib/svc/${first} > /dev/null 2>&1 & echo $!`,
    );

    // The remains of a configuration step that was killed.
    await symlink(first, path("/usr/lib/svc/current.new"));
    await sh("mkdir -p /var/cache/svc/compile/of-the-second");
    await install(3);
    t.false(existsSync(path("/var/cache/svc/compile")), "nothing compiled of earlier versions is left");
    const third = await current();
    t.deepEqual(await runs(), [first, second, third].sort(), "an app's, that of a daemon, and the new one");
    t.is(await sh("svc"), "3\n");
    t.deepEqual(
      (await readdir(path("/usr/lib/svc"))).filter((name) => name.startsWith("current")),
      ["current"],
    );

    await sh("/var/lib/dpkg/info/svc.postinst abort-remove");
    t.is(await current(), third, "nothing is configured");
    await sh(`kill ${supervisor}`);
    await install(4);
    t.deepEqual(
      await runs(),
      [first, second, third, await current()].sort(),
      "also the version of the command",
    );
    await sh(`kill ${command}`);
    const before = await current();
    await install(4);
    const fourth = await current();
    t.deepEqual(
      await runs(),
      [second, before, fourth].sort(),
      "the versions of the daemon, the previous one, and the new one",
    );
    t.is(await sh("svc"), "4\n");

    await sh(`kill ${daemon}`);
    await install(4);
    t.deepEqual(await runs(), [fourth, await current()].sort());
  },
);

debianTest(
  `the daemon has its own cgroup if systemd supports it, also after an upgrade of systemd${needsDebian}`,
  async (t) => {
    t.timeout(120_000);
    const { path, sh, install, told } = await openDebian(t);
    const unitDir = "/usr/lib/systemd/system";
    const units = (): Promise<string> => sh(`cat ${unitDir}/svc.service.d/* 2>/dev/null || true`);
    const is = (version: string): Promise<void> =>
      writeFile(path("/root/systemd-version"), `${version}\n+PAM\n`);
    await install(1);
    t.is(await units(), "", "of unknown version");
    await is("systemd 252 (252.39-1~deb12u2)");
    await install(2);
    t.is(await units(), "");
    await is("systemd 257 (257.9-1~deb13u1)");
    await told();
    await sh("dpkg-trigger --by-package=systemd /usr/lib/systemd/systemd; dpkg --configure --pending");
    t.is(await units(), "[Service]\nDelegateSubgroup=daemon\nExecStopPost=\n");
    t.deepEqual(await told(), ["daemon-reload"]);
    await is("systemd 252 (252.39-1~deb12u2)");
    await install(3);
    t.is(await units(), "");
    await is("systemd 254 (254.1)");
    await install(4);
    t.not(await units(), "");
    await sh("dpkg --remove svc");
    t.false(existsSync(path(`${unitDir}/svc.service.d`)), "nothing of it is left");
  },
);

debianTest(`without systemd, no systemctl command runs${needsDebian}`, async (t) => {
  t.timeout(120_000);
  const { sh, install, told } = await openDebian(t);
  await sh("rmdir /run/systemd/system");
  for (const version of [1, 2]) await install(version);
  await sh("dpkg --purge svc");
  t.deepEqual(await told(), []);
});

debianTest(
  `a purge retains apps unless configured otherwise, and a removal always does${needsDebian}`,
  async (t) => {
    t.timeout(120_000);
    const { path, sh, install, told } = await openDebian(t);
    const kept = ["/var/lib/svc/apps", "/etc/svc/svc.toml", "/run/svc/svc.sock.lock"];
    const isThere = (): boolean[] => kept.map((file) => existsSync(path(file)));
    const refuse = (): Promise<string> => sh("echo svc svc/keep-apps boolean false | debconf-set-selections");
    await sh(`mkdir -p /var/lib/svc /etc/svc /run/svc /var/cache/svc; touch ${kept.join(" ")}`);
    await install(1);
    await told();
    await symlink("run.left", path("/usr/lib/svc/current.new"));
    await sh("dpkg --remove svc");
    t.deepEqual(await told(), ["disable --now svc.socket svc-tcp.socket svc.service", "daemon-reload"]);
    t.false(existsSync(path("/usr/lib/svc")), "nothing of the package is left");
    t.true(existsSync(path("/var/cache/svc")), "downloaded and unpacked files are removed by the purge");
    t.regex(await sh("dpkg --purge svc"), /\/var\/lib\/svc and \/etc\/svc are kept/);
    t.deepEqual(isThere(), [true, true, true]);
    t.false(existsSync(path("/var/cache/svc")));
    // debconf runs the script again from its start.
    t.deepEqual(await told(), ["daemon-reload", "daemon-reload"]);

    await install(2);
    await refuse();
    await sh("dpkg --remove svc");
    t.deepEqual(isThere(), [true, true, true]);
    await told();
    await install(3);
    await refuse();
    await told();
    t.notRegex(await sh("dpkg --purge svc"), /kept/);
    t.deepEqual(isThere(), [false, false, false]);
    t.deepEqual(
      (await told()).filter((words) => words.startsWith("kill ")),
      ["kill --kill-who=all --signal=SIGKILL svc.service"],
    );
    // The next package asks the question again.
    t.is(await sh("debconf-show svc"), "");
  },
);
