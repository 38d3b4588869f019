/** If `/proc` is mounted with `hidepid`, svc shows no processes that the kernel hides from the caller. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import test from "ava";
import { ProcessService } from "../../gen/svc/v1/process_pb.ts";
import { isRoot, startDaemon } from "../support/daemon.ts";

const rootTest = isRoot ? test : test.skip;
/** `games`, an account that every Debian has. */
const uid = 5;
const launcher = [
  ...["unshare", "--mount", "sh", "-c"],
  'mount -t proc -o hidepid=invisible proc /proc && exec "$@"',
  "sh",
];

rootTest("a regular user sees only their own processes if /proc hides the others", async (t) => {
  await using daemon = await startDaemon({ launcher });
  await using door = await daemon.as(uid);
  const sleeper = spawn("setpriv", [`--reuid=${uid}`, "--clear-groups", "sleep", "600"], {
    stdio: ["ignore", "ignore", "inherit"],
  });
  try {
    await once(sleeper, "spawn");
    const seenBy = async (client = daemon.client(ProcessService)) => {
      const { processes } = await client.listProcesses({ limit: 10_000 });
      return processes.map(({ pid, user }) => ({ pid, user }));
    };
    const own = await seenBy(door.client(ProcessService));
    t.deepEqual([...new Set(own.map(({ user }) => user))], ["games"]);
    t.true(own.some(({ pid }) => pid === sleeper.pid));
    t.true((await seenBy()).some(({ pid }) => pid === daemon.pid));
  } finally {
    sleeper.kill();
  }
});
