/** A follower of an app's log misses nothing of its next run, however much that prints before it is known to run. */
import assert from "node:assert/strict";
import { appendFile, readFile, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { followApp } from "../../src/apps/lifecycle/log-follower.ts";
import { Fixture } from "../runtimes/support/fixture.ts";
import { eventually } from "../support/eventually.ts";

const count = 30_000;
/** As many lines at once, and then nothing. */
const printer = `i=0; while [ $i -lt ${count} ]; do i=$((i+1)); echo "line $i"; done; exec sleep 1000`;

for (const [when, runsBefore] of [
  ["while it runs", true],
  ["before its first start", false],
] as const) {
  test(`a follower that connected ${when} gets everything that an app prints at its start`, async (t) => {
    await using fixture = await Fixture.create();
    const { runtime } = fixture;
    const app = await fixture.shell(printer);
    // As an install leaves it: created by a start, it belongs to root for a moment, and a follower is denied.
    await fixture.userHelpers.createOwnedDir(app.runDir, app.uid);
    const left = new AbortController();
    const lines: string[] = [];
    let whole = Promise.withResolvers<undefined>();
    if (runsBefore) await runtime.start(app);
    const following = (async () => {
      for await (const chunk of followApp(runtime, app, {
        tail: 1,
        signal: left.signal,
        isInstalled: () => true,
      })) {
        lines.push(...chunk.lines.filter(({ stream }) => stream === "stdout").map(({ text }) => text));
        if (lines.at(-1) === `line ${count}`) whole.resolve(undefined);
      }
    })();
    if (runsBefore) {
      await whole.promise;
      whole = Promise.withResolvers();
      lines.length = 0;
      await runtime.stop(app);
    }
    await runtime.start(app);
    await whole.promise;
    left.abort();
    await following;
    t.deepEqual(
      lines,
      Array.from({ length: count }, (_, at) => `line ${at + 1}`),
    );
  });
}

for (const isStopped of [false, true]) {
  test(`a returning follower gets everything since an instant, however much it is, of an app that ${isStopped ? "is stopped" : "runs"}`, async (t) => {
    await using fixture = await Fixture.create();
    const { runtime } = fixture;
    const app = await fixture.shell(printer.replace("; exec", "; echo end; exec"));
    const run = async (): Promise<number> => {
      await runtime.start(app);
      await fixture.outputUntil(app, "end");
      await runtime.stop(app);
      return (await runtime.logs(app, { tail: 1 })).lines[0]?.timeMs ?? 0;
    };
    const sinceMs = (await run()) + 1;
    await eventually(() => assert.ok(Date.now() > sinceMs));
    await run();
    if (!isStopped) await runtime.start(app);
    const runs = isStopped ? 1 : 2;
    const left = new AbortController();
    const lines: string[] = [];
    for await (const chunk of followApp(runtime, app, {
      ...{ tail: 1, sinceMs, signal: left.signal },
      isInstalled: () => true,
    })) {
      lines.push(...chunk.lines.filter(({ stream }) => stream === "stdout").map(({ text }) => text));
      if (lines.filter((line) => line === "end").length === runs) break;
    }
    const expected = [...Array.from({ length: count }, (_, at) => `line ${at + 1}`), "end"];
    t.deepEqual(lines, Array<string[]>(runs).fill(expected).flat());
  });
}

test("each line arrives once although the clock was set back and a partial record was left", async (t) => {
  await using fixture = await Fixture.create();
  const { runtime } = fixture;
  const app = await fixture.shell("echo said; exec sleep 1000");
  const start = async (): Promise<void> => {
    await runtime.start(app);
    await fixture.outputUntil(app, "said");
  };
  await start();
  await runtime.stop(app);
  const logs = join(app.runDir, "logs");
  const [name = ""] = await readdir(logs);
  const log = join(logs, name);
  // As if that had been until the clock was set back.
  await writeFile(log, (await readFile(log, "utf8")).replaceAll(/^\d{4}/gm, "2099"));
  await start();
  const left = new AbortController();
  t.teardown(() => left.abort());
  const said: string[] = [];
  const following = (async () => {
    const options = { tail: 100, signal: left.signal, isInstalled: () => true };
    for await (const { lines } of followApp(runtime, app, options))
      said.push(...lines.filter(({ stream }) => stream === "stdout").map(({ text }) => text));
  })();
  const untilSaid = (times: number): Promise<void> =>
    eventually(() => {
      assert.deepEqual(
        said,
        Array.from({ length: times }, () => "said"),
      );
      return Promise.resolve();
    }, 30_000);
  await untilSaid(2);
  // As a supervisor leaves it that is killed while it writes: its follower reaches the end after it.
  await appendFile(log, "2099-01-01T00:00:00.000Z o half of a reco");
  await runtime.stop(app);
  await start();
  await untilSaid(3);
  left.abort();
  await following;
  t.is(said.length, 3);
});
