/** A signal never reaches a process that reused the intended PID. */
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test from "ava";
import { isRoot, needsRoot } from "../../support/daemon.ts";

const run = promisify(execFile);
const program = fileURLToPath(new URL("../../host/support/pid-reuse.ts", import.meta.url));
const attempts = process.env["SVC_LONG"] === undefined ? 200 : 1_000;

(isRoot ? test : test.skip)(
  `no wrong process is hit in ${attempts} reuses of a pid${needsRoot}`,
  async (t) => {
    t.timeout(10 * 60_000);
    const namespace = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    const { stdout } = await run("unshare", [...namespace, process.execPath, program, String(attempts)]);
    t.deepEqual(JSON.parse(stdout), {
      known: { pid_reused: attempts },
      unknown: { not_found: attempts },
      ending: { spared: attempts },
    });
  },
);
