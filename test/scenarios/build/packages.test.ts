/** Packages are built for the requested CPU architecture, and are reproducible. */
import { execFile, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  mkdtemp,
  readFile,
  readdir,
  rm,
  chmod,
  lchown,
  lutimes,
  mkdir,
  symlink,
  utimes,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { gunzipSync } from "node:zlib";
import test, { type ExecutionContext } from "ava";
import { makeBlob } from "../../../src/build/single-executable.ts";
import { makeTarball } from "../../../src/build/tarball.ts";
import { thirdPartyFiles } from "../../../src/build/third-party.ts";
import packageJson from "../../../package.json" with { type: "json" };
import { fastPacking } from "../../build/support/fast-packing.ts";

// Packages are built for the requested CPU architecture, and the build fails early if that is not possible. Their
// contents: `debian-package.test.ts`.

const run = promisify(execFile);
const root = fileURLToPath(new URL("../../..", import.meta.url));
const { version } = packageJson;

test("an invalid date and an unsupported CPU architecture are rejected before the build", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-packages-"));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const said = async (epoch: string, ...arch: string[]): Promise<string> => {
    const { stderr } = await t.throwsAsync<Error & { stderr: string }>(
      run(process.execPath, ["src/build/packages.ts", dir, ...arch], {
        cwd: root,
        env: { ...process.env, SOURCE_DATE_EPOCH: epoch },
      }),
    );
    return stderr;
  };
  t.regex(await said("2026-01-01"), /SOURCE_DATE_EPOCH is 2026-01-01, but must be seconds since 1970/);
  t.regex(await said("1767225600", "riscv64"), /there is no package for riscv64/);
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
