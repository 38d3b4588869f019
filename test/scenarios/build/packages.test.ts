/**
 * Packages are built for the requested CPU architecture, and the build fails early if that is not possible. Their
 * contents: `debian-package.test.ts`.
 */
import { execFile, spawnSync } from "node:child_process";
import { mkdtemp, readFile, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test from "ava";
import packageJson from "../../../package.json" with { type: "json" };
import { fastPacking } from "../../build/support/fast-packing.ts";

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
