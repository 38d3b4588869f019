/** The standard health service: without authentication, per service and for all, until the daemon stops. */
import test from "ava";
import { Health, HealthCheckResponse_ServingStatus as Status } from "../../gen/health/v1/health_pb.ts";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { isRoot, needsRoot, startDaemon } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";

for (const protocol of ["grpc", "grpc-web", "connect"] as const) {
  test(`over ${protocol}: a check needs no authentication and knows each service`, async (t) => {
    await using daemon = await startDaemon();
    const health = daemon.tokenClient(Health, protocol, "svcp_wrong");
    t.is((await health.check({})).status, Status.SERVING);
    t.is((await health.check({ service: "svc.v1.AppService" })).status, Status.SERVING);
    t.is((await errorOf(health.check({ service: "svc.v1.Nothing" }))).code, "NotFound");
    const { statuses } = await health.list({});
    t.is(statuses["svc.v1.TokenService"]?.status, Status.SERVING);
    t.is(statuses[""]?.status, Status.SERVING);
    const other = daemon.tokenClient(AppService, protocol, "svcp_wrong");
    t.is((await errorOf(other.listApps({}))).code, "Unauthenticated", "nothing else is public");
  });
}

test("watchers are notified that the daemon stops, and the stop does not wait for them", async (t) => {
  await using daemon = await startDaemon();
  const seen: Status[] = [];
  const unknown: Status[] = [];
  const watching = daemon.tokenClient(Health, "grpc", "none").watch({});
  const watchingNothing = daemon.client(Health, "grpc").watch({ service: "later.Service" });
  const first = Promise.withResolvers<undefined>();
  const ended = [
    errorOf(
      (async function* () {
        for await (const { status } of watching) {
          seen.push(status);
          first.resolve(undefined);
          yield status;
        }
      })(),
    ),
    errorOf(
      (async function* () {
        for await (const { status } of watchingNothing) {
          unknown.push(status);
          yield status;
        }
      })(),
    ),
  ];
  await first.promise;
  const startMs = performance.now();
  await daemon.stop();
  t.true(performance.now() - startMs < 5_000);
  for (const { code } of await Promise.all(ended)) t.is(code, "Unavailable");
  t.deepEqual(seen, [Status.SERVING, Status.NOT_SERVING]);
  t.deepEqual(unknown, [Status.SERVICE_UNKNOWN]);
});

test("the number of unauthenticated watchers is limited, and a disconnect frees a slot", async (t) => {
  await using daemon = await startDaemon();
  const leave = new AbortController();
  const clients = Array.from({ length: 4 }, () => daemon.client(Health, "grpc"));
  const iterators = clients.flatMap((client) =>
    Array.from({ length: 50 }, () => client.watch({}, { signal: leave.signal })[Symbol.asyncIterator]()),
  );
  for (const { value } of await Promise.all(iterators.map((iterator) => iterator.next()))) {
    t.like(value, { status: Status.SERVING });
  }
  t.is((await errorOf(daemon.client(Health, "grpc").watch({}))).reason, "too_many");
  t.is((await daemon.client(Health, "grpc").check({})).status, Status.SERVING);
  leave.abort();
  await Promise.allSettled(iterators.map((iterator) => iterator.next()));
  const again = daemon.client(Health, "grpc").watch({})[Symbol.asyncIterator]();
  t.is((await again.next()).value?.status, Status.SERVING);
  await again.return?.();
});

(isRoot ? test : test.skip)(`one user cannot take the health watches of others${needsRoot}`, async (t) => {
  await using daemon = await startDaemon();
  await using greedy = await daemon.as(4_001);
  await using other = await daemon.as(4_002);
  const leave = new AbortController();
  const watch = (user: Pick<typeof greedy, "client">) =>
    user.client(Health, "grpc").watch({}, { signal: leave.signal })[Symbol.asyncIterator]();
  const held = Array.from({ length: 50 }, () => watch(greedy));
  for (const { value } of await Promise.all(held.map((each) => each.next())))
    t.like(value, { status: Status.SERVING });
  t.is((await errorOf(watch(greedy).next())).reason, "too_many");
  for (const user of [other, daemon]) t.is((await watch(user).next()).value?.status, Status.SERVING);
  leave.abort();
  await Promise.allSettled(held.map((each) => each.next()));
});
