/** The parent of a job's command on its own, with a replaceable scanning tool. */
import { spawn } from "node:child_process";
import { text } from "node:stream/consumers";
import { chmod, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import test from "ava";
import { programs } from "../support/programs.ts";
import { isAlive } from "./support/world.ts";

const script = join(dirname(programs.userHelper), "job-parent.sh");
/** A process that leaves its session, and executes a program a moment later. */
const leftover =
  "(setsid sh -c '(sleep 300 & echo $! > leftover) &' &); while [ ! -s leftover ]; do sleep 0.01; done";

test("a process without environment in one scan, as while it executes a program, is found by the next scan", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-job-parent-"));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  // The first scan finds nobody, like a scan while the process executes a program.
  const grep = `#!/bin/sh\n[ -e ${dir}/looked ] || { : >${dir}/looked; exit 1; }\nexec /bin/grep "$@"\n`;
  await writeFile(join(dir, "grep"), grep);
  await chmod(join(dir, "grep"), 0o755);
  const child = spawn("/bin/sh", [script, ".", "the-run", "end", dir, leftover], {
    env: { PATH: `${dir}:/usr/bin:/bin` },
    stdio: ["pipe", "ignore", "ignore", "pipe"],
  });
  const status = await text(child.stdio[3] as NodeJS.ReadableStream);
  t.regex(status, /^begun\nexit 0 [12]\n$/);
  t.true((await readFile(join(dir, "looked"))).length === 0);
  t.false(await isAlive(Number(await readFile(join(dir, "leftover"), "utf8"))));
});
