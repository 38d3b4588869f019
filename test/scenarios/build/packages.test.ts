/** Packages for the requested CPU architecture, their maintainer scripts, and reproducible builds. */
import assert from "node:assert/strict";
import { execFile, spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import {
  chmod,
  copyFile,
  cp,
  lchown,
  lutimes,
  mkdir,
  mkdtemp,
  readFile,
  readdir,
  readlink,
  rm,
  symlink,
  utimes,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { gunzipSync } from "node:zlib";
import test, { type ExecutionContext } from "ava";
import { makeBlob } from "../../../src/build/single-executable.ts";
import { makeTarball } from "../../../src/build/tarball.ts";
import { thirdPartyFiles } from "../../../src/build/third-party.ts";
import { debian, debianTest, needsDebian } from "../../build/support/clean-debian.ts";
import { fastPacking } from "../../build/support/fast-packing.ts";
import { eventually } from "../../support/eventually.ts";
import packageJson from "../../../package.json" with { type: "json" };

// Packages are built for the requested CPU architecture, and the build fails early if that is not possible. Their
// contents: `debian-package.test.ts`.

const run = promisify(execFile);
const root = fileURLToPath(new URL("../../..", import.meta.url));
const { version } = packageJson;

test("an invalid date and an unsupported CPU architecture are rejected before the build", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-packages-"));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const failureOf = async (epoch: string, ...arch: string[]): Promise<string> => {
    const { stderr } = await t.throwsAsync<Error & { stderr: string }>(
      run(process.execPath, ["src/build/packages.ts", dir, ...arch], {
        cwd: root,
        env: { ...process.env, SOURCE_DATE_EPOCH: epoch },
      }),
    );
    return stderr;
  };
  t.regex(await failureOf("2026-01-01"), /SOURCE_DATE_EPOCH is 2026-01-01, but must be seconds since 1970/);
  t.regex(await failureOf("1767225600", "riscv64"), /there is no package for riscv64/);
  t.deepEqual(await readdir(dir), []);
});

const arm = "arm64";
const isOther = process.arch !== arm;
/** Includes the registry that `npm ci` uses. */
const canBring =
  isOther &&
  spawnSync("npm", ["view", `@koromix/koffi-linux-${arm}`, "version"], { timeout: 60_000 }).status === 0;

(canBring ? test : test.skip)("packages for another processor have its native code", async (t) => {
  t.timeout(300_000);
  const dir = await mkdtemp(join(tmpdir(), "svc-packages-"));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  await run(process.execPath, [join(root, "src/build/packages.ts"), join(dir, "out"), arm], {
    cwd: root,
    env: fastPacking,
  });
  const names = (await readdir(join(dir, "out"))).sort();
  t.deepEqual(names, ["SHA256SUMS", `svc-${version}-linux-arm64.tar.gz`, `svc_${version}_arm64.deb`]);
  const deb = join(dir, "out", `svc_${version}_arm64.deb`);
  t.regex((await run("dpkg-deb", ["--field", deb])).stdout, /^Architecture: arm64$/m);
  await run("dpkg-deb", ["--extract", deb, join(dir, "tree")]);
  const files = join(dir, "tree/usr/lib/svc/files");
  const native = (await readdir(files, { recursive: true })).filter((name) => name.endsWith(".node"));
  t.true(
    native.length > 0 && native.every((name) => name.startsWith("node_modules/@koromix/koffi-linux-arm64/")),
  );
  for (const name of native) {
    const header = (await readFile(join(files, name))).subarray(0, 20);
    // ELF's number of the machine architecture (elf(5), e_machine).
    t.is(header.readUInt16LE(18), 183, name);
  }
  const bom = await readFile(join(files, "bom.cdx.json"), "utf8");
  t.true(bom.includes("koffi-linux-arm64") && !bom.includes("koffi-linux-x64"));
});

// Archives do not depend on who packed them, when, or in which order the files were created.

const epoch = 1_767_225_600;
const texts = {
  "svc.cjs": "main",
  "b.txt": "b",
  "chunks/z.cjs": "z",
  "chunks/a.cjs": "a",
  "a/file": "file",
  [thirdPartyFiles.licenses]: "licenses",
  [thirdPartyFiles.bom]: '{"components":[]}',
};

/**
 * The same files twice, created in a different order. They are in a tmpfs, which lists the newest file first; on a disk
 * the order often depends only on the names.
 */
