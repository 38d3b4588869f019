/** A list of jobs in all the zones that there are: what fires next in each takes milliseconds, seconds in all (T 57). */
import { setImmediate as turn } from "node:timers/promises";
import test from "ava";
import { JobOwners } from "../../../src/scheduler/jobs/job-owners.ts";
import { openWorld, putJob, schedulesOf } from "../support/world.ts";

test("others have their turn while a list of jobs in three hundred zones is made", async (t) => {
  t.timeout(60_000);
  const world = await openWorld();
  const owners = new JobOwners({ selfUid: 0, lookUp: () => Promise.resolve("root") });
  const schedules = schedulesOf(world, owners);
  const zones = Intl.supportedValuesOf("timeZone").slice(0, 300);
  for (const [at, timeZone] of zones.entries())
    await putJob(world, { ownerUid: 0, id: `job-${at}` }, { timeZone });
  const listed = schedules.list({ uid: 0, root: true }, { limit: 1_000, pageToken: "" });
  const counting = new AbortController();
  const done = listed.finally(() => counting.abort());
  let turns = 0;
  while (!counting.signal.aborted) {
    await turn();
    turns++;
  }
  t.is((await done).schedules.length, zones.length);
  t.true(turns > 20, `${turns} turns of the loop`);
});
