/** A log reader that is slower than its app's exit gets all lines. */
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import test from "ava";
import { eventually, Fixture } from "../../runtimes/support/fixture.ts";

/** Longer than an exiting supervisor waits for its readers. */
const slowMs = 8_000;
/** All that fits into one log file, which is more than is read at once. */
const count = 42_000;
const filler = "x".repeat(200);

test("a slow reader gets every line when the app is stopped", async (t) => {
  t.timeout(120_000);
  await using fixture = await Fixture.create();
  const go = join(fixture.store, "go");
  const app = await fixture.shell(
    `echo begin; until [ -e ${go} ]; do sleep 0.1; done; ` +
      `i=0; while [ $i -lt ${count} ]; do echo "$i ${filler}"; i=$((i+1)); done; exec sleep 1000`,
  );
  await fixture.runtime.start(app);
  await fixture.outputUntil(app, "begin");
  const left = new AbortController();
  const seen: string[] = [];
  const follower = fixture.runtime.followLogs(app, { tail: 1, signal: left.signal });
  const first = await follower.next();
  t.is(first.done === true ? undefined : first.value.lines.at(-1)?.text, "begin");
  await writeFile(go, "");
  await eventually(
    "its last line",
    async () => (await fixture.output(app)).at(-1)?.startsWith(`${count - 1} `) ?? false,
    60_000,
  );
  await fixture.runtime.stop(app);
  await wait(slowMs);
  for await (const { lines, missedBytes } of follower) {
    t.is(missedBytes, 0);
    seen.push(...lines.filter(({ stream }) => stream === "stdout").map(({ text }) => text));
  }
  left.abort();
  t.deepEqual(
    seen.map((text) => Number(text.split(" ")[0])),
    Array.from({ length: count }, (_, at) => at),
  );
});

test("following ends when the app is removed", async (t) => {
  await using fixture = await Fixture.create();
  const app = await fixture.shell("echo one; exec sleep 1000");
  await fixture.runtime.start(app);
  const left = new AbortController();
  const follower = fixture.runtime.followLogs(app, { tail: 1, signal: left.signal });
  t.false((await follower.next()).done);
  await rm(join(app.runDir, "logs"), { recursive: true });
  const rest = Array.fromAsync(follower);
  await fixture.runtime.stop(app);
  await t.notThrowsAsync(rest);
});
