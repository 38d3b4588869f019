import { setImmediate as turn } from "node:timers/promises";
import test from "ava";
import { HandOver } from "../../src/lib/hand-over.ts";

test("a piece is its giver's again when the next is asked for, and the end comes behind the last", async (t) => {
  const pieces = new HandOver();
  const said: string[] = [];
  const giving = (async () => {
    for (const name of ["one", "two"]) {
      await pieces.give(Buffer.from(name));
      said.push(`${name} is back`);
    }
    pieces.end();
  })();
  for await (const piece of pieces) {
    await turn();
    said.push(piece.toString());
  }
  await giving;
  t.deepEqual(said, ["one", "one is back", "two", "two is back"]);
});

test("who leaves takes nothing any more, of what was given and of what comes", async (t) => {
  const pieces = new HandOver();
  const given = pieces.give(Buffer.from("one"));
  for await (const piece of pieces) {
    t.is(piece.toString(), "one");
    break;
  }
  await t.throwsAsync(given);
  await t.throwsAsync(pieces.give(Buffer.from("two")));
});

test("a failure, and an end, are heard while a piece is looked at, or before anybody asks", async (t) => {
  const failed = new HandOver();
  void failed.give(Buffer.from("one")).catch(() => undefined);
  await t.throwsAsync(
    async () => {
      for await (const _piece of failed) failed.fail(new Error("gone"));
    },
    { message: "gone" },
  );
  const ended = new HandOver();
  ended.end();
  t.deepEqual(await Array.fromAsync(ended), []);
  const endedLate = new HandOver();
  void endedLate.give(Buffer.from("one"));
  for await (const _piece of endedLate) endedLate.end();
  t.pass();
});
