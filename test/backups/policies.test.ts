/** When automatic backups are created, and when they are overdue. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import test from "ava";
import { readAlertFacts, findingsOf } from "../../src/observability/alerts/alert-rules.ts";
import { AppRegistry } from "../../src/apps/records/app-registry.ts";
import { insertApp } from "../../src/apps/records/app-record.ts";
import { BackupStates } from "../../src/backups/policies/backup-states.ts";
import { ArchiveCatalog } from "../../src/backups/archives/archive-catalog.ts";
import { PolicyPass } from "../../src/backups/policies/policy-pass.ts";
import { SvcError } from "../../src/errors.ts";
import { Zones } from "../../src/triggers/zone.ts";
import { shareOwner } from "../../src/lib/share-owner.ts";
import { currentExecutor } from "../../src/store/executors.ts";
import { FakeClock } from "../support/fake-clock.ts";
import { eventually } from "../support/eventually.ts";
import { newApp } from "../support/many-apps.ts";
import { temporaryStore } from "../store/support/temporary-store.ts";
import { expiredArchives, type Retention, type DatedArchive } from "../../src/backups/policies/retention.ts";

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
  const catalog = new ArchiveCatalog(
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
    ...{ store, clock, zones, registry, states, catalog, app },
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

test("an app is overdue an hour after its policy's time, until there is a backup", async (t) => {
  await using all = await setUp(["web", "other"]);
  const { clock, states, catalog } = all;
  t.is(states.of(all.app("web")), undefined, "no policy requires one");
  await catalog.setPolicy("web", JSON.stringify(nightly));
  const first = states.of(all.app("web"));
  t.deepEqual(first, {
    lastBackupAtMs: undefined,
    storages: [],
    lastVerifiedAtMs: undefined,
    overdue: false,
  });
  const { revision } = states;
  t.is(states.nextRunMs(all.app("web")), Date.parse("2026-03-11T03:30:00Z"));
  clock.pass(16 * hourMs);
  t.is(states.of(all.app("web")), first, "the same object, because nothing has changed");
  t.is(states.revision, revision);
  clock.pass(hourMs);
  t.not(states.revision, revision);
  t.true(states.of(all.app("web"))?.overdue);
  await catalog.recordBackup("web", ["local", "far"]);
  t.deepEqual(states.of(all.app("web")), {
    lastBackupAtMs: clock.nowMs(),
    storages: ["local", "far"],
    lastVerifiedAtMs: undefined,
    overdue: false,
  });
  clock.pass(24 * hourMs);
  t.true(states.of(all.app("web"))?.overdue);
  await catalog.setPolicy("web", null);
  t.false(states.of(all.app("web"))?.overdue);
});

test("a changed policy counts from then on, and forgets earlier failures", async (t) => {
  await using all = await setUp(["web"]);
  const { clock, states, catalog } = all;
  await catalog.setPolicy("web", JSON.stringify(nightly));
  await catalog.setPolicyError("web", "the disk is full");
  clock.pass(17 * hourMs);
  t.true(states.of(all.app("web"))?.overdue);
  t.is(states.policyOf(all.app("web")).lastError, "the disk is full");
  await catalog.setPolicy("web", JSON.stringify(nightly));
  t.not(states.of(all.app("web"))?.overdue, true);
  t.is(states.policyOf(all.app("web")).lastError, "");
});

test("the alert of an overdue backup starts and ends with the app's own state", async (t) => {
  await using all = await setUp(["web"]);
  const { clock, states, catalog } = all;
  const sources = {
    counters: {
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
  await catalog.setPolicy("web", JSON.stringify(nightly));
  clock.pass(16 * hourMs);
  t.deepEqual(await found(), []);
  clock.pass(hourMs);
  t.deepEqual(await found(), ["web"]);
  await catalog.recordBackup("web", ["local"]);
  t.deepEqual(await found(), []);
});

test("a package's recommendation counts until a policy is set, and an invalid trigger does nothing", async (t) => {
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
  await all.catalog.setPolicy("web", JSON.stringify({ ...nightly, trigger: "" }));
  t.is(all.states.policyOf(app).trigger, undefined);
});

test("a pass creates all due backups, one per user and two of root at a time, and failing or hanging ones delay no others", async (t) => {
  const owners: Record<string, number> = { a: 1000, b: 1000, c: 1000, d: 1001, e: 1002, f: 0, g: 0, h: 0 };
  const ids = Object.keys(owners);
  await using all = await setUp([...ids, "later", "never"], (id) => owners[id] ?? 1000);
  const { states, zones, registry, catalog } = all;
  for (const id of ids) await catalog.setPolicy(id, JSON.stringify(nightly));
  await catalog.setPolicy("later", JSON.stringify({ ...nightly, trigger: "03:31" }));
  const going = new Map<string, PromiseWithResolvers<undefined>>();
  const begun: string[] = [];
  const pass = new PolicyPass({
    apps: { all: () => Promise.resolve(registry.all()) },
    ...{ states, zones },
    callerOf: ({ ownerUid }) => ({ uid: ownerUid, ownerUid, root: ownerUid === 0 }),
    settle: () => Promise.resolve(),
    now: () => all.clock.nowMs(),
    recordAttempt: (id, atMs) => catalog.recordAttempt(id, atMs),
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
  // Repeating the minute starts none that is in progress or waits.
  t.deepEqual(await pass.run(minute, signal), []);
  t.deepEqual(await pass.run(minute - 60_000, signal), []);
  // While the first one hangs, all others get their turn.
  for (const [ended, next] of [["d", "e"], ["f", "h"], ["g"], ["h"], ["e"]] as const) {
    going.get(ended)?.resolve(undefined);
    if (next !== undefined) await eventually(() => assert.ok(begun.includes(next)));
  }
  t.false(begun.includes("b"), "one per user at a time");
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

test("two users with slow backups delay a third user's backup only for a while", async (t) => {
  const owners: Record<string, number> = { a: 1000, b: 1001, c: 1002, d: 1000 };
  const ids = Object.keys(owners);
  await using all = await setUp(ids, (id) => owners[id] ?? 1000);
  for (const id of ids) await all.catalog.setPolicy(id, JSON.stringify(nightly));
  const begun: string[] = [];
  const shares: number[] = [];
  const ending = new AbortController();
  const pass = new PolicyPass({
    apps: { all: () => Promise.resolve(all.registry.all()) },
    ...{ states: all.states, zones: all.zones, sharedMs: 50 },
    callerOf: ({ ownerUid }) => ({ uid: ownerUid, ownerUid, root: false }),
    settle: () => Promise.resolve(),
    now: () => all.clock.nowMs(),
    recordAttempt: (id, atMs) => all.catalog.recordAttempt(id, atMs),
    make: async ({ id }, signal) => {
      begun.push(id);
      shares.push(shareOwner());
      await once(signal, "abort");
    },
  });
  const running = pass.run(Date.parse("2026-03-11T03:30:00Z"), ending.signal);
  await eventually(() => assert.deepEqual(begun.toSorted(), ["a", "b", "c"]));
  t.deepEqual(shares.toSorted(), [1000, 1001, 1002], "each uses its owner's share of the daemon");
  await sleep(100);
  t.false(begun.includes("d"), "a second backup of one user still waits");
  ending.abort();
  await running;
});

test("a missed backup is created once if requested, also if it fails, and again if the app was busy or the daemon stopped", async (t) => {
  const due = ["web", "failing", "busy", "cut"];
  await using all = await setUp([...due, "plain", "old", "late"]);
  const { clock, states, zones, registry, catalog } = all;
  for (const id of due) await catalog.setPolicy(id, JSON.stringify({ ...nightly, catchUp: "latest" }));
  for (const id of ["plain", "old"])
    await catalog.setPolicy(id, JSON.stringify({ ...nightly, ...(id === "plain" && { catchUp: "none" }) }));
  // The 1st of April; the next check is more than a week later.
  await catalog.setPolicy("late", JSON.stringify({ ...nightly, trigger: "0 3 1 4 *", catchUp: "latest" }));
  let made: string[] = [];
  const pass = new PolicyPass({
    apps: { all: () => Promise.resolve(registry.all()) },
    ...{ states, zones },
    callerOf: ({ ownerUid }) => ({ uid: ownerUid, ownerUid, root: true }),
    settle: () => Promise.resolve(),
    now: () => clock.nowMs(),
    recordAttempt: (id, atMs) => catalog.recordAttempt(id, atMs),
    make: async ({ id }, signal) => {
      made.push(id);
      if (id === "failing") throw new SvcError("unavailable", "full");
      if (id === "busy") throw new SvcError("app_busy", "is being upgraded");
      if (id === "cut" && signal === ending.signal) {
        ending.abort();
        throw new SvcError("canceled", "the daemon stops");
      }
      await catalog.recordBackup(id, ["local"]);
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
  // Three nights without a record.
  clock.pass(3 * 24 * hourMs);
  t.is(states.nextRunMs(all.app("web")), Date.parse("2026-03-14T03:30:00Z"));
  t.deepEqual(await next(ending.signal), ["busy", "cut"], "two at a time, then the daemon stops");
  t.deepEqual(await next(), ["busy", "cut", "failing", "web"]);
  t.deepEqual(await next(), ["busy"]);
  await catalog.recordBackup("busy", ["local"]);
  t.deepEqual(await next(), [], "a manual backup counts");
  clock.pass(24 * hourMs);
  t.deepEqual(await next(), ["busy", "cut", "failing", "web"], "the next night's, too");
  for (const id of [...due, "plain", "old"]) await catalog.setPolicy(id, null);
  clock.pass(Date.parse("2026-04-08T03:01:00Z") - clock.nowMs());
  t.deepEqual(await next(), [], "more than a week ago");
  clock.pass(Date.parse("2027-04-01T04:00:00Z") - clock.nowMs());
  t.deepEqual(await next(), ["late"]);
});

// The retained archives: the newest, and beyond them those of days, weeks and months.

/** One at noon of each day up to New Year's Eve of 2025, a Wednesday; named for its day. */
function daily(days: number, verified: readonly string[] = []): DatedArchive[] {
  const lastMs = Date.UTC(2025, 11, 31, 12);
  return Array.from({ length: days }, (_, back) => {
    const createdAtMs = lastMs - back * 86_400_000;
    const name = new Date(createdAtMs).toISOString().slice(0, 10);
    return { name, createdAtMs, verifiedAtMs: verified.includes(name) ? createdAtMs : undefined };
  });
}

