import test from "ava";
import { ProcessMemo } from "../../src/host/process-memo.ts";

test("what was read of a process is believed for as long as was said, and never of another with its pid", (t) => {
  const memo = new ProcessMemo<string>();
  let reads = 0;
  const get = (startTicks: number, forMs: number): string =>
    memo.get({ pid: 7, startTicks }, () => ({ value: `${startTicks} ${(reads += 1)}`, forMs }));
  t.is(get(1, 0), "1 1");
  t.is(get(1, Infinity), "1 2");
  t.is(get(1, Infinity), "1 2");
  t.is(get(2, Infinity), "2 3");
  memo.keep(new Set([7]));
  t.is(get(2, Infinity), "2 3");
  memo.keep(new Set([8]));
  t.is(get(2, Infinity), "2 4");
});
