/** Jobs of removed users, and of users whose uid was reused. */
import { create } from "@bufbuild/protobuf";
import test from "ava";
import { UpsertScheduleRequestSchema } from "../../../gen/svc/v1/schedule_pb.ts";
import { SvcError } from "../../../src/errors.ts";
import { JobOwners } from "../../../src/scheduler/jobs/job-owners.ts";
import { openWorld, putJob, schedulesOf } from "../support/world.ts";

const uid = 1_001;
const root = { uid: 0, user: "root", root: true };
const [alice, bob] = ["alice", "bob"].map((user) => ({ uid, user, root: false }));
const request = create(UpsertScheduleRequestSchema, {
  id: "j",
  trigger: "hourly",
  action: { type: "app_start", app: "web" },
});

async function openSchedules(names: ReadonlyMap<number, string | Error>) {
  const world = await openWorld();
  const owners = new JobOwners({
    selfUid: 0,
    lookUp: (asked) => {
      const name = names.get(asked) ?? new SvcError("not_possible", `no user ${asked}`);
      return typeof name === "string" ? Promise.resolve(name) : Promise.reject(name);
    },
  });
  const schedules = schedulesOf(world, owners);
  return { world, owners, schedules, [Symbol.asyncDispose]: () => world[Symbol.asyncDispose]() };
}

test("a user with a reused uid inherits no jobs, and root sees why they do not run", async (t) => {
  const names = new Map<number, string | Error>([[uid, "alice"]]);
  await using opened = await openSchedules(names);
  const { schedules } = opened;
  if (alice === undefined || bob === undefined) return t.fail();
  const made = await schedules.upsert({ id: "j" }, request, alice);
  t.like(made, { ownerName: "alice", disabledReason: "" });
  t.not(made.nextRunUnix, undefined);

  names.delete(uid);
  const gone = await schedules.get({ id: "j", owner: uid }, root);
  t.like(gone, {
    enabled: true,
    ownerName: "alice",
    disabledReason: "its owner, alice, uid 1001, no longer exists",
  });
  t.is(gone.nextRunUnix, undefined);

  names.set(uid, "bob");
  const page = { limit: 10, pageToken: "" };
  t.deepEqual((await schedules.list(bob, page)).schedules, []);
  const [shown] = (await schedules.list(root, page)).schedules;
  t.like(shown, { disabledReason: "its owner, alice, no longer exists: uid 1001 is bob now" });
  await t.throwsAsync(schedules.get({ id: "j" }, bob), { message: 'no schedule "j"' });
  await t.throwsAsync(schedules.remove({ id: "j" }, bob), { message: 'no schedule "j"' });
  await t.throwsAsync(schedules.upsert({ id: "j" }, request, bob), { message: /belongs to a former user/ });

  const given = await schedules.upsert({ id: "j", owner: uid }, request, root);
  t.like(given, { ownerName: "bob", disabledReason: "" });
  t.is((await schedules.list(bob, page)).schedules.length, 1);
});

test("a user directory that does not respond affects nobody's jobs", async (t) => {
  const names = new Map<number, string | Error>([[uid, "alice"]]);
  await using opened = await openSchedules(names);
  if (alice === undefined) return t.fail();
  await opened.schedules.upsert({ id: "j" }, request, alice);
  names.set(uid, new SvcError("unavailable", "not now"));
  t.is((await opened.schedules.get({ id: "j" }, alice)).disabledReason, "");
});

test("jobs stored without a user name get their owner's, and those of a missing user stay without", async (t) => {
  const names = new Map<number, string | Error>([[uid, "alice"]]);
  await using opened = await openSchedules(names);
  const { world, owners } = opened;
  for (const ownerUid of [0, uid, 1_002]) await putJob(world, { ownerUid, id: "j" });
  await owners.nameAll(world.store, world.registry);
  t.deepEqual(
    world.registry.all().map(({ ownerName }) => ownerName),
    ["", "alice", "#1002"],
  );
  names.set(1_002, "bob");
  const ofBob = { uid: 1_002, user: "bob", root: false };
  t.deepEqual(world.registry.visible(ofBob), []);
});
