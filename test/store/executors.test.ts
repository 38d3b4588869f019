import { spawn } from "node:child_process";
import { once } from "node:events";
import type { Readable } from "node:stream";
import test from "ava";
import { readProcessIdentity } from "../../src/lib/process-identity.ts";
import { currentExecutor, isExecutorAlive } from "../../src/store/executors.ts";
import { until } from "./support/temporary-store.ts";

test("this process is alive, and neither an earlier boot nor an earlier holder of its pid is", async (t) => {
  const executor = await currentExecutor();
  t.is(executor.pid, process.pid);
  t.regex(executor.bootId, /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
  t.true(await isExecutorAlive(executor));
  t.false(await isExecutorAlive({ ...executor, startTicks: executor.startTicks - 1 }));
  t.false(await isExecutorAlive({ ...executor, bootId: "00000000-0000-0000-0000-000000000000" }));
  for (const pid of [0, -1, 1.5, Number.NaN, 2 ** 31]) t.false(await isExecutorAlive({ ...executor, pid }));
});

test("a process that ended is dead, its zombie too", async (t) => {
  // The shell becomes a sleep and never waits for its first child, which stays a zombie.
  const parent = spawn("sh", ["-c", "sh -c 'read _; exit' <&3 & echo $!; exec sleep 60"], {
    stdio: ["ignore", "pipe", "inherit", "pipe"],
  });
  t.teardown(async () => {
    parent.kill("SIGKILL");
    await once(parent, "close");
  });
  const [line] = (await once(parent.stdout as Readable, "data")) as [Buffer];
  const identity = await readProcessIdentity(Number(line.toString()));
  t.truthy(identity);
  if (identity === undefined) return;
  const executor = { ...(await currentExecutor()), ...identity };
  t.true(await isExecutorAlive(executor));
  parent.stdio[3]?.destroy();
  let alive = true;
  const watch = setInterval(() => void isExecutorAlive(executor).then((is) => (alive = is)), 5);
  await until(() => !alive);
  clearInterval(watch);
  t.notThrows(() => process.kill(executor.pid, 0), "the zombie is still there");
});
