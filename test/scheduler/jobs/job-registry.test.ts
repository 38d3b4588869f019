/** Jobs of users and managers: created, changed, pushed and removed. */
import { create } from "@bufbuild/protobuf";
import test from "ava";
import { UpsertScheduleRequestSchema } from "../../../gen/svc/v1/schedule_pb.ts";
import { SvcError } from "../../../src/errors.ts";
import { JobOwners } from "../../../src/scheduler/jobs/job-owners.ts";
import { JobRegistry } from "../../../src/scheduler/jobs/job-registry.ts";
import { documentOf, isSameSpec } from "../../../src/scheduler/jobs/job-row.ts";
import { JobWriter, type ReadJob } from "../../../src/scheduler/jobs/job-writer.ts";
import { revisionText, type JobKey, type Job, type JobSpec } from "../../../src/scheduler/jobs/job.ts";
import type { Store } from "../../../src/store/store.ts";
import { openStore, until } from "../../store/support/temporary-store.ts";
import { parseTrigger } from "../support/parse-trigger.ts";
import { addMany, openWorld, putJob, removeJob, spec, type World, schedulesOf } from "../support/world.ts";

const key = (id: string, ownerUid = 0): JobKey => ({ ownerUid, id });
const root = { uid: 0, root: true };

test("a job is read as it was written, also after a restart", async (t) => {
  await using world = await openWorld();
  const full = spec({
    trigger: parseTrigger("*/5 1-3 * * 7"),
    timeZone: "Europe/Berlin",
    enabled: false,
    comment: "a note",
    managedBy: "platform",
    action: {
      type: "http",
      url: "http://localhost/",
      method: "POST",
      headers: { "X-B": "2", "X-A": "1" },
      body: "{}",
    },
    timeoutSecs: 5,
    keep: 3,
    jitterSecs: 7,
    retries: 2,
    catchUp: "latest",
  });
  await putJob(world, key("a"), full);
  await using store = await openStore({ dir: world.dir });
  using again = new JobRegistry(store);
  for (const registry of [world.registry, again]) {
    const { revision, ...job } = registry.get(key("a")) ?? t.fail("no job");
    t.true(revision > 0);
    t.deepEqual(job, { ...full, ...key("a"), ownerName: "", updatedAtMs: world.clock.nowMs });
  }
});

test("jobs are sorted by owner and ID, and each caller sees their own", async (t) => {
  await using world = await openWorld();
  for (const [id, uid] of [
    ["b", 7],
    ["a", 7],
    ["z", 0],
    ["B", 7],
    ["c", 12],
    ["a", 0],
  ] as const) {
    await putJob(world, key(id, uid));
  }
  const { registry } = world;
  const names = (jobs: readonly JobKey[]): string[] => jobs.map(({ ownerUid, id }) => `${ownerUid}/${id}`);
  t.deepEqual(names(registry.all()), ["0/a", "0/z", "7/B", "7/a", "7/b", "12/c"]);
  t.deepEqual(names(registry.visible(root)), names(registry.all()));
  t.deepEqual(names(registry.visible({ uid: 7, root: false })), ["7/B", "7/a", "7/b"]);
  t.deepEqual(names(registry.visible({ uid: 8, root: false })), []);
  t.is(registry.get(key("b", 12)), undefined);
  t.is(registry.find(key("b", 7), root).id, "b");
  t.is(registry.find(key("b", 7), { uid: 7, root: false }).id, "b");
  for (const caller of [root, { uid: 7, root: false }]) {
    t.throws(() => registry.find(key("none", 7), caller), { message: 'no job "none"' });
  }
  t.throws(() => registry.find(key("c", 12), { uid: 7, root: false }), { message: 'no job "c"' });
});

test("a write reads only one job again: the others and the earlier list are unchanged", async (t) => {
  await using world = await openWorld();
  const { registry } = world;
  for (const id of ["a", "b", "c"]) await putJob(world, key(id));
  const before = registry.all();
  t.is(registry.all(), before);

  await putJob(world, key("b"), { comment: "changed" });
  const after = registry.all();
  t.deepEqual(
    before.map(({ comment }) => comment),
    ["", "", ""],
  );
  t.deepEqual(
    after.map(({ comment }) => comment),
    ["", "changed", ""],
  );
  t.is(after[0], before[0]);
  t.is(after[2], before[2]);
  t.not(after, before);

  await removeJob(world, key("a"));
  t.deepEqual(
    registry.all().map(({ id }) => id),
    ["b", "c"],
  );
  t.is(registry.all()[1], before[2]);
});

