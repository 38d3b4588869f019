import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { execFile } from "node:child_process";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import test from "ava";
import { summarizeTap } from "./tap.ts";

const root = join(import.meta.dirname, "../..");

/** Runs AVA as configured here, but with a timeout of five seconds, on a file of tests. */
async function runAva(file: string): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "svc-ava-"));
  try {
    await symlink(join(root, "node_modules"), join(dir, "node_modules"));
    await mkdir(join(dir, "test"));
    await writeFile(join(dir, "package.json"), '{"type":"module"}');
    await writeFile(join(dir, "test/file.js"), file);
    await writeFile(
      join(dir, "ava.config.js"),
      `import "${pathToFileURL(join(root, "ava.config.js")).href}"; export default { timeout: "5s", files: ["test/*.js"], cache: false };`,
    );
    const { promise, resolve } = Promise.withResolvers<string>();
    const env = { PATH: process.env["PATH"] };
    execFile(
      process.execPath,
      [join(root, "node_modules/.bin/ava"), "--tap"],
      { cwd: dir, env, timeout: 60_000 },
      (_error, stdout, stderr) => resolve(stdout + stderr),
    );
    return await promise;
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

for (const [what, body, why] of [
  [
    "does not end",
    "await new Promise((resolve) => setTimeout(resolve, 60_000))",
    /no new tests completed within the last 5000ms/,
  ],
  ["ends its process", "process.exit(3)", /Exiting due to process\.exit\(\)/],
] as const) {
  test(`a test that ${what} fails with its title and the reason`, async (t) => {
    const tap = await runAva(
      `import test from "ava"; test("first", (t) => t.pass()); test("stuck", async (t) => { ${body}; t.pass(); });`,
    );
    const { points, isWhole } = summarizeTap(tap);
    t.true(isWhole, tap);
    t.true(
      points.some(({ title, outcome }) => title === "stuck" && outcome === "failed"),
      tap,
    );
    t.regex(tap, why);
  });
}
