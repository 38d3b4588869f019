/** The views of jobs in a list show every change of a job. */
import { inspect } from "node:util";
import test from "ava";
import type { Schedule } from "../../../gen/svc/v1/schedule_pb.ts";
import { SvcError } from "../../../src/errors.ts";
import type { JobWait } from "../../../src/scheduler/clock/due-jobs.ts";
import { FairQueue } from "../../../src/lib/fair-queue.ts";
import { JobOwners } from "../../../src/scheduler/jobs/job-owners.ts";
import { Schedules } from "../../../src/scheduler/schedules.ts";
import { Zones } from "../../../src/triggers/zone.ts";
import { openWorld, putJob, removeJob, succeeded } from "../support/world.ts";

const uid = 1_001;
const root = { uid: 0, user: "root", root: true };
const [steady, other] = ["a-steady", "b-other"];
const key = { ownerUid: uid, id: other };
const hourMs = 3_600_000;

async function openLists() {
  const world = await openWorld();
  const host = { name: "alice", waits: new Map<string, JobWait>() };
  const unused = (): never => {
    throw new Error("nothing is run here");
  };
  const schedules = new Schedules({
    ...world,
    runs: world.log,
    runner: { start: unused, follow: unused, cancel: unused, finishing: unused },
    zones: new Zones({ local: () => "UTC" }),
    selfUid: 0,
    owners: new JobOwners({
      selfUid: 0,
      lookUp: (asked) => {
        const name = asked === 0 ? "root" : host.name;
        return name === "" ? Promise.reject(new SvcError("not_possible", "none")) : Promise.resolve(name);
      },
    }),
    hasApp: () => true,
    waitOf: ({ id }) => host.waits.get(id),
    now: () => world.clock.nowMs,
    fairQueue: new FairQueue(),
    log: { warn: () => undefined },
  });
  await putJob(world, { ownerUid: 0, id: steady }, { comment: "steady" });
  await putJob(world, key, { comment: "one" });
  const list = () => schedules.list(root, { limit: 10, pageToken: "" });
  const viewOf = async (id: string): Promise<Schedule> => {
    const found = (await list()).schedules.find((view) => view.id === id);
    if (found === undefined) throw new Error(`no ${id}`);
    return found;
  };
  return { world, host, schedules, list, viewOf, [Symbol.asyncDispose]: () => world[Symbol.asyncDispose]() };
}

type Lists = Awaited<ReturnType<typeof openLists>>;

/** A change of the other job, and its effect on the view. */
const changes: Record<
  string,
  { act: (lists: Lists) => Promise<unknown>; says: (view: Schedule) => boolean }
> = {
  "it is another": {
    act: ({ world }) => putJob(world, key, { comment: "two" }),
    says: ({ comment }) => comment === "two",
  },
  "it was disabled": {
    act: ({ world }) => putJob(world, key, { enabled: false }),
    says: ({ nextRunUnix }) => nextRunUnix === undefined,
  },
  "a run of it began": {
    act: ({ world }) => world.log.open(key, { trigger: "manual", attempt: 1 }),
    says: ({ lastRun }) => lastRun?.status === "RUNNING",
  },
  "a run of it ended": {
    act: async ({ world, list }) => {
      const { run } = await world.log.open(key, { trigger: "manual", attempt: 1 });
      await list();
      await world.log.close(run, succeeded);
    },
    says: ({ lastRun }) => lastRun?.status === "SUCCEEDED",
  },
  "what came of a run was amended": {
    act: async ({ world, list }) => {
      const { run } = await world.log.open(key, { trigger: "manual", attempt: 1 });
      const ended = await world.log.close(run, { ...succeeded, status: "FAILED", error: "one" });
      await list();
      await world.log.amend(ended, { ...succeeded, status: "FAILED", error: "two" });
    },
    says: ({ lastRun }) => lastRun?.error === "two",
  },
  "a firing was skipped": {
    act: ({ world }) => world.log.skip(key, "running", 60_000),
    says: ({ skipped }) => skipped === 1,
  },
  "another one was skipped": {
    act: async ({ world, list }) => {
      await world.log.skip(key, "running", 60_000);
      await list();
      await world.log.skip(key, "running", 120_000);
    },
    says: ({ skipped, skips }) => skipped === 2 && skips[0]?.lastUnix === 120n,
  },
  "it waits": {
    act: ({ host }) => Promise.resolve(host.waits.set(other, { reason: "jitter", scheduledAtMs: 0 })),
    says: ({ waiting }) => waiting?.reason === "jitter",
  },
  "it waits for another reason": {
    act: async ({ host, list }) => {
      host.waits.set(other, { reason: "jitter", scheduledAtMs: 0 });
      await list();
      host.waits.set(other, { reason: "room", scheduledAtMs: 0 });
    },
    says: ({ waiting }) => waiting?.reason === "room",
  },
  "its owner is gone": {
    act: ({ host }) => Promise.resolve((host.name = "")),
    says: ({ disabledReason }) => disabledReason.includes("no longer exists"),
  },
  "its owner has another name": {
    act: ({ host }) => Promise.resolve((host.name = "bob")),
    says: ({ ownerName }) => ownerName === "bob",
  },
  "it was removed and made again": {
    act: async ({ world }) => {
      await removeJob(world, key);
      await putJob(world, key, { comment: "again" });
    },
    says: ({ comment }) => comment === "again",
  },
};

for (const [what, { act, says }] of Object.entries(changes)) {
  test(`a list shows this change of a job, and leaves the other job unchanged: ${what}`, async (t) => {
    await using lists = await openLists();
    const [before, others] = [await lists.viewOf(steady), await lists.viewOf(other)];
    t.false(says(others), inspect(others));
    await act(lists);
    const now = await lists.viewOf(other);
    t.true(says(now), inspect(now));
    t.deepEqual(await lists.viewOf(steady), before);
  });
}

test("views show the next firing once the previous one has passed", async (t) => {
  await using lists = await openLists();
  const before = await lists.viewOf(steady);
  lists.world.clock.nowMs += hourMs;
  t.is((await lists.viewOf(steady)).nextRunUnix, before.nextRunUnix! + BigInt(hourMs / 1000));
});

test("jobs with one trigger show its next firing in each one's zone", async (t) => {
  await using lists = await openLists();
  // Half an hour off from UTC.
  await putJob(lists.world, key, { timeZone: "Asia/Kolkata" });
  for (const hours of [0, 1]) {
    lists.world.clock.nowMs += hours * hourMs;
    const nowSecs = BigInt(lists.world.clock.nowMs / 1_000);
    for (const [id, minutes] of [
      [steady, 60n],
      [other, 30n],
      [steady, 60n],
    ] as const) {
      t.is((await lists.viewOf(id)).nextRunUnix, nowSecs + minutes * 60n, id);
    }
  }
});

test("the error of the newest run is shown with its beginning", async (t) => {
  await using lists = await openLists();
  const { run } = await lists.world.log.open(key, { trigger: "manual", attempt: 1 });
  await lists.world.log.close(run, { ...succeeded, status: "FAILED", error: "e".repeat(2_000) });
  t.is((await lists.viewOf(other)).lastRun?.error, "e".repeat(1_024));
});