async function twice(t: ExecutionContext): Promise<[one: string, other: string]> {
  const dir = await mkdtemp("/dev/shm/svc-same-bytes-");
  t.teardown(() => rm(dir, { recursive: true }));
  const all = Object.entries(texts);
  const write = async (name: string, files: typeof all, mode: number, atSecs: number): Promise<string> => {
    const bundle = join(dir, name, "svc-1");
    for (const [path, text] of files) {
      const file = join(bundle, path);
      await mkdir(dirname(file), { recursive: true, mode });
      await writeFile(file, text);
      await chmod(file, path.endsWith(".cjs") ? mode : mode & 0o666);
      await utimes(file, atSecs, atSecs);
    }
    await symlink("nowhere", join(bundle, "link"));
    await lutimes(join(bundle, "link"), epoch, epoch);
    return bundle;
  };
  const one = await write("one", all, 0o755, 1_000_000_000);
  const other = await write("other", all.toReversed(), 0o700, 1_500_000_000);
  // Another owner and group if the test runs as root, otherwise another group of the user.
  const [uid, gid] = process.getuid?.() === 0 ? [65_534, 65_534] : [-1, process.getgroups?.().at(-1) ?? -1];
  for (const entry of await readdir(other, { recursive: true })) await lchown(join(other, entry), uid, gid);
  const listed = (bundle: string): string => spawnSync("ls", ["-U", bundle], { encoding: "utf8" }).stdout;
  t.not(listed(one), listed(other), "in another order");
  return [one, other];
}

test("a tarball is reproducible, and root owns all entries", async (t) => {
  const [one, other] = await twice(t);
  const made: Buffer[] = [];
  for (const bundle of [one, other]) {
    const file = `${bundle}.tar.gz`;
    await makeTarball(bundle, file, epoch);
    made.push(await readFile(file));
    t.deepEqual((await readdir(dirname(file))).sort(), ["svc-1", "svc-1.tar.gz"]);
  }
  const [first = Buffer.alloc(0), second] = made;
  t.deepEqual(first, second);
  // The header of a gzip file without name and time (RFC 1952, 2.3).
  t.deepEqual([...first.subarray(0, 8)], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0]);
  // The fields of the owner's and group's names, which differ between hosts (tar(5), "Pre-POSIX" and "UStar").
  t.true(
    gunzipSync(first)
      .subarray(265, 329)
      .every((byte) => byte === 0),
  );
  const listed = spawnSync(
    "tar",
    ["--list", "--verbose", "--numeric-owner", "--full-time", "--utc"].concat("--gzip"),
    {
      input: first,
      encoding: "utf8",
    },
  );
  const program = "-rwxr-xr-x 0/0";
  const date = "2026-01-01 00:00:00";
  t.deepEqual(
    listed.stdout
      .trimEnd()
      .split("\n")
      .map((line) => line.replaceAll(/ +/g, " ")),
    [
      `drwxr-xr-x 0/0 0 ${date} svc-1/`,
      `-rw-r--r-- 0/0 8 ${date} svc-1/${thirdPartyFiles.licenses}`,
      `drwxr-xr-x 0/0 0 ${date} svc-1/a/`,
      `-rw-r--r-- 0/0 4 ${date} svc-1/a/file`,
      `-rw-r--r-- 0/0 1 ${date} svc-1/b.txt`,
      `-rw-r--r-- 0/0 17 ${date} svc-1/${thirdPartyFiles.bom}`,
      `drwxr-xr-x 0/0 0 ${date} svc-1/chunks/`,
      `${program} 1 ${date} svc-1/chunks/a.cjs`,
      `${program} 1 ${date} svc-1/chunks/z.cjs`,
      `lrwxrwxrwx 0/0 0 ${date} svc-1/link -> nowhere`,
      `${program} 4 ${date} svc-1/svc.cjs`,
    ],
  );
});

test("the contents of a single executable are reproducible", async (t) => {
  t.timeout(120_000);
  const sums: string[] = [];
  for (const bundle of await twice(t)) {
    const work = await mkdtemp(join(tmpdir(), "svc-same-bytes-"));
    t.teardown(() => rm(work, { recursive: true }));
    const made = await readFile(await makeBlob(root, bundle, work));
    sums.push(createHash("sha256").update(made).digest("hex"));
    for (const said of [
      "Node.js is licensed for use as follows",
      `pkg:generic/node@${process.versions.node}`,
    ])
      t.true(made.includes(said), said);
  }
  t.is(sums[0], sums[1]);
});

