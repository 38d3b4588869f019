/** Views of jobs in lists, concurrent changes of jobs, and previews of triggers. */
import { inspect } from "node:util";
import test from "ava";
import type { Schedule } from "../../../gen/svc/v1/schedule_pb.ts";
import { SvcError } from "../../../src/errors.ts";
import { FairQueue } from "../../../src/lib/fair-queue.ts";
import type { JobWait } from "../../../src/scheduler/clock/due-jobs.ts";
import { previewFirings } from "../../../src/scheduler/clock/preview.ts";
import { JobOwners } from "../../../src/scheduler/jobs/job-owners.ts";
import { type JobChange, JobTable } from "../../../src/scheduler/jobs/job-table.ts";
import type { Job } from "../../../src/scheduler/jobs/job.ts";
import { Schedules } from "../../../src/scheduler/schedules.ts";
import { Zones } from "../../../src/triggers/zone.ts";
import { parseTrigger } from "../support/parse-trigger.ts";
import { openWorld, putJob, removeJob, succeeded } from "../support/world.ts";

// The views of jobs in a list show every change of a job.

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

// Many concurrent changes of jobs block nobody, in any order.

/** A prime, so that its multiples have a different order. */
const count = 20_011;
const step = 7_919;
/** Comparisons while some hundreds of changes are sorted or applied; all at once it would be half a million. */
const mostLooks = 20_000;

const trigger = parseTrigger("hourly");
const idOf = (n: number): string => `job-${String(n).padStart(6, "0")}`;

test("changes in any order are sorted and applied in slices", (t) => {
  let looks = 0;
  const changeOf = (n: number): JobChange => {
    const key = {
      id: idOf(n),
      get ownerUid() {
        looks += 1;
        return 0;
      },
    };
    return { key, job: { ownerUid: 0, id: key.id, trigger, comment: "", action: { type: "shell" } } as Job };
  };
  const changes = Array.from({ length: count }, (_, at) => changeOf((at * step) % count));
  /** The table with the changes, and the maximum of comparisons in one slice. */
  const take = (before: JobTable): { table: JobTable; most: number } => {
    const work = before.withAll(changes);
    for (let most = 0; ;) {
      looks = 0;
      const { done, value } = work.next();
      most = Math.max(most, looks);
      if (done === true) return { table: value, most };
    }
  };
  let table = new JobTable();
  // In a table that has them already each change is also looked up.
  for (const round of ["first", "again"]) {
    const taken = take(table);
    table = taken.table;
    t.deepEqual(
      table.jobs.map(({ id }) => id),
      Array.from({ length: count }, (_, n) => idOf(n)),
    );
    t.is(table.totalsOf(0).jobs, count);
    t.true(taken.most < mostLooks, `${round}: ${taken.most} comparisons in one slice`);
  }
});

// A preview of a trigger's firings.

test("the preview stops when its client disconnects", async (t) => {
  const client = new AbortController();
  let turns = 0;
  const yieldToOthers = (): Promise<void> => {
    if (++turns === 3) client.abort(new Error("the client disconnected"));
    return Promise.resolve();
  };
  const asked = { afterMs: 0, count: 100, yieldToOthers, signal: client.signal };
  const daily = parseTrigger("0 0 * * *");
  await t.throwsAsync(previewFirings(daily, new Zones().get("UTC"), asked), {
    message: "the client disconnected",
  });
  t.is(turns, 3);
});
