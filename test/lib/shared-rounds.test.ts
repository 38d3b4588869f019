import { setImmediate as turn } from "node:timers/promises";
import test from "ava";
import { SharedRounds } from "../../src/lib/shared-rounds.ts";

/** Rounds that each go on until the test ends them, and answer with what they were asked. */
function heldRounds() {
  const begun: { questions: readonly string[]; signal: AbortSignal; end: () => void }[] = [];
  const rounds = new SharedRounds(async (questions: readonly string[], signal) => {
    const { promise, resolve } = Promise.withResolvers<undefined>();
    begun.push({ questions, signal, end: () => resolve(undefined) });
    await promise;
    return questions.join(" ");
  });
  return { begun, rounds };
}

test("one round at a time, and each for all who came since the one before it began", async (t) => {
  const { begun, rounds } = heldRounds();
  const first = [rounds.join("a"), rounds.join("b")];
  await turn();
  const second = [rounds.join("c"), rounds.join("d")];
  await turn();
  t.is(begun.length, 1);
  begun[0]!.end();
  t.deepEqual(await Promise.all(first), ["a b", "a b"]);
  await turn();
  begun[1]!.end();
  t.deepEqual(await Promise.all(second), ["c d", "c d"]);
  t.is(begun.length, 2);
});

test("who leaves does so at once, and the last one to leave ends the round", async (t) => {
  const { begun, rounds } = heldRounds();
  const [one, other, late] = [new AbortController(), new AbortController(), new AbortController()];
  const leaving = rounds.join("a", one.signal);
  const staying = rounds.join("b", other.signal);
  await turn();
  one.abort(new Error("one has left"));
  await t.throwsAsync(leaving, { message: "one has left" });
  t.false(begun[0]!.signal.aborted);
  other.abort(new Error("the other has left"));
  await t.throwsAsync(staying, { message: "the other has left" });
  t.true(begun[0]!.signal.aborted);

  const waiting = rounds.join("c", late.signal);
  late.abort(new Error("too late"));
  await t.throwsAsync(waiting, { message: "too late" });
  await t.throwsAsync(rounds.join("d", late.signal), { message: "too late" });
  const last = rounds.join("e");
  await turn();
  t.is(begun.length, 1, "the next round waits until the work has ended");
  begun[0]!.end();
  await turn();
  t.deepEqual(begun[1]!.questions, ["e"]);
  begun[1]!.end();
  t.is(await last, "e");
});

test("a round that everybody has left before it began does no work", async (t) => {
  const { begun, rounds } = heldRounds();
  const leaver = new AbortController();
  const first = rounds.join("a");
  await turn();
  const left = rounds.join("b", leaver.signal);
  leaver.abort(new Error("left"));
  await t.throwsAsync(left, { message: "left" });
  begun[0]!.end();
  await first;
  await turn();
  t.is(begun.length, 1);
  const next = rounds.join("c");
  await turn();
  begun[1]!.end();
  t.is(await next, "c");
});

test("all who wait hear of an error, and the next round begins after it", async (t) => {
  let rounds = 0;
  const failing = new SharedRounds(async () => {
    rounds++;
    if (rounds === 1) throw new Error("no luck");
    return "luck";
  });
  for (const result of await Promise.allSettled([failing.join("a"), failing.join("b")])) {
    t.like(result, { status: "rejected", reason: { message: "no luck" } });
  }
  t.is(await failing.join("c"), "luck");
});
