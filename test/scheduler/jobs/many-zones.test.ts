/** A list of jobs in all time zones: the next firing takes milliseconds in each, seconds in total. */
import { setImmediate as turn } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import test from "ava";
import { PreviewScheduleRequestSchema } from "../../../gen/svc/v1/schedule_pb.ts";
import { JobOwners } from "../../../src/scheduler/jobs/job-owners.ts";
import { openWorld, putJob, schedulesOf } from "../support/world.ts";

const root = { uid: 0, root: true };

test("the event loop is not blocked while a list of jobs in three hundred zones is created", async (t) => {
  t.timeout(60_000);
  const world = await openWorld();
  const owners = new JobOwners({ selfUid: 0, lookUp: () => Promise.resolve("root") });
  const schedules = schedulesOf(world, owners);
  const zones = Intl.supportedValuesOf("timeZone").slice(0, 300);
  for (const [at, timeZone] of zones.entries())
    await putJob(world, { ownerUid: 0, id: `job-${at}` }, { timeZone });
  const { result, turns } = await turnsDuring(schedules.list(root, { limit: 1_000, pageToken: "" }));
  t.is(result.schedules.length, zones.length);
  t.true(turns > 3, `${turns} turns of the loop`);
});

test("the event loop is not blocked while the firings of a hundred years are computed", async (t) => {
  t.timeout(60_000);
  const world = await openWorld();
  const owners = new JobOwners({ selfUid: 0, lookUp: () => Promise.resolve("root") });
  const request = create(PreviewScheduleRequestSchema, {
    ...{ trigger: "0 0 1 1 *", timeZone: "Europe/Berlin", count: 100 },
  });
  const { result, turns } = await turnsDuring(
    schedulesOf(world, owners).preview(request, root, new AbortController().signal),
  );
  t.is(result.firings.length, 100);
  t.true(turns > 3, `${turns} turns of the loop`);
});

/** The number of event-loop turns until it was done. */
async function turnsDuring<Value>(work: Promise<Value>): Promise<{ result: Value; turns: number }> {
  const counting = new AbortController();
  const done = work.finally(() => counting.abort());
  let turns = 0;
  while (!counting.signal.aborted) {
    await turn();
    turns++;
  }
  return { result: await done, turns };
}
