/** The parent of a job's command by itself, where what it looks with can be held for a moment. */
import { spawn } from "node:child_process";
import { text } from "node:stream/consumers";
import { chmod, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import test from "ava";
import { programs } from "../support/programs.ts";
import { isAlive } from "./support/world.ts";

const script = join(dirname(programs.identityHelper), "job-parent.sh");
/** Leaves its session, and executes a program a moment later. */
const stray = "(setsid sh -c '(sleep 300 & echo $! > stray) &' &); while [ ! -s stray ]; do sleep 0.01; done";

test("who shows no environment in one look, as while it executes a program, is found by the next", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-job-parent-"));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  // The first look of all finds nobody, as one does that comes at such a moment.
  const grep = `#!/bin/sh\n[ -e ${dir}/looked ] || { : >${dir}/looked; exit 1; }\nexec /bin/grep "$@"\n`;
  await writeFile(join(dir, "grep"), grep);
  await chmod(join(dir, "grep"), 0o755);
  const child = spawn("/bin/sh", [script, ".", "the-run", "end", dir, stray], {
    env: { PATH: `${dir}:/usr/bin:/bin` },
    stdio: ["pipe", "ignore", "ignore", "pipe"],
  });
  const status = await text(child.stdio[3] as NodeJS.ReadableStream);
  t.regex(status, /^begun\nexit 0 [12]\n$/);
  t.true((await readFile(join(dir, "looked"))).length === 0);
  t.false(await isAlive(Number(await readFile(join(dir, "stray"), "utf8"))));
});
