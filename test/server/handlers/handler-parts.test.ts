/** Parts of handlers: statistics and uploads. */
import { setTimeout as wait } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import { createContextValues, type HandlerContext } from "@connectrpc/connect";
import test from "ava";
import { StreamAppStatsRequestSchema } from "../../../gen/svc/v1/app_pb.ts";
import { WriteFileRequestSchema, type WriteFileRequest } from "../../../gen/svc/v1/file_pb.ts";
import { createAppService } from "../../../src/server/handlers/app-service.ts";
import { statsFrames } from "../../../src/server/handlers/stats-frames.ts";
import { contentsOf, firstOf } from "../../../src/server/handlers/uploads.ts";
import { peekFirst } from "../../../src/server/rpc/connect/first-message.ts";
import { anonymous, userContextKey } from "../../../src/server/rpc/user-context.ts";

test("frames keep their interval when a sample is faster than the one before", async (t) => {
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

test("a client that constantly requests frames gets one per second", async (t) => {
  const apps = { reports: { stats: () => Promise.resolve([]) } };
  const others = [{}, {}, {}, {}, {}, { define: () => ({}) }];
  const { streamAppStats } = createAppService(
    ...([apps, ...others] as unknown as Parameters<typeof createAppService>),
  );
  const end = new AbortController();
  const values = createContextValues().set(userContextKey, anonymous);
  const context = { values, signal: end.signal } as HandlerContext;
  const request = create(StreamAppStatsRequestSchema, { minIntervalSecs: 0 });
  const frames = streamAppStats(request, context)[Symbol.asyncIterator]();
  const beganMs = performance.now();
  for (let frame = 0; frame < 2; frame++) await frames.next();
  // Timers may be a millisecond early.
  t.true(performance.now() - beganMs > 995, "one second apart");
  end.abort();
});

test("the buffered bytes of a stalled sender are released when the call ends", async (t) => {
  async function* silent() {
    yield create(WriteFileRequestSchema, { path: "/tmp", content: { data: Buffer.from("begin") } });
    await new Promise(() => undefined);
  }
  const call = new AbortController();
  const stream = await peekFirst(silent(), call.signal);
  const { first, all } = await firstOf(stream.all as AsyncIterable<WriteFileRequest>);
  t.is(first.path, "/tmp");
  const contents = contentsOf(all);
  t.is(Buffer.from((await contents.next()).value as Uint8Array).toString(), "begin");
  const next = contents.next();
  call.abort(new Error("the call is over"));
  await t.throwsAsync(next, { message: "the call is over" });
});
