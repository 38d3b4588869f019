import test from "ava";
import { createJitter } from "../../../src/scheduler/clock/jitter.ts";
import { job } from "../support/evaluation.ts";

const minuteMs = 60_000;

test("jitter is the same for the same firing of a host, and different for every other", (t) => {
  const [web, db] = [job("web", "hourly", { jitterSecs: 600 }), job("db", "hourly", { jitterSecs: 600 })];
  const [here, there] = [createJitter("a"), createJitter("b")];
  t.is(here(web, minuteMs), createJitter("a")(web, minuteMs));
  const others = [here(web, minuteMs), here(web, 2 * minuteMs), here(db, minuteMs), there(web, minuteMs)];
  t.is(new Set(others).size, 4);
});

test("jitter stays within its limit and is spread over it", (t) => {
  const spread = job("web", "hourly", { jitterSecs: 10 });
  const jitter = createJitter("a");
  const tenths = new Array<number>(10).fill(0);
  for (let minute = 0; minute < 10_000; minute++) {
    const ms = jitter(spread, minute * minuteMs);
    tenths[Math.floor(ms / 1_000)]! += 1;
  }
  t.is(
    tenths.reduce((sum, count) => sum + count, 0),
    10_000,
    "none is outside",
  );
  t.true(
    tenths.every((count) => count > 850 && count < 1_150),
    tenths.join(" "),
  );
  t.is(jitter(job("none", "hourly"), minuteMs), 0);
});
