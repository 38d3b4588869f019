/** Limits of a user's concurrent calls and streams. */
import { createClient } from "@connectrpc/connect";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { svcErrorOf } from "../../../src/server/rpc/connect/connect-errors.ts";
import { createInMemoryTransport } from "./support/in-memory-transport.ts";
import { createPipeline } from "../../../src/server/rpc/pipeline.ts";
import { retainRequest } from "../../../src/server/rpc/request-memory.ts";
import type { UserContext } from "../../../src/server/rpc/user-context.ts";
import { collectLog } from "../http/support/gateway.ts";
import { eventually } from "../../support/eventually.ts";
import { fakeServices } from "../http/support/fake-services.ts";

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
function open(limits = { maxCallsPerUser: 2, maxStreamsPerUser: 2 }) {
  const released = Promise.withResolvers<undefined>();
  const { log } = collectLog();
  const pipeline = createPipeline({
    services: fakeServices({
      app: {
        async startApp() {
          await released.promise;
          return {};
        },
        async installApp({ detach }, context) {
          if (detach) {
            const kept = retainRequest(context);
            void released.promise.then(() => kept?.[Symbol.dispose]());
          } else await released.promise;
          return {};
        },
        async *streamAppLogs() {
          yield {};
          await released.promise;
        },
      },
    }),
    log,
    limits,
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
    install: (user: UserContext, bytes: number, detach = false) =>
      clientOf(user).installApp({ spec: "a", detach, settings: { text: "x".repeat(bytes) } }),
    release: () => released.resolve(undefined),
  };
}

test("a call counts until its work has finished, even if its client has disconnected", async (t) => {
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
  test(`${name} has a limit of concurrent calls, independent of others`, async (t) => {
    const { call, release } = open();
    const running = [call(one), call(one), call(other), ...Array.from({ length: 5 }, () => call(peer(0)))];
    const error = svcErrorOf(await t.throwsAsync(call(one)));
    t.is(error.reason, "too_many");
    t.regex(error.message, /max_calls_per_user/);
    release();
    await Promise.all(running);
    await t.notThrowsAsync(call(one), "those have finished");
  });

  test(`${name} has a limit of concurrent streams, independent of its calls`, async (t) => {
    const { call, stream, release } = open();
    const first = new AbortController();
    const streams = [stream(one, first.signal), stream(one), stream(other)];
    for (const each of streams) t.false((await each.next()).done);
    const error = svcErrorOf(await t.throwsAsync(stream(one).next()));
    t.is(error.reason, "too_many");
    t.regex(error.message, /max_streams_per_user/);
    first.abort();
    await t.throwsAsync(streams[0]!.next());
    t.false((await stream(one).next()).done, "one has finished");
    const running = call(one);
    release();
    await t.notThrowsAsync(running);
  });
}

const manyCalls = { maxCallsPerUser: 256, maxStreamsPerUser: 128 };
const session: UserContext = {
  ...token("cccccccccccc"),
  uid: 1000,
  root: false,
  kind: "session",
  ownerUid: 1000,
};

for (const [name, detach] of [
  ["running calls", false],
  ["detached operations", true],
] as const) {
  test(`${name} of a user and of its sessions together hold at most 64 MiB of requests`, async (t) => {
    const { install, release } = open(manyCalls);
    const one = peer(1000);
    // 3 MiB each: a character counts as two bytes.
    const users = [...Array.from({ length: 11 }, () => one), ...Array.from({ length: 10 }, () => session)];
    const held = users.map((user) => install(user, 3 << 19, detach));
    if (detach) await Promise.all(held);
    for (const user of [one, session]) {
      const error = svcErrorOf(await t.throwsAsync(install(user, 3 << 19, detach)));
      t.is(error.reason, "too_many");
      t.regex(error.message, /at most 67108864 are allowed/);
    }
    await t.notThrowsAsync(install(one, 1, true), "a small request is accepted");
    await t.notThrowsAsync(install(peer(1001), 3 << 19, true), "another user has its own bytes");
    await t.notThrowsAsync(install(peer(0), 3 << 19, true), "root has no limit");
    release();
    await Promise.all(held);
    await t.notThrowsAsync(install(one, 3 << 19), "the finished calls released their bytes");
  });
}

test("calls and streams of a user and of its sessions count together", async (t) => {
  const { call, stream, release } = open();
  const one = peer(1000);
  const running = [call(one), call(session)];
  const streams = [stream(one), stream(session)];
  for (const each of streams) t.false((await each.next()).done);
  for (const user of [one, session]) {
    t.is(svcErrorOf(await t.throwsAsync(call(user))).reason, "too_many");
    t.is(svcErrorOf(await t.throwsAsync(stream(user).next())).reason, "too_many");
  }
  const rootSession: UserContext = { ...session, uid: 0, root: true, ownerUid: 0 };
  running.push(...Array.from({ length: 5 }, () => call(peer(0))), call(rootSession));
  release();
  await t.notThrowsAsync(Promise.all(running), "root's calls on the socket are not its sessions'");
});