// The package's maintainer scripts on a clean Debian, step by step, with a dummy program and a `systemctl` that
// only records its arguments. `debian-package.test.ts` uses the real ones.

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
  readonly systemctlCalls: () => Promise<string[]>;
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
    systemctlCalls: async () =>
      (await sh("cat /root/told 2>/dev/null || true; rm -f /root/told")).split("\n").slice(0, -1),
    runs: async () => (await readdir(path("/usr/lib/svc"))).filter((name) => name.startsWith("run.")).sort(),
    current: () => readlink(path("/usr/lib/svc/current")),
  };
}

debianTest(
  `an installation starts nothing, and an upgrade keeps the versions that are still running${needsDebian}`,
  async (t) => {
    t.timeout(120_000);
    const { path, sh, install, systemctlCalls, runs, current } = await openDebian(t);
    await install(1);
    t.deepEqual(await systemctlCalls(), ["daemon-reload"]);
    const first = await current();
    t.deepEqual(await runs(), [first]);
    t.is(await sh("setpriv --reuid=1 --regid=1 --clear-groups svc"), "1\n", "for everybody");
    // What watches over an app, and says no more than where it lies.
    const supervisor = await sh(`sh /usr/lib/svc/${first}/supervisor > /dev/null 2>&1 & echo $!`);

    await install(2);
    // The previous version's script reports it, too.
    t.deepEqual(await systemctlCalls(), ["daemon-reload", "daemon-reload", "try-restart svc.service"]);
    const second = await current();
    t.deepEqual(await runs(), [first, second].sort());
    t.is(await sh("svc"), "2\n");
    // A daemon that a user has started: only its loaded native code shows its directory.
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
    const { path, sh, install, systemctlCalls } = await openDebian(t);
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
    await systemctlCalls();
    await sh("dpkg-trigger --by-package=systemd /usr/lib/systemd/systemd; dpkg --configure --pending");
    t.is(await units(), "[Service]\nDelegateSubgroup=daemon\nExecStopPost=\n");
    t.deepEqual(await systemctlCalls(), ["daemon-reload"]);
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
  const { sh, install, systemctlCalls } = await openDebian(t);
  await sh("rmdir /run/systemd/system");
  for (const version of [1, 2]) await install(version);
  await sh("dpkg --purge svc");
  t.deepEqual(await systemctlCalls(), []);
});

debianTest(
  `a purge retains apps unless configured otherwise, and a removal always does${needsDebian}`,
  async (t) => {
    t.timeout(120_000);
    const { path, sh, install, systemctlCalls } = await openDebian(t);
    const kept = ["/var/lib/svc/apps", "/etc/svc/svc.toml", "/run/svc/svc.sock.lock"];
    const isThere = (): boolean[] => kept.map((file) => existsSync(path(file)));
    const refuse = (): Promise<string> => sh("echo svc svc/keep-apps boolean false | debconf-set-selections");
    await sh(`mkdir -p /var/lib/svc /etc/svc /run/svc /var/cache/svc; touch ${kept.join(" ")}`);
    await install(1);
    await systemctlCalls();
    await symlink("run.left", path("/usr/lib/svc/current.new"));
    await sh("dpkg --remove svc");
    t.deepEqual(await systemctlCalls(), [
      "disable --now svc.socket svc-tcp.socket svc.service",
      "daemon-reload",
    ]);
    t.false(existsSync(path("/usr/lib/svc")), "nothing of the package is left");
    t.true(existsSync(path("/var/cache/svc")), "downloaded and unpacked files are removed by the purge");
    t.regex(await sh("dpkg --purge svc"), /\/var\/lib\/svc and \/etc\/svc were kept/);
    t.deepEqual(isThere(), [true, true, true]);
    t.false(existsSync(path("/var/cache/svc")));
    // debconf runs the script again from its start.
    t.deepEqual(await systemctlCalls(), ["daemon-reload", "daemon-reload"]);

    await install(2);
    await refuse();
    await sh("dpkg --remove svc");
    t.deepEqual(isThere(), [true, true, true]);
    await systemctlCalls();
    await install(3);
    await refuse();
    await systemctlCalls();
    t.notRegex(await sh("dpkg --purge svc"), /kept/);
    t.deepEqual(isThere(), [false, false, false]);
    t.deepEqual(
      (await systemctlCalls()).filter((words) => words.startsWith("kill ")),
      ["kill --kill-who=all --signal=SIGKILL svc.service"],
    );
    // The next package asks the question again.
    t.is(await sh("debconf-show svc"), "");
  },
);
