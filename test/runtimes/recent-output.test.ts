/** The retained output of a terminal for its clients. */
import test from "ava";
import fc from "fast-check";
import { Watcher } from "../../src/runtimes/process/app-terminal.mjs";
import { RecentOutput } from "../../src/runtimes/process/recent-output.mjs";

const capacityBytes = 256 * 1024;

test("a client that reads in time misses nothing, in any chunk sizes", (t) => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 1, max: 100_000 }), { maxLength: 20 }), (lengths) => {
      const recent = new RecentOutput();
      const watcher = new Watcher(recent, 0, () => undefined);
      let counter = 0;
      for (const length of lengths) {
        const chunk = Buffer.from(Array.from({ length }, () => counter++ % 251));
        recent.push(chunk);
        const seen: Buffer[] = [];
        for (let next = watcher.next(); next !== undefined; next = watcher.next()) {
          if (!("data" in next)) return false;
          seen.push(next.data);
        }
        if (!Buffer.concat(seen).equals(chunk)) return false;
      }
      return true;
    }),
    { numRuns: 50 },
  );
  t.pass();
});

test("a later client starts with a complete character, and with a repainted screen if there is one", (t) => {
  const text = new RecentOutput();
  // Their size does not divide the ring's.
  for (let count = 0; count < 200_000; count++) text.push(Buffer.from("€"));
  const begin = text.screenStart(24);
  t.true(begin > text.start && begin - text.start < 4);
  t.is(text.read(begin).toString("utf8", 0, 3), "€");

  const editor = new RecentOutput();
  editor.push(Buffer.from("line\n".repeat(100)));
  const painted = editor.end;
  editor.push(Buffer.from(`\x1b[?1049h${"row\n".repeat(100)}`));
  t.is(editor.screenStart(5), painted);
  editor.push(Buffer.from("\x1b[?1049l"));
  t.true(editor.screenStart(5) > painted);
});

test("a slow client gets the number of skipped bytes, and resumes with the latest screen", (t) => {
  const recent = new RecentOutput();
  const watcher = new Watcher(recent, 0, () => undefined);
  watcher.size = { columns: 80, rows: 5 };
  const line = (number: number): string => `line ${String(number).padStart(6, "0")}\r\n`;
  const lines = 50_000;
  for (let number = 0; number < lines; number++) recent.push(Buffer.from(line(number)));
  const all = lines * line(0).length;
  t.is(recent.end, all);
  t.is(recent.start, all - capacityBytes, "no more than the buffer's size is retained");
  const missed = watcher.next();
  const screen = [45, 46, 47, 48, 49].map((number) => line(lines - 50 + number)).join("");
  t.deepEqual(missed, { missedBytes: all - screen.length });
  t.deepEqual(watcher.next(), { data: Buffer.from(screen) });
  t.is(watcher.next(), undefined);
});
