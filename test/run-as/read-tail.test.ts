import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import fc from "fast-check";
import { createWorld } from "./support/world.ts";

/** A simple reference implementation of the last lines of a text. */
function lastLines(text: string, count: number): string {
  const lines = text.split(/(?<=\n)/);
  return lines.slice(-count).join("");
}

test("the last lines are read across several files, oldest first", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  const content = fc
    .array(fc.tuple(fc.nat({ max: 90_000 }), fc.boolean()), { maxLength: 6 })
    .map((lines) =>
      lines.map(([length, ends], index) => String(index).repeat(length) + (ends ? "\n" : "")).join(""),
    );
  await fc.assert(
    fc.asyncProperty(
      fc.array(content, { minLength: 1, maxLength: 4 }),
      fc.integer({ min: 1, max: 8 }),
      async (contents, maxLines) => {
        const files = contents.map((_, index) => `log.${index}`);
        for (const [index, text] of contents.entries()) await user.writeFile(app, `log.${index}`, text);
        const { data, truncated } = await user.readTail(app, [...files, "none"], { maxLines });
        t.is(data.toString(), lastLines(contents.join(""), maxLines));
        t.false(truncated);
      },
    ),
    { numRuns: 60 },
  );
});

test("the result is limited, at the start of a line if possible", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  const text = Array.from({ length: 1000 }, (_, index) => `line ${String(index).padStart(4, "0")}\n`).join(
    "",
  );
  await user.writeFile(app, "log", text);
  for (const [maxBytes, expected] of [
    [30, text.slice(-30)],
    [29, text.slice(-20)],
    [31, text.slice(-30)],
    [5, text.slice(-5)],
  ] as const) {
    const { data, truncated } = await user.readTail(app, ["log"], { maxLines: 500, maxBytes });
    t.deepEqual([data.toString(), truncated], [expected, true], `${maxBytes} bytes`);
  }
});

test("reading the end of a file does not depend on its size", async (t) => {
  await using world = await createWorld();
  const { app, dir, user } = world;
  await user.runCommand(["sh", "-c", "truncate -s 64G log && echo >> log && seq 1 100 >> log"], { cwd: app });
  await user.readTail(app, ["log"], { maxLines: 1 });
  const start = performance.now();
  const { data } = await user.readTail(app, ["log"], { maxLines: 100 });
  const tookMs = performance.now() - start;
  t.is(data.toString().split("\n").length, 101);
  t.log(`100 lines of 64 GiB in ${tookMs.toFixed(1)} ms`);
  // Reading the whole file would take half a minute.
  t.true(tookMs < 5_000, `${tookMs} ms`);
  await writeFile(join(dir, "empty"), "");
  t.deepEqual(await user.readTail(dir, ["empty"], { maxLines: 1 }), {
    data: Buffer.alloc(0),
    truncated: false,
  });
});
