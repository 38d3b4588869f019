/** Size limits of an owner's jobs and of a page of them. */
import test from "ava";
import type { SvcError } from "../../../src/errors.ts";
import { JobOwners } from "../../../src/scheduler/jobs/job-owners.ts";
import { JobWriter } from "../../../src/scheduler/jobs/job-writer.ts";
import { openWorld, putJob, schedulesOf, spec } from "../support/world.ts";

const shell = (length: number) => ({ action: { type: "shell", command: "x".repeat(length) } }) as const;

test("the total size of an owner's jobs is limited, and may always shrink", async (t) => {
  await using world = await openWorld();
  const writer = new JobWriter({ ...world, now: () => world.clock.nowMs });
  const bounds = { jobs: 3, chars: 100 };
  const put = (id: string, length: number): Promise<void> =>
    writer.upsert(
      { ownerUid: 1, id },
      () => spec(shell(length)),
      { createOnly: false, revision: "" },
      bounds,
    );
  await put("a", 40);
  await put("b", 40);
  for (const [id, length] of [
    ["c", 10],
    ["b", 50],
  ] as const) {
    const error = await t.throwsAsync<SvcError>(put(id, length));
    t.is(error.reason, "too_many");
    t.regex(error.message, /characters exceed the limit of 100 per owner/);
  }
  await put("a", 10);
  await put("c", 10);
  t.is((await t.throwsAsync<SvcError>(put("d", 1))).message.split(" exceed")[0], "4 schedules");
});

test("a page contains as many jobs as fit, and the next one continues", async (t) => {
  await using world = await openWorld();
  for (let at = 0; at < 40; at += 1) {
    await putJob(world, { ownerUid: 0, id: `j${String(at).padStart(2, "0")}` }, shell(65_500));
  }
  const owners = new JobOwners({ selfUid: 0, lookUp: () => Promise.resolve("root") });
  const schedules = schedulesOf(world, owners);
  const sizes: number[] = [];
  const ids: string[] = [];
  for (let pageToken = ""; ;) {
    const page = await schedules.list({ uid: 0, root: true }, { limit: 1_000, pageToken });
    sizes.push(page.schedules.length);
    ids.push(...page.schedules.map(({ id }) => id));
    pageToken = page.nextPageToken;
    if (pageToken === "") break;
  }
  t.deepEqual(sizes, [5, 5, 5, 5, 5, 5, 5, 5]);
  t.is(new Set(ids).size, 40);
});
