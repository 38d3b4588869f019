/** Bytes on their way through the daemon: limits, memory, pieces and lines. */
import { PassThrough, Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { setImmediate as turn } from "node:timers/promises";
import test from "ava";
import fc from "fast-check";
import { BufferPool, freeMemory } from "../../src/lib/buffer-pool.ts";
import { ByteList } from "../../src/lib/byte-list.ts";
import { limitBytes } from "../../src/lib/byte-streams.ts";
import { FairQueue } from "../../src/lib/fair-queue.ts";
import { boundedLines } from "../../src/lib/lines.ts";
import { PieceChannel } from "../../src/lib/piece-channel.ts";
import { nextEvent } from "../support/eventually.ts";

const tooMuch = (): Error => new Error("too much");

test("the allowed bytes pass; one more fails and destroys the source", async (t) => {
  const whole = limitBytes(Readable.from([Buffer.from("ab"), Buffer.from("cd")]), 4, tooMuch);
  t.is(String(await buffer(whole)), "abcd");
  const source = Readable.from([Buffer.from("ab"), Buffer.from("cde"), Buffer.from("f")]);
  await t.throwsAsync(buffer(limitBytes(source, 4, tooMuch)), { message: "too much" });
  t.true(source.destroyed);
});

test("an error before the first read reaches the reader, and does not end the process", async (t) => {
  const broken = new PassThrough();
  broken.on("error", () => undefined).destroy(new Error("broken"));
  const large = limitBytes(Readable.from([Buffer.from("abcde")]), 4, tooMuch);
  await turn();
  await turn();
  const late = limitBytes(broken, 4, tooMuch);
  await turn();
  await t.throwsAsync(buffer(large), { message: "too much" });
  await t.throwsAsync(buffer(late), { message: "broken" });
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

test("a list has the bytes of its pieces in order", (t) => {
  const piece = fc.oneof(
    fc.uint8Array({ maxLength: 3 }),
    fc.uint8Array({ minLength: 1_000, maxLength: 1_100 }),
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 600 }), fc.boolean(), (pieces, isAsked) => {
      const list = new ByteList();
      for (const each of pieces) {
        list.push(Buffer.from(each));
        if (isAsked) list.bytes.equals(Buffer.alloc(0));
      }
      const expected = Buffer.concat(pieces);
      return (
        list.sizeBytes === expected.length &&
        list.bytes.equals(expected) &&
        Buffer.concat(list.take()).equals(expected) &&
        list.bytes.length === 0
      );
    }),
    { numRuns: 50 },
  );
  t.pass();
});

test("64 KiB that arrive byte by byte are few pieces", (t) => {
  const list = new ByteList();
  for (let n = 0; n < 65_536; n++) list.push(Buffer.from("x"));
  t.is(list.sizeBytes, 65_536);
  t.is(list.pieces.length, 256);
});

test("large pieces are not copied", (t) => {
  const large = Buffer.alloc(1_024);
  const list = new ByteList();
  list.push(large);
  t.is(list.bytes, large);
});

const bufferBytes = 1024;

test("a released buffer is reused, up to the maximum number of unused buffers", (t) => {
  const pool = new BufferPool(bufferBytes, 1);
  const [one, two] = [pool.copy(Buffer.alloc(1000, 1)), pool.copy(Buffer.alloc(1000, 2))];
  t.not(one.buffer, two.buffer);
  t.deepEqual(one, Buffer.alloc(1000, 1));
  pool.release(one);
  pool.release(two);
  const again = [3, 4].map((byte) => pool.copy(Buffer.alloc(bufferBytes, byte)));
  t.is(again[0]?.buffer, one.buffer);
  t.not(again[1]?.buffer, two.buffer);
  t.deepEqual(again, [Buffer.alloc(bufferBytes, 3), Buffer.alloc(bufferBytes, 4)]);
});

test("copies much smaller or larger than a buffer get separate memory", (t) => {
  const pool = new BufferPool(bufferBytes, 1);
  const memory = pool.copy(Buffer.alloc(bufferBytes));
  pool.release(memory);
  for (const length of [0, 1, bufferBytes / 2 - 1, bufferBytes + 1]) {
    const copied = pool.copy(Buffer.alloc(length, 7));
    t.not(copied.buffer, memory.buffer, String(length));
    t.deepEqual(copied, Buffer.alloc(length, 7));
    pool.release(copied);
  }
  t.is(pool.copy(Buffer.alloc(bufferBytes)).buffer, memory.buffer);
});

test("large memory is freed at once, shared memory is not", (t) => {
  const own = new Uint8Array(64 << 10);
  const part = new Uint8Array(64 << 10).subarray(1);
  const pooled = Buffer.from("small");
  const shared = new Uint8Array(new SharedArrayBuffer(64 << 10));
  for (const bytes of [own, part, pooled, shared]) freeMemory(bytes);
  t.deepEqual(
    [own, part, pooled, shared].map(({ length }) => length),
    [0, (64 << 10) - 1, 5, 64 << 10],
  );
});

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
  await turn();
  await turns.wait("root");
  leave.abort();
  await t.notThrowsAsync(reading);
});
