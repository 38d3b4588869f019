/** `npm run svc` of a checkout: bundled once for each state of its sources. */
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { copyFile, cp, mkdir, mkdtemp, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import { eventually } from "../support/eventually.ts";
import packageJson from "../../package.json" with { type: "json" };

const root = join(import.meta.dirname, "../..");
const run = promisify(execFile);

test("the CLI of a checkout is bundled once, and runs the bundle", async (t) => {
  const svc = (...args: string[]) =>
    run(process.execPath, [join(root, ".ci/svc.mjs"), ...args], {
      // Prints the loaded files.
      env: { ...process.env, NODE_DEBUG: "module" },
    });
  const bundles = async () => (await readdir(join(root, "node_modules/.cache/svc"))).sort();
  t.is((await svc("--version")).stdout, `${packageJson.version}\n`);
  const made = await bundles();
  const { stdout, stderr } = await svc("--version");
  t.is(stdout, `${packageJson.version}\n`);
  t.regex(stderr, /node_modules\/\.cache\/svc\/[0-9a-f]{16}\/svc\.cjs/);
  t.false(stderr.includes("src/main.ts"), "the sources are not loaded");
  t.deepEqual(await bundles(), made, "nothing is bundled again");
});

const printsAndExits =
  "console.log(process.argv[2]); if (process.argv[2] === 'daemon') process.exitCode = 7;";

/** A checkout with a tiny bundle. By default, its program prints an argument, and exits like a daemon that cannot start. */
async function checkoutOf(t: ExecutionContext, program = printsAndExits): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "svc-checkout-"));
  t.teardown(() => rm(dir, { recursive: true }));
  for (const part of ["examples", ".ci", "src/daemon/paths.ts", "src/lib"])
    await cp(join(root, part), join(dir, part), { recursive: true });
  await mkdir(join(dir, "src/build"), { recursive: true });
  await mkdir(join(dir, "node_modules"));
  await writeFile(join(dir, "node_modules/.package-lock.json"), '{"packages":{}}');
  await writeFile(join(dir, "package-lock.json"), '{"packages":{}}');
  await writeFile(
    join(dir, "src/build/bundle.ts"),
    `import { mkdirSync, writeFileSync } from "node:fs";
     mkdirSync(process.argv[2] ?? "", { recursive: true });
     writeFileSync(process.argv[2] + "/svc.cjs", ${JSON.stringify(program)});`,
  );
  return dir;
}

test("a build of the bundle is announced, except to readers of JSON", async (t) => {
  const dir = await checkoutOf(t);
  const svc = (...args: string[]) => run(process.execPath, [join(dir, ".ci/svc.mjs"), ...args]);
  const first = await svc("ls");
  t.is(first.stdout, "ls\n");
  t.regex(first.stderr, /^Bundling svc, .*\n$/);
  t.is((await svc("ls")).stderr, "", "nothing is bundled any more");
  await writeFile(join(dir, "src/other.ts"), "");
  t.is((await svc("ls", "--json")).stderr, "");
});

test("npm start prints its progress on standard error", async (t) => {
  const dir = await checkoutOf(t);
  const failed = await t.throwsAsync<Error & { stderr: string; stdout: string }>(
    run(process.execPath, [join(dir, "examples/try.ts")]),
  );
  t.regex(
    failed.stderr,
    /^Bundling svc, .*\nStarting the daemon …\ndaemon\nThe daemon ended with exit code 7; /m,
  );
  t.notRegex(failed.stdout, /Bundling|Starting/);
});

/** A daemon that stops at SIGTERM with exit code 3. */
const stopsWith3 = `
  if (process.argv[2] === "daemon") {
    process.on("SIGTERM", () => process.exit(3));
    setTimeout(() => process.exit(9), 300_000);
    require("node:fs").writeFileSync("daemon.pid", String(process.pid));
  }`;

for (const args of [
  ["start", "--ignore-scripts"],
  ["run", "svc", "--", "daemon"],
]) {
  test(`SIGTERM to npm ${args.slice(0, 2).join(" ")} stops the daemon and passes its exit code`, async (t) => {
    const dir = await checkoutOf(t, stopsWith3);
    await copyFile(join(root, "package.json"), join(dir, "package.json"));
    const npm = spawn("npm", args, { cwd: dir, stdio: "ignore" });
    const ended = once(npm, "exit");
    const pid = await eventually(async () => {
      const text = await readFile(join(dir, "daemon.pid"), "utf8");
      assert.ok(text);
      return Number(text);
    }, 60_000);
    npm.kill("SIGTERM");
    t.is((await ended)[0], 3);
    t.throws(() => process.kill(pid, 0), { code: "ESRCH" });
  });
}

test("the installation of a checkout's dependencies is announced on standard error", async (t) => {
  const dir = await checkoutOf(t);
  await rm(join(dir, "node_modules"), { recursive: true });
  const bin = join(dir, "bin");
  await mkdir(bin);
  await writeFile(join(bin, "npm"), "#!/bin/sh\nexit 3\n", { mode: 0o755 });
  const failed = await t.throwsAsync<Error & { stderr: string; stdout: string }>(
    run(process.execPath, [join(dir, ".ci/setup.mjs")], {
      env: { ...process.env, PATH: `${bin}:/usr/bin:/bin` },
    }),
  );
  t.regex(
    failed.stderr,
    /^Installing what this checkout needs \(none yet\): .*\nnpm ci failed: see above\.\n$/,
  );
  t.is(failed.stdout, "");
});

test("a checkout that was never started says what to do", async (t) => {
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
