/** The cached list of apps, and followers of an app's log. */
import assert from "node:assert/strict";
import { appendFile, readFile, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import fc from "fast-check";
import { AppService, type ListAppsResponse, ListAppsResponseSchema } from "../../gen/svc/v1/app_pb.ts";
import { followApp } from "../../src/apps/lifecycle/log-follower.ts";
import { NewLines, type LogPosition } from "../../src/logs/log-position.ts";
import { AppCounters } from "../../src/apps/records/app-counters.ts";
import { deleteApp, insertApp, patchApp } from "../../src/apps/records/app-record.ts";
import { type AppCaller, AppRegistry } from "../../src/apps/records/app-registry.ts";
import { FoundUpdates } from "../../src/apps/records/found-updates.ts";
import type { RuntimeState } from "../../src/runtimes/runtime-status.ts";
import { JsonWriter } from "../../src/server/rest/json-writer.ts";
import type { Statement, Store } from "../../src/store/store.ts";
import { Fixture } from "../runtimes/support/fixture.ts";
import { openStore, put, temporaryStore } from "../store/support/temporary-store.ts";
import { startDaemon } from "../support/daemon.ts";
import { eventually } from "../support/eventually.ts";
import { FakeStatusRuntime, FakeStartRetries, createViews, newApp, noBackups } from "../support/many-apps.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { main } from "../support/svc-main.ts";

// A cached list equals a fresh one after any change, for each caller.

const ids = ["ada", "bob", "cyd", "dan", "eve"];
const uids = [0, 1000, 1001];
const callers: AppCaller[] = uids.map((uid) => ({ uid, root: uid === 0, ownerUid: uid }));
const everything = { limit: 1000, pageToken: "" };

const anyId = fc.constantFrom(...ids);
const change = fc.oneof(
  fc.record({ kind: fc.constant("install" as const), id: anyId, ownerUid: fc.constantFrom(...uids) }),
  fc.record({ kind: fc.constant("remove" as const), id: anyId }),
  fc.record({
    kind: fc.constant("patch" as const),
    id: anyId,
    started: fc.constantFrom(null, {}, { port: 1 }),
  }),
  fc.record({ kind: fc.constant("begin" as const), id: anyId, phase: fc.constantFrom("start", "stop") }),
  fc.record({ kind: fc.constant("enter" as const), id: anyId, phase: fc.constantFrom("start", "stop") }),
  fc.record({ kind: fc.constant("end" as const), id: anyId }),
  fc.record({
    kind: fc.constant("status" as const),
    id: anyId,
    state: fc.constantFrom<RuntimeState>("RUNNING", "STOPPED", "CRASHED"),
    restarts: fc.nat(3),
  }),
  fc.record({ kind: fc.constant("forget" as const), id: anyId }),
  fc.record({ kind: fc.constant("due" as const), id: anyId, atMs: fc.constantFrom(1_000, 2_000, undefined) }),
  fc.record({ kind: fc.constant("rename" as const), uid: fc.constantFrom(...uids), name: fc.string() }),
);
type Change = typeof change extends fc.Arbitrary<infer T> ? T : never;

/** @param nowMs never repeated, as for installs of one ID */
function statementsOf(change: Change, nowMs: number): Statement[] {
  switch (change.kind) {
    case "install":
      return [deleteApp(change.id), insertApp(newApp(change.id, change.ownerUid, nowMs))];
    case "remove":
      return [deleteApp(change.id)];
    case "patch": {
      const { sql, params = [] } = patchApp(change.id, {
        startedSettings: change.started,
        desired: "running",
      });
      return [{ sql, params }];
    }
    case "begin":
      return [
        {
          sql: `INSERT OR REPLACE INTO operations (app_id, kind, phase, boot_id, pid, start_ticks, started_at)
                VALUES (?, 'restart', ?, '', 1, 1, 1)`,
          params: [change.id, change.phase],
        },
      ];
    case "enter":
      return [{ sql: "UPDATE operations SET phase = ? WHERE app_id = ?", params: [change.phase, change.id] }];
    case "end":
      return [{ sql: "DELETE FROM operations WHERE app_id = ?", params: [change.id] }];
    case "status":
    case "forget":
    case "due":
    case "rename":
      return [];
  }
}

class World {
  readonly store: Store;
  readonly runtime = new FakeStatusRuntime();
  readonly starts = new FakeStartRetries();
  readonly names = new Map<number, string>();
  #nowMs = 1_700_000_000_000;

  constructor(store: Store) {
    this.store = store;
  }

  readonly userName = (uid: number): Promise<string> => Promise.resolve(this.names.get(uid) ?? "");

  async apply(change: Change): Promise<void> {
    if (change.kind === "rename") this.names.set(change.uid, change.name);
    if (change.kind === "forget") this.runtime.tell(change.id, undefined);
    if (change.kind === "due") this.starts.tell(change.id, change.atMs);
    if (change.kind === "status") {
      const { state, restarts } = change;
      this.runtime.tell(change.id, { state, reason: "", health: "none", restarts, lastLines: [] });
    }
    const statements = statementsOf(change, (this.#nowMs += 1_000_000));
    if (statements.length > 0) await this.store.write(statements);
  }

  /** The response of a runtime without any status yet. */
  async fresh(caller: AppCaller, options = everything): Promise<string> {
    using views = createViews(this.store, this.runtime, this.userName, this.starts);
    return textOf(new JsonWriter(), await views.list(caller, options));
  }
}

function textOf(writer: JsonWriter, page: ListAppsResponse): string {
  return writer.message(ListAppsResponseSchema, page);
}

test("after any changes a cached list equals a fresh one, for every caller and page", async (t) => {
  await using temporary = await temporaryStore();
  const world = new World(temporary.store);
  using views = createViews(world.store, world.runtime, world.userName, world.starts);
  const writer = new JsonWriter();
  await fc.assert(
    fc.asyncProperty(fc.array(fc.tuple(change, fc.nat(3)), { maxLength: 12 }), async (steps) => {
      for (const [step, reads] of steps) {
        await world.apply(step);
        // Not after every change, so that several fall between two reads.
        if (reads === 0) continue;
        for (const caller of callers) {
          for (const options of [everything, { limit: 2, pageToken: "" }]) {
            const kept = textOf(writer, await views.list(caller, options));
            t.is(kept, await world.fresh(caller, options), JSON.stringify(step));
          }
        }
      }
    }),
    { numRuns: 150 },
  );
});

test("changes during the lookup of an owner's name are in the response", async (t) => {
  await using temporary = await temporaryStore();
  const world = new World(temporary.store);
  const late: Change[] = [];
  using views = createViews(world.store, world.runtime, async (uid) => {
    for (const change of late.splice(0)) await world.apply(change);
    return world.userName(uid);
  });
  const [root] = callers as [AppCaller];
  for (const id of ids) await world.apply({ kind: "install", id, ownerUid: 0 });
  await views.list(root, everything);
  for (const change of [
    { kind: "begin", id: "bob", phase: "start" },
    { kind: "rename", uid: 0, name: "admin" },
  ] satisfies Change[]) {
    await world.apply({ kind: "status", id: "ada", state: "RUNNING", restarts: late.length });
    late.push(change);
    const kept = textOf(new JsonWriter(), await views.list(root, everything));
    t.is(kept, await world.fresh(root), change.kind);
  }
});

test("nobody gets a response that was cached for another user", async (t) => {
  await using temporary = await temporaryStore();
  const world = new World(temporary.store);
  using views = createViews(world.store, world.runtime, world.userName);
  for (const [at, id] of ids.entries()) {
    await world.apply({ kind: "install", id, ownerUid: uids[at % uids.length] ?? 0 });
  }
  const seen = async (caller: AppCaller): Promise<[string, number][]> =>
    (await views.list(caller, everything)).apps.map(({ id, owner }) => [id, owner]);
  for (const caller of [...callers, ...callers.toReversed(), ...callers]) {
    const expected = ids.flatMap((id, at): [string, number][] => {
      const ownerUid = uids[at % uids.length] ?? 0;
      return caller.root || caller.uid === ownerUid ? [[id, ownerUid]] : [];
    });
    t.deepEqual(await seen(caller), expected, `uid ${caller.uid}`);
  }
});

// Counts are cached until an app changes, separately for each caller.

const root = { uid: 0, root: true, ownerUid: 0 };
const ada = { uid: 1000, root: false, ownerUid: 1000 };
const bob = { uid: 1001, root: false, ownerUid: 1001 };

test("counts follow the store and the runtimes, and include nobody else's apps", async (t) => {
  await using temporary = await temporaryStore();
  const { store } = temporary;
  using registry = new AppRegistry(store);
  const runtime = new FakeStatusRuntime();
  const counters = new AppCounters({
    registry,
    runtimes: [runtime as never],
    runtimeOf: () => runtime as never,
    finder: { untilSettled: () => Promise.resolve() },
    backups: noBackups,
    updates: new FoundUpdates(),
  });
  await store.write([insertApp(newApp("one", 1000)), insertApp(newApp("two", 1001))]);
  const first = await counters.of(root);
  t.like(first, { total: 2, running: 0, stopped: 2 });
  t.is(await counters.of(root), first, "nothing changed, so it is the same object");
  t.like(await counters.of(ada), { total: 1, stopped: 1 });

  runtime.tell("one", { state: "RUNNING", reason: "", health: "none", restarts: 0, lastLines: [] });
  t.like(await counters.of(ada), { total: 1, running: 1, stopped: 0 });
  t.like(await counters.of(bob), { total: 1, running: 0, stopped: 1 });
  t.like(await counters.of(root), { total: 2, running: 1, stopped: 1 });
  t.is((await counters.byState()).get("RUNNING"), 1);

  await store.write([deleteApp("two")]);
  t.like(await counters.of(root), { total: 1, running: 1, stopped: 0 });
  t.like(await counters.of(bob), { total: 0 });
});

// Which apps offer a console.

for (const [title, manifest, expected] of [
  ["without `console`", "", false],
  ["with its own terminal", "console: true\n", true],
  ["with a program for its console", "console: { exec: [sh, -i] }\n", true],
  ["that only records its shells", "console: { terminal: false, record: true }\n", false],
] as const) {
  test(`an app ${title} has ${expected ? "a" : "no"} console`, async (t) => {
    await using daemon = await startDaemon({ main });
    const dir = join(daemon.dir, "hello");
    await writePackage(dir, await freePort(), { manifest });
    const { hasConsole } = await daemon.client(AppService).installApp({ spec: dir });
    t.is(hasConsole, expected);
  });
}

// Apps are read again after a write by any process, and not before.

/** A store that counts the reads of all apps. */
function counted(store: Store): { store: Store; looks: () => number } {
  let looks = 0;
  const proxy = new Proxy(store, {
    get(target, name) {
      if (name === "all") {
        return (sql: string, ...params: never[]) => {
          if (sql.includes("FROM apps ")) looks++;
          return target.all(sql, ...params);
        };
      }
      const value = Reflect.get(target, name) as unknown;
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
  return { store: proxy, looks: () => looks };
}

test("a commit that writes no app causes no read of all apps", async (t) => {
  await using temporary = await temporaryStore();
  const { store, looks } = counted(temporary.store);
  using registry = new AppRegistry(store);
  await store.write([insertApp(newApp("one", 0)), insertApp(newApp("two", 0))]);
  t.is(registry.all().length, 2);
  const [before, { revision }] = [looks(), registry];
  for (const key of ["a", "b", "c"]) {
    await store.write([put(key)]);
    t.is(registry.all().length, 2);
  }
  t.is(looks(), before);
  t.is(registry.revision, revision);
});

test("every kind of write is noticed, this process's at once and another's within a second", async (t) => {
  await using temporary = await temporaryStore();
  await using other = await openStore({ dir: temporary.dir });
  using registry = new AppRegistry(temporary.store);
  const ids = () => registry.all().map(({ id, state }) => `${id} ${state}`);
  t.deepEqual(ids(), []);
  await temporary.store.write([insertApp(newApp("one", 0))]);
  t.deepEqual(ids(), ["one STOPPED"]);
  await temporary.store.write([patchApp("one", { state: "RUNNING" })]);
  t.deepEqual(ids(), ["one RUNNING"]);
  await other.write([insertApp(newApp("two", 0))]);
  await eventually(() => assert.deepEqual(ids(), ["one RUNNING", "two STOPPED"]), 1_000);
  await other.write([patchApp("two", { state: "CRASHED" })]);
  await eventually(() => assert.deepEqual(ids(), ["one RUNNING", "two CRASHED"]), 1_000);
  await other.write([deleteApp("one")]);
  await eventually(() => assert.deepEqual(ids(), ["two CRASHED"]), 1_000);
  await temporary.store.write([deleteApp("two")]);
  t.deepEqual(ids(), []);
});

const line = (timeMs: number, text: string) => ({ timeMs, text });
const readAfter = (after: LogPosition, ...lines: ReturnType<typeof line>[]): string[] =>
  new NewLines(after).select({ lines }).map(({ text }) => text);

test("a position is a line's time and the number of lines with this time", (t) => {
  const log = new NewLines();
  log.select({ lines: [line(1, "a"), line(2, "b"), line(2, "c")] });
  t.deepEqual(log.position, { timeMs: 2, count: 2 });
  const [a, b, c, d, e] = [line(1, "a"), line(2, "b"), line(2, "c"), line(2, "d"), line(3, "e")];
  t.deepEqual(readAfter(log.position, a, b, c, d, e), ["d", "e"]);
  t.deepEqual(readAfter(log.position, a, b, c), []);
  t.deepEqual(readAfter({ timeMs: 2, count: 0 }, a, b, c), ["b", "c"]);
});

test("lines after the position are new although the clock was set back", (t) => {
  t.deepEqual(readAfter({ timeMs: 9, count: 1 }, line(8, "a"), line(9, "b"), line(1, "c"), line(2, "d")), [
    "c",
    "d",
  ]);
});

// A follower of an app's log misses nothing of its next run, however much that prints before it is known to run.

const count = 30_000;
/** As many lines at once, and then nothing. */
const printer = `i=0; while [ $i -lt ${count} ]; do i=$((i+1)); echo "line $i"; done; exec sleep 1000`;

for (const [when, runsBefore] of [
  ["while it runs", true],
  ["before its first start", false],
] as const) {
  test(`a follower that connected ${when} gets everything that an app prints at its start`, async (t) => {
    await using fixture = await Fixture.create();
    const { runtime } = fixture;
    const app = await fixture.shell(printer);
    // As an install leaves it: created by a start, it belongs to root for a moment, and a follower is denied.
    await fixture.userHelpers.createOwnedDir(app.runDir, app.uid);
    const left = new AbortController();
    const lines: string[] = [];
    let whole = Promise.withResolvers<undefined>();
    if (runsBefore) await runtime.start(app);
    const following = (async () => {
      for await (const chunk of followApp(runtime, app, {
        tail: 1,
        signal: left.signal,
        isInstalled: () => true,
      })) {
        lines.push(...chunk.lines.filter(({ stream }) => stream === "stdout").map(({ text }) => text));
        if (lines.at(-1) === `line ${count}`) whole.resolve(undefined);
      }
    })();
    if (runsBefore) {
      await whole.promise;
      whole = Promise.withResolvers();
      lines.length = 0;
      await runtime.stop(app);
    }
    await runtime.start(app);
    await whole.promise;
    left.abort();
    await following;
    t.deepEqual(
      lines,
      Array.from({ length: count }, (_, at) => `line ${at + 1}`),
    );
  });
}

for (const isStopped of [false, true]) {
  test(`a returning follower gets everything since an instant, however much it is, of an app that ${isStopped ? "is stopped" : "runs"}`, async (t) => {
    await using fixture = await Fixture.create();
    const { runtime } = fixture;
    const app = await fixture.shell(printer.replace("; exec", "; echo end; exec"));
    const run = async (): Promise<number> => {
      await runtime.start(app);
      await fixture.outputUntil(app, "end");
      await runtime.stop(app);
      return (await runtime.logs(app, { tail: 1 })).lines[0]?.timeMs ?? 0;
    };
    const sinceMs = (await run()) + 1;
    await eventually(() => assert.ok(Date.now() > sinceMs));
    await run();
    if (!isStopped) await runtime.start(app);
    const runs = isStopped ? 1 : 2;
    const left = new AbortController();
    const lines: string[] = [];
    for await (const chunk of followApp(runtime, app, {
      ...{ tail: 1, after: { timeMs: sinceMs, count: 0 }, signal: left.signal },
      isInstalled: () => true,
    })) {
      lines.push(...chunk.lines.filter(({ stream }) => stream === "stdout").map(({ text }) => text));
      if (lines.filter((line) => line === "end").length === runs) break;
    }
    const expected = [...Array.from({ length: count }, (_, at) => `line ${at + 1}`), "end"];
    t.deepEqual(lines, Array<string[]>(runs).fill(expected).flat());
  });
}

test("each line arrives once although the clock was set back and a partial record was left", async (t) => {
  await using fixture = await Fixture.create();
  const { runtime } = fixture;
  const app = await fixture.shell("echo said; exec sleep 1000");
  const start = async (): Promise<void> => {
    await runtime.start(app);
    await fixture.outputUntil(app, "said");
  };
  await start();
  await runtime.stop(app);
  const logs = join(app.runDir, "logs");
  const [name = ""] = await readdir(logs);
  const log = join(logs, name);
  // The lines get times from before the clock was set back.
  await writeFile(log, (await readFile(log, "utf8")).replaceAll(/^\d{4}/gm, "2099"));
  await start();
  const left = new AbortController();
  t.teardown(() => left.abort());
  const said: string[] = [];
  const following = (async () => {
    const options = { tail: 100, signal: left.signal, isInstalled: () => true };
    for await (const { lines } of followApp(runtime, app, options))
      said.push(...lines.filter(({ stream }) => stream === "stdout").map(({ text }) => text));
  })();
  const untilSaid = (times: number): Promise<void> =>
    eventually(() => {
      assert.deepEqual(
        said,
        Array.from({ length: times }, () => "said"),
      );
      return Promise.resolve();
    }, 30_000);
  await untilSaid(2);
  // As a supervisor leaves it that is killed while it writes: its follower reaches the end after it.
  await appendFile(log, "2099-01-01T00:00:00.000Z o half of a reco");
  await runtime.stop(app);
  await start();
  await untilSaid(3);
  left.abort();
  await following;
  t.is(said.length, 3);
});
