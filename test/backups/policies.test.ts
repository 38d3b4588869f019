/** When backups are made by themselves, and when they should have been. */
import assert from "node:assert/strict";
import test from "ava";
import { readAlertFacts } from "../../src/alerts/alert-facts.ts";
import { findingsOf } from "../../src/alerts/alert-rules.ts";
import { AppRegistry } from "../../src/apps/app-registry.ts";
import { insertApp } from "../../src/apps/app-record.ts";
import { BackupStates } from "../../src/backups/backup-states.ts";
import { Catalogue } from "../../src/backups/catalogue.ts";
import { PolicyPass } from "../../src/backups/policy-pass.ts";
import { SvcError } from "../../src/errors.ts";
import { Zones } from "../../src/scheduler/trigger/zone.ts";
import { currentExecutor } from "../../src/store/executors.ts";
import { FakeClock } from "../support/fake-clock.ts";
import { eventually } from "../support/eventually.ts";
import { newApp } from "../support/many-apps.ts";
import { temporaryStore } from "../store/support/temporary-store.ts";

const hourMs = 3_600_000;
const nightly = { trigger: "03:30", storages: [], mode: "live", verify: false };

async function setUp(ids: readonly string[], ownerOf: (id: string) => number = () => 1000) {
  const stack = new AsyncDisposableStack();
  const { store } = stack.use(await temporaryStore());
  const clock = new FakeClock("2026-03-10T12:00:00Z");
  const zones = new Zones({ local: () => "UTC" });
  await store.write(ids.map((id) => insertApp(newApp(id, ownerOf(id), clock.nowMs()))));
  const registry = stack.use(new AppRegistry(store));
  const states = stack.use(new BackupStates({ store, zones, clock }));
  const catalogue = new Catalogue(
    store,
    await currentExecutor(),
    () => clock.nowMs(),
    () => states.invalidate(),
  );
  const app = (id: string) => {
    registry.invalidate();
    const found = registry.get(id);
    assert.ok(found);
    return found;
  };
  return {
    ...{ store, clock, zones, registry, states, catalogue, app },
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

test("an app is overdue an hour after its policy wanted a backup, until there is one", async (t) => {
  await using all = await setUp(["web", "other"]);
  const { clock, states, catalogue } = all;
  t.is(states.of(all.app("web")), undefined, "nobody wants any");
  await catalogue.setPolicy("web", JSON.stringify(nightly));
  const first = states.of(all.app("web"));
  t.deepEqual(first, { lastBackupAtMs: undefined, storages: [], lastProvenAtMs: undefined, overdue: false });
  const { revision } = states;
  t.is(states.nextRunMs(all.app("web")), Date.parse("2026-03-11T03:30:00Z"));
  clock.pass(16 * hourMs);
  t.is(states.of(all.app("web")), first, "the same object, as nothing has changed");
  t.is(states.revision, revision);
  clock.pass(hourMs);
  t.not(states.revision, revision);
  t.true(states.of(all.app("web"))?.overdue);
  await catalogue.backedUp("web", ["local", "far"]);
  t.deepEqual(states.of(all.app("web")), {
    lastBackupAtMs: clock.nowMs(),
    storages: ["local", "far"],
    lastProvenAtMs: undefined,
    overdue: false,
  });
  clock.pass(24 * hourMs);
  t.true(states.of(all.app("web"))?.overdue);
  await catalogue.setPolicy("web", null);
  t.false(states.of(all.app("web"))?.overdue);
});

test("a policy that is set anew waits from then on, and forgets what went wrong before", async (t) => {
  await using all = await setUp(["web"]);
  const { clock, states, catalogue } = all;
  await catalogue.setPolicy("web", JSON.stringify(nightly));
  await catalogue.setPolicyError("web", "the disk is full");
  clock.pass(17 * hourMs);
  t.true(states.of(all.app("web"))?.overdue);
  t.is(states.policyOf(all.app("web")).lastError, "the disk is full");
  await catalogue.setPolicy("web", JSON.stringify(nightly));
  t.not(states.of(all.app("web"))?.overdue, true);
  t.is(states.policyOf(all.app("web")).lastError, "");
});

test("the alert of a backup that is overdue begins and ends with the app's own state", async (t) => {
  await using all = await setUp(["web"]);
  const { clock, states, catalogue } = all;
  const sources = {
    apps: {
      states: () => Promise.resolve(new Map()),
      backupStates: () => new Map([["web", states.of(all.app("web"))]]),
    },
    hostMetrics: { readings: () => undefined },
    now: () => clock.nowMs(),
  };
  const rule = { name: "old", when: "backup_overdue", path: undefined, abovePercent: 90 } as const;
  const found = async () =>
    findingsOf({ ...rule, forSecs: 0, action: undefined }, await readAlertFacts(sources))?.map(
      ({ subject }) => subject,
    );
  await catalogue.setPolicy("web", JSON.stringify(nightly));
  clock.pass(16 * hourMs);
  t.deepEqual(await found(), []);
  clock.pass(hourMs);
  t.deepEqual(await found(), ["web"]);
  await catalogue.backedUp("web", ["local"]);
  t.deepEqual(await found(), []);
});

test("what a package recommends counts until something else is set, and what is no trigger does nothing", async (t) => {
  await using all = await setUp(["web"]);
  const manifest = {
    ...newApp("web", 1).manifest,
    backup: { trigger: "hourly", storages: ["far"], mode: "stop" },
  };
  const app = { ...all.app("web"), manifest: manifest as never };
  const { spec, isPackages, trigger } = all.states.policyOf(app);
  t.like(spec, { trigger: "hourly", storages: ["far"], mode: "stop", verify: false });
  t.true(isPackages);
  t.not(trigger, undefined);
  const odd = {
    ...app,
    manifest: { ...manifest, backup: { ...manifest.backup, trigger: "now and then" } } as never,
  };
  t.is(all.states.policyOf(odd).trigger, undefined);
  await all.catalogue.setPolicy("web", JSON.stringify({ ...nightly, trigger: "" }));
  t.is(all.states.policyOf(app).trigger, undefined);
});

test("a pass makes all that is due, one of each user and two of root's at a time, and none that fails or hangs keeps others from theirs", async (t) => {
  const owners: Record<string, number> = { a: 1000, b: 1000, c: 1000, d: 1001, e: 1002, f: 0, g: 0, h: 0 };
  const ids = Object.keys(owners);
  await using all = await setUp([...ids, "later", "never"], (id) => owners[id] ?? 1000);
  const { states, zones, registry, catalogue } = all;
  for (const id of ids) await catalogue.setPolicy(id, JSON.stringify(nightly));
  await catalogue.setPolicy("later", JSON.stringify({ ...nightly, trigger: "03:31" }));
  const going = new Map<string, PromiseWithResolvers<undefined>>();
  const begun: string[] = [];
  const pass = new PolicyPass({
    apps: { all: () => Promise.resolve(registry.all()) },
    ...{ states, zones },
    callerOf: ({ ownerUid }) => ({ uid: ownerUid, ownerUid, root: ownerUid === 0 }),
    settle: () => Promise.resolve(),
    now: () => all.clock.nowMs(),
    tried: (id, atMs) => catalogue.tried(id, atMs),
    make: async ({ id }) => {
      begun.push(id);
      const end = Promise.withResolvers<undefined>();
      going.set(id, end);
      await end.promise;
    },
  });
  const minute = Date.parse("2026-03-11T03:30:00Z");
  const { signal } = new AbortController();
  const running = pass.run(minute, signal);
  await eventually(() => assert.deepEqual(begun.toSorted(), ["a", "d", "f", "g"]));
  // A repeat of the minute begins none that goes on or waits.
  t.deepEqual(await pass.run(minute, signal), []);
  t.deepEqual(await pass.run(minute - 60_000, signal), []);
  // While the first one hangs, all of the others have their turn.
  for (const [ended, next] of [["d", "e"], ["f", "h"], ["g"], ["h"], ["e"]] as const) {
    going.get(ended)?.resolve(undefined);
    if (next !== undefined) await eventually(() => assert.ok(begun.includes(next)));
  }
  t.false(begun.includes("b"), "one of a user at a time");
  going.get("a")?.resolve(undefined);
  await eventually(() => assert.ok(begun.includes("b")));
  going.get("b")?.reject(new Error("full"));
  await eventually(() => assert.ok(begun.includes("c")));
  going.get("c")?.resolve(undefined);
  t.deepEqual(
    (await running).map(({ app }) => app),
    ["b"],
  );
  t.deepEqual(begun.toSorted(), ids);
});

test("what was missed is made once where that is wanted, also when it fails, and again where the app was busy or the daemon ended", async (t) => {
  const wanted = ["web", "failing", "busy", "cut"];
  await using all = await setUp([...wanted, "plain", "old", "late"]);
  const { clock, states, zones, registry, catalogue } = all;
  for (const id of wanted) await catalogue.setPolicy(id, JSON.stringify({ ...nightly, catchUp: "latest" }));
  for (const id of ["plain", "old"])
    await catalogue.setPolicy(id, JSON.stringify({ ...nightly, ...(id === "plain" && { catchUp: "none" }) }));
  // The 1st of April; nobody looks until more than a week after it.
  await catalogue.setPolicy("late", JSON.stringify({ ...nightly, trigger: "0 3 1 4 *", catchUp: "latest" }));
  let made: string[] = [];
  const pass = new PolicyPass({
    apps: { all: () => Promise.resolve(registry.all()) },
    ...{ states, zones },
    callerOf: ({ ownerUid }) => ({ uid: ownerUid, ownerUid, root: true }),
    settle: () => Promise.resolve(),
    now: () => clock.nowMs(),
    tried: (id, atMs) => catalogue.tried(id, atMs),
    make: async ({ id }, signal) => {
      made.push(id);
      if (id === "failing") throw new SvcError("unavailable", "full");
      if (id === "busy") throw new SvcError("app_busy", "is being upgraded");
      if (id === "cut" && signal === ending.signal) {
        ending.abort();
        throw new SvcError("canceled", "the daemon ends");
      }
      await catalogue.backedUp(id, ["local"]);
    },
  });
  const ending = new AbortController();
  const next = async (signal = new AbortController().signal) => {
    made = [];
    clock.pass(60_000);
    registry.invalidate();
    await pass.run(Math.floor(clock.nowMs() / 60_000) * 60_000, signal);
    return made.toSorted();
  };
  t.deepEqual(await next(), [], "nothing was missed before the policy");
  // Three nights of which nobody knows.
  clock.pass(3 * 24 * hourMs);
  t.is(states.nextRunMs(all.app("web")), Date.parse("2026-03-14T03:30:00Z"));
  t.deepEqual(await next(ending.signal), ["busy", "cut"], "two at a time, then the daemon ends");
  t.deepEqual(await next(), ["busy", "cut", "failing", "web"]);
  t.deepEqual(await next(), ["busy"]);
  await catalogue.backedUp("busy", ["local"]);
  t.deepEqual(await next(), [], "one that was made by hand is one");
  clock.pass(24 * hourMs);
  t.deepEqual(await next(), ["busy", "cut", "failing", "web"], "the next night's, too");
  for (const id of [...wanted, "plain", "old"]) await catalogue.setPolicy(id, null);
  clock.pass(Date.parse("2026-04-08T03:01:00Z") - clock.nowMs());
  t.deepEqual(await next(), [], "more than a week ago");
  clock.pass(Date.parse("2027-04-01T04:00:00Z") - clock.nowMs());
  t.deepEqual(await next(), ["late"]);
});