test("a write to something else changes nothing", async (t) => {
  await using world = await openWorld();
  await putJob(world, key("a"));
  const jobs = world.registry.all();
  const { run } = await world.log.open(key("a"), { trigger: "manual", attempt: 1 });
  await world.log.close(run, { status: "FAILED", output: "", error: "", truncated: false });
  t.is(world.registry.all(), jobs);
});

test("a job that was removed and added again in the same millisecond is a different one", async (t) => {
  await using world = await openWorld();
  const first = await putJob(world, key("a"), { comment: "first" });
  await removeJob(world, key("a"));
  const second = await putJob(world, key("a"), { comment: "second" });
  t.is(second.comment, "second");
  t.not(second.revision, first.revision);
});

test("a job's revision reveals nothing about others' jobs, and changes with each change of its owner's jobs", async (t) => {
  const shown: string[] = [];
  for (const others of [0, 5]) {
    await using world = await openWorld();
    for (let n = 0; n < others; n++) await putJob(world, key(`other-${n}`, 5));
    shown.push(revisionText(await putJob(world, key("a", 7))));
  }
  t.is(shown[0], shown[1]);
  await using world = await openWorld();
  const words = new Set<string>();
  for (const comment of ["first", "second", "third"])
    words.add(revisionText(await putJob(world, key("a", 7), { comment })));
  t.is(words.size, 3);
});

test("another process's write is visible within a second", async (t) => {
  await using world = await openWorld();
  await putJob(world, key("a"));
  world.registry.all();
  await using other = await openWorld({ dir: world.dir });
  await putJob(other, key("b"));
  await putJob(other, key("a"), { comment: "theirs" });
  await until(() => world.registry.all().length === 2, 1_000);
  t.is(world.registry.get(key("a"))?.comment, "theirs");
});

test("more changes than are recorded make all jobs be read again", async (t) => {
  await using world = await openWorld();
  await putJob(world, key("kept"));
  const [kept] = world.registry.all();
  await addMany(world, 25_000);
  await world.store.write([
    {
      sql: "UPDATE jobs SET owner_name = owner_name, updated_at = 2, revision = revision + 1 WHERE id LIKE 'job-%'",
    },
    { sql: "DELETE FROM jobs WHERE id LIKE 'job-01%'" },
  ]);
  t.is(world.registry.get(key("kept")), kept);
  t.is(world.registry.get(key("job-010000")), undefined, "a read by key is never outdated");
  t.is(world.registry.get(key("job-000001"))?.id, "job-000001");
  await world.registry.untilCurrent();
  t.is(world.registry.all().length, 15_001);
  t.is(world.registry.get(key("kept")), kept);
  t.true((world.store.get<{ n: number }>("SELECT count(*) AS n FROM job_changes")?.n ?? 0) <= 20_000);
});

test("after many changes, only the changed jobs are read again", async (t) => {
  await using world = await openWorld();
  const { registry, store } = world;
  await addMany(world, 600);
  await registry.untilCurrent();
  const before = registry.all();
  await store.write([
    {
      sql: `UPDATE jobs SET owner_name = owner_name, revision = revision + 1000000
            WHERE id LIKE 'job-0000%' OR id LIKE 'job-0005%'`,
    },
    { sql: "DELETE FROM jobs WHERE id LIKE 'job-00059%'" },
  ]);
  await registry.untilCurrent();
  const after = registry.all();
  t.is(after.length, 590);
  t.not(after[0], before[0]);
  t.is(after[100], before[100]);
  t.deepEqual(registry.totalsOf(0), { jobs: 590, chars: 590 * (200 + "hourly".length + "true".length) });
});

