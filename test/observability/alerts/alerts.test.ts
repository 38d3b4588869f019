/** The start and the end of a lasting condition are reported once each, whatever happens in between. */
import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import test from "ava";
import { AlertStore } from "../../../src/observability/alerts/alert-store.ts";
import { Alerts, type Notification } from "../../../src/observability/alerts/alerts.ts";
import {
  findingsOf,
  type AlertFacts,
  type AlertRule,
} from "../../../src/observability/alerts/alert-rules.ts";
import { openStore } from "../../store/support/temporary-store.ts";
import { eventually } from "../../support/eventually.ts";
import { FakeClock } from "../../support/fake-clock.ts";

const disk: AlertRule = {
  ...{ name: "disk", when: "filesystem", path: undefined, abovePercent: 90, forSecs: 300 },
  action: { type: "shell", command: "true" },
};
const crashed: AlertRule = { ...disk, name: "crashed", when: "app_crashed", forSecs: 0 };
const overdue: AlertRule = { ...disk, name: "old", when: "backup_overdue", forSecs: 0 };

/** A store with rules over facts that the test sets. */
async function world(rules: readonly AlertRule[] = [disk]) {
  const dir = await mkdtemp(join(tmpdir(), "svc-alerts-"));
  const store = await openStore({ dir });
  const clock = new FakeClock();
  const notifications: string[] = [];
  const changes: string[] = [];
  const state = { usedPercent: 50, isKnown: true, failing: false, apps: [] as AlertFacts["apps"] };
  const notify = ({ alert, state: word, subjects }: Notification) =>
    notifications.push(`${alert} ${word} ${subjects.map(({ subject }) => subject).join(",")}`);
  const open = (with_: readonly AlertRule[] = rules) =>
    new Alerts({
      rules: with_,
      store: new AlertStore(store),
      facts: async () => {
        const { usedPercent } = state;
        const filesystem = { path: "/data", usedBytes: usedPercent, availableBytes: 100 - usedPercent };
        const filesystems = state.isKnown ? [filesystem] : undefined;
        return Promise.resolve({ nowMs: clock.nowMs(), filesystems, apps: state.apps });
      },
      notify: async (_action, notification) => {
        if (state.failing) throw new Error("nobody listens");
        notify(notification);
        return Promise.resolve();
      },
      onChange: ({ rule, subject, resolvedAtMs }, isOfHost) => {
        const [whose, what] = [
          isOfHost ? "the host" : "its owner",
          resolvedAtMs === undefined ? "began" : "ended",
        ];
        changes.push(`${rule} ${subject} of ${whose} ${what}`);
      },
      ...{ clock, intervalMs: 1_000, log: { warn: () => undefined } },
    });
  return {
    ...{ state, notifications, changes, clock, open, dir, store },
    /** Evaluates once per minute for the given time. */
    pass: async (alerts: Alerts, minutes: number) => {
      for (let at = 0; at < minutes; at++) {
        clock.pass(60_000);
        await alerts.evaluate();
      }
    },
    [Symbol.asyncDispose]: async () => {
      await store[Symbol.asyncDispose]();
      await rm(dir, { recursive: true });
    },
  };
}

test("an alert whose row is damaged is not shown, and is forgotten", async (t) => {
  await using w = await world();
  await w.store.write([
    {
      sql: "INSERT INTO alerts VALUES ('disk', '/data', 'full', 1, NULL, 1), ('disk', '/b', 'full', 1, NULL, 1)",
    },
  ]);
  {
    using database = new DatabaseSync(join(w.dir, "svc.db"));
    database.exec("UPDATE alerts SET fired_at = 1 << 62 WHERE subject = '/b'");
  }
  await using alerts = w.open();
  const subjects = (all: readonly { subject: string }[]): string[] => all.map(({ subject }) => subject);
  t.deepEqual(subjects(alerts.firing()), ["/data"]);
  alerts.start();
  await eventually(async () => {
    assert.deepEqual(subjects(w.store.all("SELECT subject FROM alerts")), ["/data"]);
    return Promise.resolve();
  });
});

test("a lasting condition is reported once, and once when it is over", async (t) => {
  await using w = await world();
  const alerts = w.open();
  w.state.usedPercent = 95;
  await w.pass(alerts, 5);
  t.deepEqual(w.notifications, [], "it has not lasted for five minutes yet");
  await w.pass(alerts, 60);
  t.deepEqual(w.notifications, ["disk firing /data"]);
  t.like(alerts.firing()[0], {
    rule: "disk",
    subject: "/data",
    message: "the filesystem /data is 95.0 % full",
  });
  w.state.usedPercent = 50;
  await w.pass(alerts, 5);
  t.is(w.notifications.length, 1, "it may return");
  await w.pass(alerts, 60);
  t.deepEqual(w.notifications, ["disk firing /data", "disk resolved /data"]);
  t.deepEqual(w.changes, ["disk /data of the host began", "disk /data of the host ended"]);
  t.deepEqual(alerts.firing(), []);
});

test("space reserved for root does not count as used, as in df", (t) => {
  const filesystem = { path: "/data", sizeBytes: 4000, usedBytes: 260, availableBytes: 740 };
  const found = (abovePercent: number) =>
    findingsOf({ ...disk, abovePercent }, { nowMs: 0, filesystems: [filesystem], apps: [] });
  t.deepEqual(found(26), []);
  t.deepEqual(found(25), [{ subject: "/data", message: "the filesystem /data is 26.0 % full" }]);
});

