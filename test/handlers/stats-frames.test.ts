import { setTimeout as wait } from "node:timers/promises";
import test from "ava";
import { statsFrames } from "../../src/handlers/stats-frames.ts";

test("frames keep their distance when a sample is quicker than the one before", async (t) => {
  const samplesMs = [300, 0, 0, 300, 0];
  const end = new AbortController();
  const frames = statsFrames(
    async () => {
      await wait(samplesMs.shift() ?? 0);
      return 0;
    },
    400,
    end.signal,
  );
  let beforeMs: number | undefined;
  for (let frame = 0; frame < 5; frame++) {
    await frames.next();
    const nowMs = performance.now();
    // Timers may be a millisecond early.
    if (beforeMs !== undefined) t.true(nowMs - beforeMs > 395, `${nowMs - beforeMs} ms`);
    beforeMs = nowMs;
  }
  end.abort();
});
