/** Calls without effect are recorded, and a flood of them does not displace other records. */
import test from "ava";
import { AuditReader } from "../../../src/observability/audit/audit-reader.ts";
import { AuditTrail } from "../../../src/observability/audit/audit-trail.ts";
import { rejectedCallsMethod } from "../../../src/observability/audit/ineffective-calls.ts";
import { temporaryStore } from "../../store/support/temporary-store.ts";
import { auditedCall } from "./support/calls.ts";

const minuteMs = 60_000;

/** A trail with a fake clock. */
async function openTrail() {
  const { store, ...rest } = await temporaryStore();
  let nowMs = 1_750_000_000_000;
  const timers = new Set<{ action: () => void }>();
  const trail = new AuditTrail({
    store,
    log: { error: () => undefined },
    userName: () => Promise.resolve(""),
    now: () => nowMs,
    every: (_intervalMs, action) => {
      const timer = { action };
      timers.add(timer);
      return { [Symbol.dispose]: () => void timers.delete(timer) };
    },
  });
  const reader = new AuditReader(store);
  return {
    ...rest,
    trail,
    reader,
    timers,
    pass(ms: number) {
      nowMs += ms;
      for (const { action } of [...timers]) action();
    },
    /** Oldest first: caller, call, and count. */
    async told() {
      await trail.flush();
      return reader
        .list({}, 1000, "")
        .records.toReversed()
        .map(({ address, method, result, attempts }) => [
          address,
          method.split("/")[1],
          result,
          attempts ?? 1,
        ]);
    },
  };
}

const nobody = { uid: 2 ** 32 - 1, kind: "anonymous", ownerUid: 2 ** 32 - 1 };

function stranger(n: number, address = "127.0.0.1", target = "") {
  const refused = { result: "unauthenticated", reason: "unauthenticated", target };
  return auditedCall(n, { user: { ...nobody, address }, ...refused });
}

test("the first denial is a record at once, and its repeats are one record at the end of the window", async (t) => {
  await using open = await openTrail();
  const { trail, timers } = open;
  for (let n = 0; n < 1000; n++) trail.append(stranger(n));
  trail.append(stranger(1000, "10.0.0.7"));
  const first = ["127.0.0.1", "StartApp", "unauthenticated", 1];
  const other = ["10.0.0.7", "StartApp", "unauthenticated", 1];
  t.deepEqual(await open.told(), [first, other]);
  open.pass(9 * minuteMs);
  t.is((await open.told()).length, 2);
  open.pass(minuteMs);
  const repeats = ["127.0.0.1", "StartApp", "unauthenticated", 999];
  t.deepEqual(await open.told(), [first, other, repeats]);
  t.is(timers.size, 0, "no timer runs when nothing is counted");

  trail.append(stranger(1001));
  t.deepEqual((await open.told()).at(-1), first);
  t.like(await open.reader.verify(), { problem: undefined, records: 4 });
});

test("attempts of unknown callers are counted together, whatever their error is", async (t) => {
  await using open = await openTrail();
  const { trail } = open;
  for (const result of ["unauthenticated", "permission_denied", "resource_exhausted", "unavailable"]) {
    for (let n = 0; n < 100; n++) {
      trail.append(auditedCall(n, { user: { ...nobody, address: "127.0.0.1" }, target: "", result }));
    }
  }
  t.is((await open.told()).length, 4);
  await trail[Symbol.asyncDispose]();
  t.deepEqual(
    (await open.told()).slice(4).map(([, , , attempts]) => attempts),
    [99, 99, 99, 99],
  );
});

test("each call that had an effect is a separate record", async (t) => {
  await using open = await openTrail();
  for (let n = 0; n < 200; n++) open.trail.append(auditedCall(1));
  for (let n = 0; n < 200; n++)
    open.trail.append(auditedCall(1, { result: "failed_precondition", reason: "start_failed" }));
  t.is((await open.told()).length, 400);
});