test("triggers and texts that jobs have in common are stored once", async (t) => {
  await using world = await openWorld();
  for (const id of ["a", "b"]) await putJob(world, key(id), { timeZone: "Europe/Berlin" });
  const [a, b] = world.registry.all();
  t.is(a?.trigger, b?.trigger);
});

// Jobs of removed users, and of users whose uid was reused.

const uid = 1_001;
const rootCaller = { uid: 0, user: "root", root: true };
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
  const gone = await schedules.get({ id: "j", owner: uid }, rootCaller);
  t.like(gone, {
    enabled: true,
    ownerName: "alice",
    disabledReason: "the owner alice, uid 1001, no longer exists",
  });
  t.is(gone.nextRunUnix, undefined);

  names.set(uid, "bob");
  const page = { limit: 10, pageToken: "" };
  t.deepEqual((await schedules.list(bob, page)).schedules, []);
  const [shown] = (await schedules.list(rootCaller, page)).schedules;
  t.like(shown, { disabledReason: "the owner alice no longer exists: uid 1001 is bob now" });
  await t.throwsAsync(schedules.get({ id: "j" }, bob), { message: 'no job "j"' });
  await t.throwsAsync(schedules.remove({ id: "j" }, bob), { message: 'no job "j"' });
  await t.throwsAsync(schedules.upsert({ id: "j" }, request, bob), { message: /belongs to a former user/ });

  const given = await schedules.upsert({ id: "j", owner: uid }, request, rootCaller);
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

// A push updates its own jobs without reading them again, and others see the changes.

const count = 500;
const bounds = { jobs: 100_000, chars: 1 << 28 };
const idOf = (index: number): string => `job-${String(index).padStart(4, "0")}`;

/** A store that counts every read of jobs, and whose writes may collide with another process's. */
interface WatchedStore {
  readonly store: Store;
  rowsRead: number;
  beforeWrite: () => Promise<unknown>;
}

