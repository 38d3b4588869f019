import { setImmediate as nextTurn } from "node:timers/promises";
import test from "ava";
import { FairQueue } from "../../src/lib/fair-queue.ts";
import { boundedLines } from "../../src/lib/lines.ts";

async function* from(pieces: Iterable<string>): AsyncGenerator<string> {
  yield* pieces;
}
const at = { maxLength: 10, turn: () => undefined };

for (const [name, pieces, lines] of [
  ["whole ones", ["a\nb\n"], ["a", "b"]],
  ["one in pieces", ["a", "b", "c\nd"], ["abc"]],
  ["empty ones", ["\n\n", "\n"], ["", "", ""]],
  ["one that is too long", ["a\n", "b".repeat(11), "\nc\n"], ["a"]],
  ["one that is too long, whole", [`a\n${"b".repeat(11)}\nc\n`], ["a"]],
  ["one that is too long with its end", ["a\n", "b".repeat(6), "b".repeat(5) + "\nc\n"], ["a"]],
  ["none", [], []],
] as const) {
  test(`lines: ${name}`, async (t) => {
    t.deepEqual(await Array.fromAsync(boundedLines(from(pieces), at)), [...lines]);
  });
}

for (const [name, pieces, lines] of [
  ["whole", [`a\n${"b".repeat(11)}\nc\n`], ["a", "c"]],
  ["in pieces", ["a\n", "b".repeat(6), "b".repeat(5), "b".repeat(50), "b\nc\n"], ["a", "c"]],
  ["at the end", ["a\n", "b".repeat(60)], ["a"]],
] as const) {
  test(`lines: a line that is too long is skipped, ${name}`, async (t) => {
    const options = { ...at, leavesOutLong: true };
    t.deepEqual(await Array.fromAsync(boundedLines(from(pieces), options)), [...lines]);
  });
}

test("endless lines let other work run in between", async (t) => {
  const turns = new FairQueue();
  function* endless(): Generator<string> {
    for (;;) yield "x\n".repeat(1_000);
  }
  const leave = new AbortController();
  const reading = (async () => {
    const lines = boundedLines(from(endless()), { maxLength: 10, turn: () => turns.wait("uid 1000") });
    for await (const _line of lines) if (leave.signal.aborted) return;
  })();
  // Endless microtasks would prevent this.
  await nextTurn();
  await turns.wait("root");
  leave.abort();
  await t.notThrowsAsync(reading);
});
