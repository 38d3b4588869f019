import { readFile, readdir } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import test from "ava";
import type { SupervisorState } from "../../src/runtimes/process/supervisor-types.ts";
import { Fixture, eventually } from "./support/fixture.ts";

test("200 MB of output at once: bounded memory, bounded files, and a slow follower gets the number of skipped bytes", async (t) => {
  await using fixture = await Fixture.create();
  const line = "x".repeat(79);
  const app = await fixture.shell(`sleep 0.5; yes ${line} | head -c 200000000; echo done; exec sleep 1000`);
  await fixture.runtime.start(app);
  const state = JSON.parse(await readFile(join(app.runDir, "state.json"), "utf8")) as SupervisorState;

  const abort = new AbortController();
  let missedBytes = 0;
  let lines = 0;
  const following = (async () => {
    for await (const chunk of fixture.runtime.followLogs(app, { tail: 0, signal: abort.signal })) {
      missedBytes += chunk.missedBytes;
      lines += chunk.lines.length;
      if (chunk.lines.at(-1)?.text === "done") return;
      if (lines < 50_000) await sleep(20);
    }
  })();

  const startedMs = performance.now();
  await eventually(
    "end of the flood",
    async () => (await fixture.output(app)).at(-1) === "done" || undefined,
    60_000,
  );
  const seconds = (performance.now() - startedMs) / 1000;
  await following;
  const status = await readFile(`/proc/${state.supervisor.pid}/status`, "utf8");
  const peakKib = Number(/^VmHWM:\s+(\d+)/m.exec(status)?.[1]);
  t.log(
    `200 MB in ${seconds.toFixed(1)} s, peak of the supervisor ${Math.round(peakKib / 1024)} MiB resident`,
  );
  t.true(peakKib < 110 * 1024);
  t.true((await readdir(join(app.runDir, "logs"))).length <= 5);
  t.true(missedBytes > 0, "the follower kept up, so nothing was tested");
  t.true(lines > 50_000);
  t.is(fixture.runtime.status(app.id)?.state, "RUNNING");
});
