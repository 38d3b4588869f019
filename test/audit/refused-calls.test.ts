/** Refused calls leave a trace, and a flood of them leaves the trail as it was. */
import test from "ava";
import { AuditReader } from "../../src/audit/audit-reader.ts";
import { AuditTrail } from "../../src/audit/audit-trail.ts";
import { refusedCallsMethod } from "../../src/audit/refused-calls.ts";
import { temporaryStore } from "../store/support/temporary-store.ts";
import { auditedCall } from "./support/calls.ts";

const minuteMs = 60_000;

/** A trail whose time goes by only when it is told to. */
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
    /** Oldest first: who, what, and how many. */
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

test("the first refusal is a record at once, its repeats are one when the window is over", async (t) => {
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
  t.is(timers.size, 0, "nothing ticks while there is nothing to tell");

  trail.append(stranger(1001));
  t.deepEqual((await open.told()).at(-1), first);
  t.like(await open.reader.verify(), { problem: undefined, records: 4 });
});

test("whatever a stranger is told, their tries are counted together", async (t) => {
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

test("what was done is a record each, however often", async (t) => {
  await using open = await openTrail();
  for (let n = 0; n < 200; n++) open.trail.append(auditedCall(1));
  for (let n = 0; n < 200; n++)
    open.trail.append(auditedCall(1, { result: "not_found", reason: "not_found" }));
  t.is((await open.told()).length, 400);
});

test("a known caller who is denied is told apart by user, method and target", async (t) => {
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
    "the end of the daemon tells what was counted",
  );
});

test("a day's flood from ever other addresses pushes nothing out of the trail", async (t) => {
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
  t.is(attempts, sent + 1, "every try is counted once");
  t.true(records.some(({ method }) => method === refusedCallsMethod));
  t.like(await open.reader.verify(), { problem: undefined });
});

test("a clock that is set back ends no window early, and gives no budget", async (t) => {
  await using open = await openTrail();
  for (let n = 0; n < 200; n++) open.trail.append(stranger(n, `10.0.0.${n}`));
  t.is((await open.told()).length, 64);
  open.pass(-2 * minuteMs);
  for (let n = 0; n < 64; n++) open.trail.append(stranger(n, `10.0.1.${n}`));
  t.is((await open.told()).length, 64);
});