function kept(archives: readonly DatedArchive[], retention: Retention): string[] {
  const gone = expiredArchives(archives, retention);
  return archives.flatMap(({ name }) => (gone.includes(name) ? [] : name));
}

for (const [what, retention, expected] of [
  ["the newest", { keep: 3 }, ["2025-12-31", "2025-12-30", "2025-12-29"]],
  ["of each day", { keepDaily: 2 }, ["2025-12-31", "2025-12-30"]],
  ["of each week, which begins on Monday", { keepWeekly: 3 }, ["2025-12-31", "2025-12-28", "2025-12-21"]],
  ["of each month", { keepMonthly: 3 }, ["2025-12-31", "2025-11-30", "2025-10-31"]],
  [
    "of each kind, one for several of them",
    { keep: 2, keepDaily: 3, keepWeekly: 2, keepMonthly: 2 },
    ["2025-12-31", "2025-12-30", "2025-12-29", "2025-12-28", "2025-11-30"],
  ],
] as const) {
  test(`the retained archives ${what}`, (t) => {
    t.deepEqual(kept(daily(400), retention), [...expected]);
    t.deepEqual(kept(daily(400).toReversed(), retention).toReversed(), [...expected], "in any order");
  });
}

test("a week may cross the end of a year, and a day has one archive", (t) => {
  // Monday the 29th of December, and Sunday the 4th of January.
  const at = (text: string) => ({ name: text, createdAtMs: Date.parse(text), verifiedAtMs: undefined });
  const [monday, sunday, next] = [at("2025-12-29T00:00Z"), at("2026-01-04T23:59Z"), at("2026-01-05T00:00Z")];
  t.deepEqual(expiredArchives([monday, sunday, next], { keepWeekly: 2 }), [monday.name]);
  const [morning, evening] = [at("2026-01-05T01:00Z"), at("2026-01-05T23:00Z")];
  t.deepEqual(expiredArchives([morning, evening, sunday], { keepDaily: 2 }), [morning.name]);
  const early = at("1969-12-28T12:00Z");
  t.deepEqual(expiredArchives([early, at("1969-12-29T12:00Z")], { keepWeekly: 2 }), [], "before 1970, too");
});

test("without a rule all are retained, and the last verified one in any case", (t) => {
  t.deepEqual(expiredArchives(daily(40), {}), []);
  t.deepEqual(kept(daily(40, ["2025-12-01", "2025-12-02"]), { keep: 1 }), ["2025-12-31", "2025-12-02"]);
});
