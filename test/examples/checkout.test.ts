/** `npm run svc` of a checkout: bundled once for each state of its sources. */
import { execFile } from "node:child_process";
import { copyFile, mkdir, mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import packageJson from "../../package.json" with { type: "json" };

const root = join(import.meta.dirname, "../..");
const run = promisify(execFile);

test("the command line of a checkout is bundled once, and runs the bundle", async (t) => {
  const svc = (...args: string[]) =>
    run(process.execPath, [join(root, ".ci/svc.mjs"), ...args], {
      // Says which files are loaded.
      env: { ...process.env, NODE_DEBUG: "module" },
    });
  const bundles = async () => (await readdir(join(root, "node_modules/.cache/svc"))).sort();
  t.is((await svc("--version")).stdout, `${packageJson.version}\n`);
  const made = await bundles();
  const { stdout, stderr } = await svc("--version");
  t.is(stdout, `${packageJson.version}\n`);
  t.regex(stderr, /node_modules\/\.cache\/svc\/[0-9a-f]{16}\/svc\.cjs/);
  t.false(stderr.includes("src/main.ts"), "the sources are not loaded");
  t.deepEqual(await bundles(), made, "nothing is bundled anew");
});

test("in a checkout that was never started it says what to do", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-checkout-"));
  t.teardown(() => rm(dir, { recursive: true }));
  await mkdir(join(dir, ".ci"));
  await copyFile(join(root, ".ci/svc.mjs"), join(dir, ".ci/svc.mjs"));
  const failed = await t.throwsAsync<Error & { stderr: string; code: number }>(
    run(process.execPath, [join(dir, ".ci/svc.mjs"), "ls"]),
  );
  t.is(failed.stderr, `svc: what this checkout needs is not installed yet: run npm start in ${dir} first\n`);
  t.is(failed.code, 1);
});
