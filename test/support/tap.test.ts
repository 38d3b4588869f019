import test from "ava";
import { againLine, formatCounts, parseTestPoint, summarizeTap } from "./tap.ts";

const whole = `TAP version 13
ok 1 - a › passes
ok 2 - a › as another user (needs root) # SKIP
not ok 3 - a › later # TODO
not ok 4 - Error: uncaught
  ---
    message: ok 9 - not a test
  ...
not ok 5 - a › fails - with a dash
#   ok, some note
ok 6 - a › knows C# SKIPS

1..6
# tests 6
`;

test("passes, failures, what broke outside of tests, skips and todos are counted", (t) => {
  const { counts, isWhole } = summarizeTap(whole);
  t.deepEqual(counts, { passed: 2, failed: 2, skipped: 2 });
  t.true(isWhole);
  t.is(formatCounts(counts), "2 passed, 2 failed, 2 skipped");
});

test("a stream that broke off is not whole", (t) => {
  t.false(summarizeTap(whole.slice(0, whole.indexOf("1..6"))).isWhole);
  t.false(summarizeTap("").isWhole);
});

test("two streams are whole when both have ended", (t) => {
  t.deepEqual(summarizeTap(whole + whole).counts, { passed: 4, failed: 4, skipped: 4 });
  t.true(summarizeTap(whole + whole).isWhole);
  t.false(summarizeTap(whole + whole.slice(0, whole.indexOf("1..6"))).isWhole);
});

test("of a file that is run again only what comes after counts", (t) => {
  const first =
    "TAP version 13\nok 1 - a › b › one\nnot ok 2 - a › b › two\nnot ok 0 - a › b › its runner ended early\n1..3\n";
  const other = "TAP version 13\nok 1 - a › bc › one\nnot ok 2 - a › b2 › two\n1..2\n";
  const second = "TAP version 13\nok 1 - a › b › one\nok 2 - a › b › two\n1..2\n";
  const again = `${againLine("test/a/b.test.ts")}\n`;
  t.deepEqual(summarizeTap(first + other + again + second).counts, { passed: 3, failed: 1, skipped: 0 });
  t.true(summarizeTap(first + other + again + second).isWhole);
});

test("a title keeps its dashes and loses its directive", (t) => {
  t.deepEqual(parseTestPoint("not ok 5 - a › b - c"), { outcome: "failed", title: "a › b - c" });
  t.deepEqual(parseTestPoint("ok 2 - a › b (no root) # SKIP"), {
    outcome: "skipped",
    title: "a › b (no root)",
  });
  t.is(parseTestPoint("# ok 1 - a comment"), undefined);
});
