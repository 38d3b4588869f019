import { spawn } from "node:child_process";
import { once } from "node:events";
import test from "ava";
import { ProcessSampler } from "../../src/runtimes/process/process-sampler.ts";

test("an app whose owner claims another user's session is not shown what goes on in it", async (t) => {
  const child = spawn("sleep", ["1000"], { detached: true, stdio: "ignore" });
  await once(child, "spawn");
  t.teardown(() => child.kill("SIGKILL"));
  const uid = process.getuid?.() ?? 0;
  const honest = { appId: "honest", ownerUid: uid, runId: "a", ...(child.pid && { pid: child.pid }) };
  const thief = { ...honest, appId: "thief", ownerUid: uid + 1, runId: "b" };
  const usage = await new ProcessSampler({ windowMs: 10 }).sample([honest, thief]);
  t.is(usage.get("honest")?.processes, 1);
  t.is(usage.get("thief"), undefined);
});