test("repeated calls that changed nothing become one record with their number", async (t) => {
  await using open = await openTrail();
  for (let n = 0; n < 200; n++) open.trail.append(auditedCall(1, { changedNothing: true }));
  for (let n = 0; n < 200; n++)
    open.trail.append(auditedCall(1, { result: "not_found", reason: "not_found" }));
  t.is((await open.told()).length, 2);
  open.pass(10 * minuteMs);
  t.deepEqual(
    (await open.told()).slice(2).map(([, , result, attempts]) => [result, attempts]),
    [
      ["ok", 199],
      ["not_found", 199],
    ],
  );
});

test("one user's failing calls of many kinds do not use up another user's budget", async (t) => {
  await using open = await openTrail();
  const missing = { result: "not_found", reason: "not_found" };
  const [ann, bob] = [1000, 1001].map((uid) => ({ uid, kind: "peer", ownerUid: uid, peerUid: uid }));
  for (let n = 0; n < 1000; n++) open.trail.append(auditedCall(n, { ...missing, user: ann! }));
  for (let n = 0; n < 60; n++) open.trail.append(auditedCall(n, { ...missing, user: bob! }));
  await open.trail[Symbol.asyncDispose]();
  const { records } = open.reader.list({}, 1000, "");
  t.is(records.filter(({ uid }) => uid === 1001).length, 60);
  t.is(records.filter(({ uid }) => uid === 1000).length, 65, "64 kinds, and one record for the other calls");
  t.like(
    records.find(({ method }) => method === rejectedCallsMethod),
    { uid: 1000, attempts: 936 },
  );
});

test("a known caller who is denied is recorded by user, method and target", async (t) => {
  await using open = await openTrail();
  const denied = { result: "permission_denied", reason: "root_required" };
  const ann = { uid: 1000, kind: "peer", ownerUid: 1000, peerUid: 1000 };
  const bob = { ...ann, uid: 1001, user: "bob", ownerUid: 1001, peerUid: 1001 };
  for (let n = 0; n < 10; n++) {
    for (const user of [ann, bob]) {
      for (const target of ["a", "b"]) open.trail.append(auditedCall(n, { ...denied, user, target }));
    }
  }
  t.is((await open.told()).length, 4);
  open.trail[Symbol.asyncDispose]().catch(() => undefined);
  t.deepEqual(
    (await open.told()).slice(4).map(([, , , attempts]) => attempts),
    [9, 9, 9, 9],
    "the counts are recorded when the daemon stops",
  );
});

test("a day's flood from changing addresses displaces nothing in the trail", async (t) => {
  await using open = await openTrail();
  open.trail.append(auditedCall(1));
  const hours = 24;
  let sent = 0;
  for (let minute = 0; minute < hours * 60; minute++) {
    for (let n = 0; n < 20; n++) {
      open.trail.append(stranger(sent, `10.0.${Math.floor(sent / 256) % 256}.${sent % 256}`));
      sent++;
    }
    open.pass(minuteMs);
  }
  await open.trail[Symbol.asyncDispose]();
  const records = (await open.trail.flush(), open.reader.list({}, 10_000, "").records);
  t.true(records.length <= 128 + 60 * hours + 6 * hours + 1, `${records.length} records`);
  t.is(records.at(-1)?.seq, 1);
  const attempts = records.reduce((sum, record) => sum + (record.attempts ?? 1), 0);
  t.is(attempts, sent + 1, "every attempt is counted once");
  t.true(records.some(({ method }) => method === rejectedCallsMethod));
  t.like(await open.reader.verify(), { problem: undefined });
});

test("a clock that is set back ends no window early, and adds no budget", async (t) => {
  await using open = await openTrail();
  for (let n = 0; n < 200; n++) open.trail.append(stranger(n, `10.0.0.${n}`));
  t.is((await open.told()).length, 64);
  open.pass(-2 * minuteMs);
  for (let n = 0; n < 64; n++) open.trail.append(stranger(n, `10.0.1.${n}`));
  t.is((await open.told()).length, 64);
});
