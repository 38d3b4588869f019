/** How many calls and streams one user may have at once (T 57, D38). */
import { createClient } from "@connectrpc/connect";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { svcErrorOf } from "../../src/rpc/connect-errors.ts";
import { createInMemoryTransport } from "./support/in-memory-transport.ts";
import { createPipeline } from "../../src/rpc/pipeline.ts";
import type { UserContext } from "../../src/rpc/user-context.ts";
import { collectLog } from "../transport/support/door.ts";
import { eventually } from "../support/eventually.ts";
import { fakeServices } from "../transport/support/fake-services.ts";

const peer = (uid: number): UserContext => ({
  uid,
  root: uid === 0,
  kind: "peer",
  ownerUid: uid,
  peerUid: uid,
});
const token = (tokenDigest: string): UserContext => ({
  uid: 0,
  root: true,
  kind: "access",
  ownerUid: 0,
  tokenDigest,
});

/** Calls and streams that last until `release`; two of each are allowed. */
function open() {
  const released = Promise.withResolvers<undefined>();
  const { log } = collectLog();
  const pipeline = createPipeline({
    services: fakeServices({
      app: {
        async startApp() {
          await released.promise;
          return {};
        },
        async *streamAppLogs() {
          yield {};
          await released.promise;
        },
      },
    }),
    log,
    limits: { maxCallsPerUser: 2, maxStreamsPerUser: 2 },
  });
  const clientOf = (user: UserContext) =>
    createClient(AppService, createInMemoryTransport({ pipeline, user, nextRequestId: () => "r" }));
  return {
    call: (user: UserContext, signal?: AbortSignal) =>
      clientOf(user).startApp({ id: "a" }, { ...(signal && { signal }) }),
    stream: (user: UserContext, signal?: AbortSignal) => {
      const lines = clientOf(user).streamAppLogs({ id: "a" }, { ...(signal && { signal }) });
      return lines[Symbol.asyncIterator]();
    },
    release: () => released.resolve(undefined),
  };
}

test("a call counts until its work has ended, and not until its caller has left", async (t) => {
  const { call, release } = open();
  const one = peer(1000);
  for (let n = 0; n < 2; n++) {
    const leaving = new AbortController();
    const asked = call(one, leaving.signal);
    leaving.abort();
    await t.throwsAsync(asked);
  }
  const error = svcErrorOf(await t.throwsAsync(call(one)));
  t.is(error.reason, "too_many");
  release();
  await eventually(() => call(one));
});

for (const [name, one, other] of [
  ["a uid", peer(1000), peer(1001)],
  ["a token", token("aaaaaaaaaaaa"), token("bbbbbbbbbbbb")],
] as const) {
  test(`${name} has so many calls at once, and others have theirs`, async (t) => {
    const { call, release } = open();
    const running = [call(one), call(one), call(other), ...Array.from({ length: 5 }, () => call(peer(0)))];
    const error = svcErrorOf(await t.throwsAsync(call(one)));
    t.is(error.reason, "too_many");
    t.regex(error.message, /max_calls_per_user/);
    release();
    await Promise.all(running);
    await t.notThrowsAsync(call(one), "those have ended");
  });

  test(`${name} has so many streams at once, beside its calls`, async (t) => {
    const { call, stream, release } = open();
    const first = new AbortController();
    const streams = [stream(one, first.signal), stream(one), stream(other)];
    for (const each of streams) t.false((await each.next()).done);
    const error = svcErrorOf(await t.throwsAsync(stream(one).next()));
    t.is(error.reason, "too_many");
    t.regex(error.message, /max_streams_per_user/);
    first.abort();
    await t.throwsAsync(streams[0]!.next());
    t.false((await stream(one).next()).done, "one has ended");
    const running = call(one);
    release();
    await t.notThrowsAsync(running);
  });
}
