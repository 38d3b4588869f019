import test from "ava";
import { Limiter, type LimiterOptions } from "../../src/lib/limiter.ts";

const root = "root";

function limiter(bounds: Partial<LimiterOptions<string>> = {}) {
  return new Limiter<string>({
    ...{ total: 4, perKey: 2, reserved: 1, maxWaiting: 2, isReserved: (key) => key === root },
    tooMany: ({ running, waiting }) => new Error(`${running} running, ${waiting} waiting`),
    ...bounds,
  });
}

/** Takes as many slots of the key as available at once. */
function fill(of: Limiter<string>, key: string): Disposable[] {
  const slots: Disposable[] = [];
  for (let slot = of.tryAcquire(key); slot !== undefined; slot = of.tryAcquire(key)) slots.push(slot);
  return slots;
}

test("a key gets no more slots than perKey", (t) => {
  const slots = limiter({ total: 100 });
  t.is(fill(slots, "ann").length, 2);
  t.is(fill(slots, "ben").length, 2);
});

test("other keys never take the reserved slots", (t) => {
  const slots = limiter();
  t.deepEqual(
    ["ann", "ben", "cid", root].map((key) => fill(slots, key).length),
    [2, 1, 0, 1],
  );
});

test("a reserved key leaves slots for the others", (t) => {
  const slots = limiter();
  t.is(fill(slots, root).length, 3, "its reserve and one key's share of the rest");
  t.is(fill(slots, "ann").length, 1);
  t.is(slots.running, 4);
});

test("without a total each key has its own slots", (t) => {
  const slots = limiter({ total: Number.POSITIVE_INFINITY, perKey: 3, reserved: 2 });
  for (let n = 0; n < 50; n++) t.is(fill(slots, `user${n}`).length, 3);
  t.is(fill(slots, root).length, 5);
});

test("keys take turns, and one key's waiters are served in order of arrival", async (t) => {
  const slots = limiter({ total: 1, perKey: 1, reserved: 0, maxWaiting: 10 });
  const first = slots.tryAcquire("ann")!;
  const served: string[] = [];
  const wait = async (key: string, name: string): Promise<void> => {
    using _slot = await slots.acquire(key);
    served.push(name);
  };
  const waiting = [
    ...["ann1", "ann2", "ann3"].map((name) => wait("ann", name)),
    ...["ben1", "ben2"].map((name) => wait("ben", name)),
  ];
  first[Symbol.dispose]();
  await Promise.all(waiting);
  t.deepEqual(served, ["ann1", "ben1", "ann2", "ben2", "ann3"]);
  t.is(slots.running, 0);
});

test("one key's waiters never delay a key that has slots", async (t) => {
  const slots = limiter();
  fill(slots, "ann");
  slots.acquire("ann").catch(() => undefined);
  using ben = await slots.acquire("ben");
  t.truthy(ben);
});

test("too many waiters of one key are rejected, with the counts", async (t) => {
  const slots = limiter();
  fill(slots, "ann");
  const waiting = [slots.acquire("ann"), slots.acquire("ann")];
  await t.throwsAsync(slots.acquire("ann"), { message: "2 running, 2 waiting" });
  t.is(slots.waitingOf("ann"), 2);
  t.is(slots.waitingOf("ben"), 0);
  t.is(waiting.length, 2);
});

test("a waiter leaves when its signal aborts, and the next one is served", async (t) => {
  const slots = limiter({ total: 1, perKey: 1, reserved: 0 });
  const held = slots.tryAcquire("ann")!;
  const leave = new AbortController();
  const left = slots.acquire("ann", leave.signal);
  const next = slots.acquire("ann");
  leave.abort(new Error("left"));
  await t.throwsAsync(left, { message: "left" });
  held[Symbol.dispose]();
  (await next)[Symbol.dispose]();
  await t.throwsAsync(slots.acquire("ann", AbortSignal.abort(new Error("before"))), { message: "before" });
  t.is(slots.running, 0);
});

test("disposing a slot twice frees it once", (t) => {
  const slots = limiter({ total: 2, perKey: 2, reserved: 0 });
  const [one, two] = fill(slots, "ann");
  one?.[Symbol.dispose]();
  one?.[Symbol.dispose]();
  t.is(slots.running, 1);
  t.is(fill(slots, "ann").length, 1);
  two?.[Symbol.dispose]();
});