function watch(store: Store): WatchedStore {
  const counting: Pick<Store, keyof Store> = {
    restoration: store.restoration,
    get: (sql, ...params) => store.get(sql, ...params),
    all: <T>(sql: string, ...params: Parameters<Store["all"]>[1][]) => {
      const rows = store.all<T>(sql, ...params);
      watched.rowsRead += rows.length;
      return rows;
    },
    write: async (statements, options) => {
      await watched.beforeWrite();
      return store.write(statements, options);
    },
    onChange: (listener) => store.onChange(listener),
    housekeep: () => store.housekeep(),
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
  const watched: WatchedStore = {
    rowsRead: 0,
    beforeWrite: () => Promise.resolve(),
    store: counting as Store,
  };
  return watched;
}

interface Pusher extends Disposable {
  readonly watched: WatchedStore;
  readonly registry: JobRegistry;
  push(specs: ReadonlyMap<string, JobSpec>): Promise<void>;
}

function pusherOf({ store, clock }: World): Pusher {
  const watched = watch(store);
  const registry = new JobRegistry(watched.store);
  const writer = new JobWriter({ store: watched.store, registry, now: () => clock.nowMs });
  const read = (specs: ReadonlyMap<string, JobSpec>): ReadonlyMap<string, ReadJob> =>
    new Map(
      specs.entries().map(([id, next]) => {
        const stored = registry.get({ ownerUid: 0, id });
        const isSame = stored !== undefined && isSameSpec(stored, next);
        return [id, { stored, spec: next, document: isSame ? undefined : documentOf(next) }];
      }),
    );
  return {
    watched,
    registry,
    push: (specs) => writer.replaceManaged(0, "platform", () => Promise.resolve(read(specs)), bounds),
    [Symbol.dispose]: () => registry[Symbol.dispose](),
  };
}

/** Jobs of a push; every third one contains `word`. */
function specs(word: string, from = 0): Map<string, JobSpec> {
  return new Map(
    Array.from({ length: count }, (_, index) => [
      idOf(index + from),
      spec({
        managedBy: "platform",
        comment: index % 3 === 0 ? word : "same",
        timeZone: "Europe/Berlin",
        ...(index % 5 === 0 && { keep: 3 }),
        action:
          index % 2 === 0
            ? { type: "shell", command: `echo ${index}` }
            : { type: "http", url: "http://localhost/", headers: { "X-B": word, "X-A": "1" } },
      }),
    ]),
  );
}

/** The jobs as a process reads them that opens the store now. */
async function readFromStore({ store }: World): Promise<readonly Job[]> {
  using registry = new JobRegistry(store);
  await registry.untilCurrent();
  return registry.all();
}

test("a push reads none of its jobs again, and has them as they would be read", async (t) => {
  await using world = await openWorld();
  using pusher = pusherOf(world);
  await putJob(world, { ownerUid: 7, id: "another's" });
  await pusher.registry.untilCurrent();
  for (const [word, from] of [
    ["first", 0],
    ["second", 0],
    // Some are removed, others are added.
    ["third", 50],
  ] as const) {
    pusher.watched.rowsRead = 0;
    await pusher.push(specs(word, from));
    await pusher.registry.untilCurrent();
    const jobs = pusher.registry.all();
    t.is(pusher.watched.rowsRead, 0, word);
    const stored = await readFromStore(world);
    t.deepEqual(jobs, stored);
    t.deepEqual(jobs.map(revisionText), stored.map(revisionText));
    t.deepEqual(pusher.registry.totalsOf(0).jobs, count);
    t.is(jobs.at(-1)?.id, "another's");
  }
  const before = pusher.registry.all();
  await pusher.push(specs("third", 50));
  t.is(pusher.registry.all(), before, "nothing changed");
});

test("writes of others during a push are not lost", async (t) => {
  await using world = await openWorld();
  await using other = await openWorld({ dir: world.dir });
  using pusher = pusherOf(world);
  await pusher.push(specs("first"));
  let turn = 0;
  pusher.watched.beforeWrite = () => putJob(other, { ownerUid: 7, id: "theirs" }, { comment: `${++turn}` });
  await pusher.push(specs("second"));
  await pusher.registry.untilCurrent();
  t.is(pusher.registry.get({ ownerUid: 7, id: "theirs" })?.comment, "1");
  t.deepEqual(pusher.registry.all(), await readFromStore(world));
});

test("a job of the same manager that is added during a push is removed, too", async (t) => {
  await using world = await openWorld();
  await using other = await openWorld({ dir: world.dir });
  using pusher = pusherOf(world);
  using theirs = pusherOf(other);
  const [first, second] = [specs("first"), specs("second")];
  await pusher.push(first);
  // Only the added one differs in their push.
  pusher.watched.beforeWrite = () => theirs.push(new Map(first).set("new", spec({ managedBy: "platform" })));
  await pusher.push(second);
  await pusher.registry.untilCurrent();
  t.is(pusher.registry.get({ ownerUid: 0, id: "new" }), undefined);
  t.deepEqual(pusher.registry.all(), await readFromStore(world));
  t.is(pusher.registry.all().length, count);
});

test("a push that lost a race is recomputed from the other's writes", async (t) => {
  await using world = await openWorld();
  await using other = await openWorld({ dir: world.dir });
  using pusher = pusherOf(world);
  await pusher.push(specs("first"));
  let turn = 0;
  pusher.watched.beforeWrite = async () => {
    if (++turn === 1) await putJob(other, { ownerUid: 0, id: idOf(0) }, { managedBy: "platform" });
  };
  await pusher.push(specs("second"));
  t.is(turn, 2);
  t.deepEqual(pusher.registry.all(), await readFromStore(world));
  t.is(pusher.registry.get({ ownerUid: 0, id: idOf(0) })?.comment, "second");
});

test("another process sees the complete push, and single changes after it", async (t) => {
  await using world = await openWorld();
  await using other = await openWorld({ dir: world.dir });
  using pusher = pusherOf(world);
  await other.registry.untilCurrent();
  for (const word of ["first", "second"]) {
    await pusher.push(specs(word));
    await putJob(world, { ownerUid: 7, id: "single" }, { comment: word });
    other.registry.invalidate();
    t.is(other.registry.get({ ownerUid: 0, id: idOf(3) })?.comment, word);
    await other.registry.untilCurrent();
    t.deepEqual(other.registry.all(), await readFromStore(world));
  }
});
