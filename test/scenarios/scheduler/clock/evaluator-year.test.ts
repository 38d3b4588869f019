/** A whole year of the evaluator, with every reading of the clock, against a second implementation of the policy. */
import { setImmediate as nextTurn } from "node:timers/promises";
import test from "ava";
import { Evaluation, job } from "../../../scheduler/support/evaluation.ts";
import { Policy } from "../../../triggers/support/policy.ts";
import { WallClock } from "../../../triggers/support/wall-clock.ts";

const [firstMs, lastMs] = [Date.UTC(2026, 0, 1), Date.UTC(2027, 0, 1)];
const dayMs = 86_400_000;

const triggers = [
  "*/7 1-3 * * *",
  "hourly",
  "daily@02:30",
  "03:00",
  "15 2 */2 * 0",
  "0 12 1 * 1",
  "0 0 29 2 *",
];
const zones = [
  "UTC",
  "Europe/Berlin",
  "America/New_York",
  "Australia/Lord_Howe",
  "Africa/Casablanca",
  "Asia/Kolkata",
];
const localZone = "Europe/Berlin";

test("a simulated year of mixed jobs has 0 firings that violate the policy", async (t) => {
  const jobs = ["", ...zones].flatMap((timeZone) =>
    triggers.map((trigger, at) => job(idOf(timeZone, at), trigger, { timeZone })),
  );
  await using evaluation = new Evaluation({ start: "2025-12-31T23:59:59Z", jobs, localZone });
  // Day by day, so that work deferred by each minute is done.
  for (let nowMs = evaluation.clock.nowMs(); nowMs < lastMs - 1; nowMs = evaluation.clock.nowMs()) {
    evaluation.clock.pass(Math.min(dayMs, lastMs - 1 - nowMs));
    await nextTurn();
  }

  const fired = Map.groupBy(evaluation.fired, ({ id }) => id);
  for (const timeZone of ["", ...zones]) {
    const clock = new WallClock(timeZone === "" ? localZone : timeZone, firstMs - dayMs, lastMs + dayMs);
    for (const [at, text] of triggers.entries()) {
      const id = idOf(timeZone, at);
      t.deepEqual(fired.get(id)?.map(({ atMs }) => atMs) ?? [], wantedBy(new Policy(text), clock), id);
    }
  }
  t.true(evaluation.fired.every(({ minuteMs, atMs }) => minuteMs === atMs));
  t.deepEqual(evaluation.skipped, []);
  t.log(
    `${evaluation.fired.length} firings of ${jobs.length} jobs, each in the first millisecond of its minute`,
  );
});

function idOf(timeZone: string, at: number): string {
  return `${timeZone.replaceAll("/", "-")}.${at}`;
}

function wantedBy(policy: Policy, clock: WallClock): number[] {
  const wanted: number[] = [];
  for (let at = clock.indexOf(firstMs); at < clock.indexOf(lastMs); at += 1) {
    if (policy.dueAt(clock, at) !== "no") wanted.push(clock.unixMsAt(at));
  }
  return wanted;
}
