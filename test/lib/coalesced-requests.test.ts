import { setImmediate as turn } from "node:timers/promises";
import test from "ava";
import { CoalescedRequests } from "../../src/lib/coalesced-requests.ts";

/** Rounds that run until the test ends them, and return their requests. */
function heldRounds() {
  const begun: { questions: readonly string[]; signal: AbortSignal; end: () => void }[] = [];
  const rounds = new CoalescedRequests(async (questions: readonly string[], signal) => {
    const { promise, resolve } = Promise.withResolvers<undefined>();
    begun.push({ questions, signal, end: () => resolve(undefined) });
    await promise;
    return questions.join(" ");
  });
  return { begun, rounds };
}

test("one round runs at a time, for all requests since the previous one started", async (t) => {
  const { begun, rounds } = heldRounds();
  const first = [rounds.request("a"), rounds.request("b")];
  await turn();
  const second = [rounds.request("c"), rounds.request("d")];
  await turn();
  t.is(begun.length, 1);
  begun[0]!.end();
  t.deepEqual(await Promise.all(first), ["a b", "a b"]);
  await turn();
  begun[1]!.end();
  t.deepEqual(await Promise.all(second), ["c d", "c d"]);
  t.is(begun.length, 2);
});

test("a participant can leave at once, and the last one to leave aborts the round", async (t) => {
  const { begun, rounds } = heldRounds();
  const [one, other, late] = [new AbortController(), new AbortController(), new AbortController()];
  const leaving = rounds.request("a", one.signal);
  const staying = rounds.request("b", other.signal);
  await turn();
  one.abort(new Error("one has left"));
  await t.throwsAsync(leaving, { message: "one has left" });
  t.false(begun[0]!.signal.aborted);
  other.abort(new Error("the other has left"));
  await t.throwsAsync(staying, { message: "the other has left" });
  t.true(begun[0]!.signal.aborted);

  const waiting = rounds.request("c", late.signal);
  late.abort(new Error("too late"));
  await t.throwsAsync(waiting, { message: "too late" });
  await t.throwsAsync(rounds.request("d", late.signal), { message: "too late" });
  const last = rounds.request("e");
  await turn();
  t.is(begun.length, 1, "the next round waits until the work has ended");
  begun[0]!.end();
  await turn();
  t.deepEqual(begun[1]!.questions, ["e"]);
  begun[1]!.end();
  t.is(await last, "e");
});

test("a round without participants does no work", async (t) => {
  const { begun, rounds } = heldRounds();
  const leaver = new AbortController();
  const first = rounds.request("a");
  await turn();
  const left = rounds.request("b", leaver.signal);
  leaver.abort(new Error("left"));
  await t.throwsAsync(left, { message: "left" });
  begun[0]!.end();
  await first;
  await turn();
  t.is(begun.length, 1);
  const next = rounds.request("c");
  await turn();
  begun[1]!.end();
  t.is(await next, "c");
});

test("all participants get an error, and the next round starts after it", async (t) => {
  let rounds = 0;
  const failing = new CoalescedRequests(async () => {
    rounds++;
    if (rounds === 1) throw new Error("no luck");
    return "luck";
  });
  for (const result of await Promise.allSettled([failing.request("a"), failing.request("b")])) {
    t.like(result, { status: "rejected", reason: { message: "no luck" } });
  }
  t.is(await failing.request("c"), "luck");
});
