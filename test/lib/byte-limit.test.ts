import { once } from "node:events";
import { PassThrough, Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import test from "ava";
import { limitBytes } from "../../src/lib/byte-limit.ts";

const tooMuch = (): Error => new Error("too much");

test("as many bytes as are allowed pass, one more fails and ends the source", async (t) => {
  const whole = limitBytes(Readable.from([Buffer.from("ab"), Buffer.from("cd")]), 4, tooMuch);
  t.is(String(await buffer(whole)), "abcd");
  const source = Readable.from([Buffer.from("ab"), Buffer.from("cde"), Buffer.from("f")]);
  await t.throwsAsync(buffer(limitBytes(source, 4, tooMuch)), { message: "too much" });
  t.true(source.destroyed);
});

test("a source that fails fails what is read of it", async (t) => {
  const source = new PassThrough();
  const read = buffer(limitBytes(source, 4, tooMuch));
  source.write("ab");
  source.destroy(new Error("broken"));
  await t.throwsAsync(read, { message: "broken" });
});

test("a reader that leaves ends the source", async (t) => {
  const source = new PassThrough();
  const limited = limitBytes(source, 4, tooMuch);
  limited.destroy();
  await once(source, "close");
  t.true(source.destroyed);
});
