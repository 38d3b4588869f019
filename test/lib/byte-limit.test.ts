import { PassThrough, Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import test from "ava";
import { limitBytes } from "../../src/lib/byte-streams.ts";
import { nextEvent } from "../support/eventually.ts";

const tooMuch = (): Error => new Error("too much");

test("the allowed bytes pass; one more fails and destroys the source", async (t) => {
  const whole = limitBytes(Readable.from([Buffer.from("ab"), Buffer.from("cd")]), 4, tooMuch);
  t.is(String(await buffer(whole)), "abcd");
  const source = Readable.from([Buffer.from("ab"), Buffer.from("cde"), Buffer.from("f")]);
  await t.throwsAsync(buffer(limitBytes(source, 4, tooMuch)), { message: "too much" });
  t.true(source.destroyed);
});

test("an error of the source fails the limited stream", async (t) => {
  const source = new PassThrough();
  const read = buffer(limitBytes(source, 4, tooMuch));
  source.write("ab");
  source.destroy(new Error("broken"));
  await t.throwsAsync(read, { message: "broken" });
});

test("destroying the limited stream destroys the source", async (t) => {
  const source = new PassThrough();
  const limited = limitBytes(source, 4, tooMuch);
  limited.destroy();
  await nextEvent(source, "close");
  t.true(source.destroyed);
});
