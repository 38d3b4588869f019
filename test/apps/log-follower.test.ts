/** Who follows the log of an app misses nothing of its next run, however much that prints before it is known to run. */
import test from "ava";
import { followApp } from "../../src/apps/log-follower.ts";
import { Fixture } from "../runtimes/support/fixture.ts";

const count = 30_000;
/** As many lines at once, and then nothing. */
const printer = `i=0; while [ $i -lt ${count} ]; do i=$((i+1)); echo "line $i"; done; exec sleep 1000`;

for (const [when, runsBefore] of [
  ["while it runs", true],
  ["before its first start", false],
] as const) {
  test(`all that an app prints at once when it starts comes to who followed it ${when}`, async (t) => {
    await using fixture = await Fixture.create();
    const { runtime } = fixture;
    const app = await fixture.shell(printer);
    const left = new AbortController();
    const lines: string[] = [];
    let whole = Promise.withResolvers<undefined>();
    if (runsBefore) await runtime.start(app);
    const following = (async () => {
      for await (const chunk of followApp(runtime, app, {
        tail: 1,
        signal: left.signal,
        isThere: () => true,
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
