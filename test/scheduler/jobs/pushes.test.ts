/** A push updates its own jobs without reading them again, and others see the changes. */
import test from "ava";
import { JobRegistry } from "../../../src/scheduler/jobs/job-registry.ts";
import { documentOf, isSameSpec } from "../../../src/scheduler/jobs/job-row.ts";
import { JobWriter, type ReadJob } from "../../../src/scheduler/jobs/job-writer.ts";
import { revisionText, type Job, type JobSpec } from "../../../src/scheduler/jobs/job.ts";
import type { Store } from "../../../src/store/store.ts";
import { openWorld, putJob, spec, type World } from "../support/world.ts";

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
      specs.entries().map(([id, wanted]) => {
        const stored = registry.get({ ownerUid: 0, id });
        const isSame = stored !== undefined && isSameSpec(stored, wanted);
        return [id, { stored, spec: wanted, document: isSame ? undefined : documentOf(wanted) }];
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

/** As a process that opens the store now reads them. */
async function readAnew({ store }: World): Promise<readonly Job[]> {
  using registry = new JobRegistry(store);
  await registry.fresh();
  return registry.all();
}

test("a push reads none of its jobs again, and has them as they would be read", async (t) => {
  await using world = await openWorld();
  using pusher = pusherOf(world);
  await putJob(world, { ownerUid: 7, id: "another's" });
  await pusher.registry.fresh();
  for (const [word, from] of [
    ["first", 0],
    ["second", 0],
    // Some are removed, others are added.
    ["third", 50],
  ] as const) {
    pusher.watched.rowsRead = 0;
    await pusher.push(specs(word, from));
    await pusher.registry.fresh();
    const jobs = pusher.registry.all();
    t.is(pusher.watched.rowsRead, 0, word);
    const anew = await readAnew(world);
    t.deepEqual(jobs, anew);
    t.deepEqual(jobs.map(revisionText), anew.map(revisionText));
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
  await pusher.registry.fresh();
  t.is(pusher.registry.get({ ownerUid: 7, id: "theirs" })?.comment, "1");
  t.deepEqual(pusher.registry.all(), await readAnew(world));
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
  await pusher.registry.fresh();
  t.is(pusher.registry.get({ ownerUid: 0, id: "new" }), undefined);
  t.deepEqual(pusher.registry.all(), await readAnew(world));
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
  t.deepEqual(pusher.registry.all(), await readAnew(world));
  t.is(pusher.registry.get({ ownerUid: 0, id: idOf(0) })?.comment, "second");
});

test("another process sees the complete push, and single changes after it", async (t) => {
  await using world = await openWorld();
  await using other = await openWorld({ dir: world.dir });
  using pusher = pusherOf(world);
  await other.registry.fresh();
  for (const word of ["first", "second"]) {
    await pusher.push(specs(word));
    await putJob(world, { ownerUid: 7, id: "single" }, { comment: word });
    other.registry.invalidate();
    t.is(other.registry.get({ ownerUid: 0, id: idOf(3) })?.comment, word);
    await other.registry.fresh();
    t.deepEqual(other.registry.all(), await readAnew(world));
  }
});
