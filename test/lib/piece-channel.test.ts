import { setImmediate as turn } from "node:timers/promises";
import test from "ava";
import { PieceChannel } from "../../src/lib/piece-channel.ts";

test("a piece is released when the next one is requested, and the end comes after the last", async (t) => {
  const pieces = new PieceChannel();
  const said: string[] = [];
  const giving = (async () => {
    for (const name of ["one", "two"]) {
      await pieces.send(Buffer.from(name));
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

test("a consumer that stops fails the current and all later pieces", async (t) => {
  const pieces = new PieceChannel();
  const given = pieces.send(Buffer.from("one"));
  for await (const piece of pieces) {
    t.is(piece.toString(), "one");
    break;
  }
  await t.throwsAsync(given);
  await t.throwsAsync(pieces.send(Buffer.from("two")));
});

test("a failure and an end arrive while a piece is in use, and before the first request", async (t) => {
  const failed = new PieceChannel();
  void failed.send(Buffer.from("one")).catch(() => undefined);
  await t.throwsAsync(
    async () => {
      for await (const _piece of failed) failed.fail(new Error("gone"));
    },
    { message: "gone" },
  );
  const ended = new PieceChannel();
  ended.end();
  t.deepEqual(await Array.fromAsync(ended), []);
  const endedLate = new PieceChannel();
  void endedLate.send(Buffer.from("one"));
  for await (const _piece of endedLate) endedLate.end();
  t.pass();
});
