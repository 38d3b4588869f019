/** A graceful stop: no new calls, running calls get the grace period, and the rest ends as unavailable. */
import { once } from "node:events";
import { connect } from "node:net";
import { ConnectError, createClient } from "@connectrpc/connect";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { svcErrorOf } from "../../../src/server/rpc/connect/connect-errors.ts";
import { protocols, rest, transportTo } from "./support/clients.ts";
import { openDoor } from "./support/door.ts";
import type { FakeHandlers } from "./support/fake-services.ts";

/** Handlers that wait until they may continue, and report their start and abort. */
function waiting() {
  const begun = Promise.withResolvers<undefined>();
  const goOn = Promise.withResolvers<undefined>();
  const aborted = Promise.withResolvers<unknown>();
  const handlers: FakeHandlers = {
    app: {
      async startApp({ id }, { signal }) {
        signal.addEventListener("abort", () => aborted.resolve(signal.reason));
        begun.resolve(undefined);
        await goOn.promise;
        return { id };
      },
      async *streamAppLogs(_request, { signal }) {
        signal.addEventListener("abort", () => aborted.resolve(signal.reason));
        yield { lines: [{ text: "first" }] };
        begun.resolve(undefined);
        await goOn.promise;
      },
    },
  };
  return { begun: begun.promise, goOn: () => goOn.resolve(undefined), aborted: aborted.promise, handlers };
}

test("a running call may finish", async (t) => {
  const { begun, goOn, handlers } = waiting();
  await using door = await openDoor({ handlers });
  const answer = rest(door, "/v1/apps/hello/start", { method: "POST" });
  await begun;
  const stopped = door.listeners.stop();
  await t.throwsAsync(rest(door, "/v1/status"), { message: /ECONNREFUSED/ });
  goOn();
  const { status, json, headers } = await answer;
  t.deepEqual([status, json.id, headers.connection], [200, "hello", "close"]);
  await stopped;
});

test("a call beyond the grace period is unavailable, and its handler is aborted", async (t) => {
  const { begun, goOn, aborted, handlers } = waiting();
  await using door = await openDoor({ handlers, limits: { stopGraceMs: 50 } });
  const answer = rest(door, "/v1/apps/hello/start", { method: "POST" });
  await begun;
  await door.listeners.stop();
  const { status, json } = await answer;
  t.deepEqual([status, json.reason], [503, "unavailable"]);
  t.like(await aborted, { code: "unavailable" });
  t.deepEqual(door.audits, []);
  // The record has the handler's result, even without a client.
  goOn();
  await new Promise((resolve) => setImmediate(resolve));
  t.is(door.audits[0]?.result, "ok");
});

for (const protocol of protocols) {
  test(`${protocol}: a stream that only watches ends at once as unavailable`, async (t) => {
    const { begun, goOn, handlers } = waiting();
    await using door = await openDoor({ handlers, limits: { stopGraceMs: 20_000 } });
    const client = createClient(AppService, transportTo(door, protocol, "TCP"));
    const stream = client.streamAppLogs({ id: "hello" })[Symbol.asyncIterator]();
    t.is((await stream.next()).done, false);
    const next = stream.next();
    await begun;
    const startMs = performance.now();
    const [error] = await Promise.all([
      t.throwsAsync(next, { instanceOf: ConnectError }),
      door.listeners.stop(),
    ]);
    t.like(svcErrorOf(error), { code: "unavailable", message: "the daemon is stopping; try again" });
    t.true(performance.now() - startMs < 5000);
    goOn();
  });
}

test("idle and silent connections do not delay a stop", async (t) => {
  await using door = await openDoor();
  const silent = connect(door.port, "127.0.0.1");
  await once(silent, "connect");
  const closed = once(silent, "close");
  const startMs = performance.now();
  await door.listeners.stop();
  await closed;
  t.true(performance.now() - startMs < 4_000);
});

test("a second stop waits for the first", async (t) => {
  await using door = await openDoor();
  await Promise.all([door.listeners.stop(), door.listeners.stop()]);
  t.pass();
});