test("a flapping condition does not cause a storm", async (t) => {
  await using w = await world();
  const alerts = w.open();
  for (let at = 0; at < 60; at++) {
    w.state.usedPercent = at % 4 === 3 ? 50 : 95;
    await w.pass(alerts, 1);
  }
  t.deepEqual(w.notifications, [], "never for five minutes");
  w.state.usedPercent = 95;
  await w.pass(alerts, 10);
  for (let at = 0; at < 60; at++) {
    w.state.usedPercent = at % 4 === 3 ? 95 : 50;
    await w.pass(alerts, 1);
  }
  t.deepEqual(w.notifications, ["disk firing /data"]);
});

test("a restart neither repeats nor forgets alerts, and an unreadable condition is not over", async (t) => {
  await using w = await world();
  w.state.usedPercent = 95;
  await w.pass(w.open(), 10);
  await w.pass(w.open(), 10);
  t.deepEqual(w.notifications, ["disk firing /data"]);
  w.state.isKnown = false;
  const alerts = w.open();
  await w.pass(alerts, 60);
  t.is(alerts.firing().length, 1);
  w.state.isKnown = true;
  w.state.usedPercent = 50;
  await w.pass(w.open(), 60);
  t.deepEqual(w.notifications, ["disk firing /data", "disk resolved /data"]);
});

test("an undelivered alert is retried, also by another daemon, and then reported once", async (t) => {
  await using w = await world();
  w.state.usedPercent = 95;
  w.state.failing = true;
  await w.pass(w.open(), 60);
  t.deepEqual(w.notifications, []);
  w.state.failing = false;
  const alerts = w.open();
  await w.pass(alerts, 60);
  t.deepEqual(w.notifications, ["disk firing /data"]);
  t.is(alerts.firing().length, 1);
});

test("new rules are delivered at once, whatever the old ones waited for", async (t) => {
  await using w = await world();
  w.state.usedPercent = 95;
  w.state.failing = true;
  const alerts = w.open();
  await w.pass(alerts, 60);
  w.state.failing = false;
  alerts.configure([disk]);
  await w.pass(alerts, 1);
  t.deepEqual(w.notifications, ["disk firing /data"]);
  w.state.usedPercent = 50;
  await w.pass(alerts, 10);
  w.state.usedPercent = 95;
  await w.pass(alerts, 3);
  // A removed rule's earlier observations do not count when it returns.
  alerts.configure([]);
  await w.pass(alerts, 1);
  alerts.configure([disk]);
  await w.pass(alerts, 3);
  t.deepEqual(w.notifications, ["disk firing /data", "disk resolved /data"]);
  await w.pass(alerts, 5);
  t.deepEqual(w.notifications.slice(2), ["disk firing /data"]);
});

test("the end of a rule ends its alerts for all followers", async (t) => {
  await using w = await world([disk, crashed]);
  w.state.usedPercent = 95;
  w.state.apps = [{ id: "app", state: "CRASHED", isBackupOverdue: false, backedUpAtMs: undefined }];
  const alerts = w.open();
  await w.pass(alerts, 10);
  t.deepEqual(w.changes, ["crashed app of its owner began", "disk /data of the host began"]);
  alerts.configure([]);
  await w.pass(alerts, 2);
  t.deepEqual(w.changes.slice(2), ["crashed app of its owner ended", "disk /data of the host ended"]);
  t.is(w.notifications.length, 2, "its target is not known any more");
});

test("concurrent alerts are one notification, and a removed rule reports nothing more", async (t) => {
  await using w = await world([crashed]);
  const ids = Array.from({ length: 50 }, (_, at) => `app-${10 + at}`);
  const apps = (state: string) =>
    ids.map((id) => ({ id, state, isBackupOverdue: false, backedUpAtMs: undefined }));
  w.state.apps = apps("CRASHED");
  const alerts = w.open();
  await w.pass(alerts, 3);
  t.deepEqual(w.notifications, [`crashed firing ${ids.join(",")}`]);
  t.is(alerts.firing().length, 50);
  t.is(alerts.firing(new Set(["app-10"])).length, 1, "a user who sees one app is notified of that app");
  w.state.apps = apps("RUNNING");
  await w.pass(alerts, 3);
  t.deepEqual(w.notifications.slice(1), [`crashed resolved ${ids.join(",")}`]);
  w.state.apps = apps("FAILED");
  await w.pass(alerts, 1);
  const others = w.open([disk]);
  await w.pass(others, 1);
  t.deepEqual(others.firing(), []);
  t.is(w.notifications.length, 3);
});

const hour = 3_600_000;
for (const [name, app, expected] of [
  ["not overdue", { isBackupOverdue: false, backedUpAtMs: 0 }, []],
  [
    "overdue",
    { isBackupOverdue: true, backedUpAtMs: 76 * hour },
    ['the backup of app "a" is overdue: the last one was made 24 hours ago'],
  ],
  [
    "overdue and was never backed up",
    { isBackupOverdue: true, backedUpAtMs: undefined },
    ['the backup of app "a" is overdue: there is none yet'],
  ],
] as const) {
  test(`an app that is ${name}`, (t) => {
    const apps = [{ id: "a", state: "RUNNING", ...app }];
    const found = findingsOf(overdue, { nowMs: 100 * hour, filesystems: undefined, apps });
    t.deepEqual(
      found?.map(({ message }) => message),
      [...expected],
    );
  });
}
