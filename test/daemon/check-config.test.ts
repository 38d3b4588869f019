/** `svc daemon --check`: a configuration is read as a start would, and nothing is started. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { main } from "../support/svc-main.ts";

for (const [title, lines, code, sentence] of [
  ["that is fine", "", 0, /^the configuration is fine$/m],
  ["with a key that nobody knows", '[api]\nlissten = "x"', 2, /api\.lissten/],
  ["that is no TOML", "[api", 2, /svc\.toml, line \d+: /],
  [
    "that names an account which is not there",
    '[apps]\nroot_runs_as = "no-such-account"',
    2,
    /no account "no-such-account"/,
  ],
  ["that is not there", undefined, 3, /there is no configuration file \//],
] as const) {
  test(`a configuration ${title}`, async (t) => {
    const dir = await mkdtemp(join(tmpdir(), "svc-check-"));
    t.teardown(() => rm(dir, { recursive: true }));
    const file = join(dir, "svc.toml");
    const own = `[store]\ndir = "${dir}/store"\n${lines ?? ""}\n`;
    if (lines !== undefined) await writeFile(file, own);
    const child = spawn(process.execPath, [main, "daemon", "--check", "--config", file], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    t.teardown(() => child.kill("SIGKILL"));
    let said = "";
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (bytes: Buffer) => (said += bytes.toString()));
    // Without the option it would run for ever: the deadline is for a busy machine.
    const [exitCode] = (await once(child, "close", { signal: AbortSignal.timeout(60_000) })) as [number];
    t.regex(said, sentence);
    t.is(exitCode, code);
    t.deepEqual(await readdir(dir), lines === undefined ? [] : ["svc.toml"]);
  });
}
