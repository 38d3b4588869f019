/** Checks for updates, and restarts after a pull of an image. */
import assert from "node:assert/strict";
import test from "ava";
import type { AppsContext } from "../../src/apps/apps-context.ts";
import { AppUpdates } from "../../src/apps/changes/app-updates.ts";
import { Repuller } from "../../src/apps/changes/repull.ts";
import { Lifecycle } from "../../src/apps/lifecycle/lifecycle.ts";
import { type AppRecord, patchApp } from "../../src/apps/records/app-record.ts";
import { FoundUpdates } from "../../src/apps/records/found-updates.ts";
import { SvcError } from "../../src/errors.ts";
import type { RuntimeImage } from "../../src/runtimes/capabilities.ts";
import type { AppRuntime } from "../../src/runtimes/contract.ts";
import type { RuntimeStatus } from "../../src/runtimes/runtime-status.ts";
import { eventually } from "../support/eventually.ts";
import { FakeClock } from "../support/fake-clock.ts";
import { storeWithApp } from "./support/store-with-app.ts";

// Automatic checks for updates.

const minuteMs = 60_000;

function appOf(id: string, commit = "c1"): AppRecord {
  return { id, ownerUid: 1000, version: "v1", origin: { kind: "git", commit } } as AppRecord;
}

test("updates are checked within an hour of the start and then daily, and a failure does not affect others", async (t) => {
  const clock = new FakeClock();
  const found = new FoundUpdates();
  const [gone, web] = [appOf("gone", "c0"), appOf("web")];
  const asked: string[] = [];
  let image = (): Promise<RuntimeImage> => Promise.resolve({});
  const turns: string[] = [];
  const updates = new AppUpdates({
    found,
    clock,
    log: { warn: () => undefined },
    random: () => 1,
    version: "1.0.0",
    packages: {
      newerSvc: () => Promise.resolve({ version: "1.1.0", url: "" }),
      newerVersion: ({ origin: { commit } }) => {
        asked.push(commit);
        if (commit === "c0") throw new SvcError("git_failed", "there is no such host");
        return Promise.resolve("v2");
      },
    },
    finder: {
      all: () => Promise.resolve([gone, web]),
      find: (id) => Promise.resolve(appOf(id)),
      visibleIds: () => new Set(["web"]),
    },
    reports: { image: () => image() },
    installLimiter: {
      take: () => {
        turns.push("taken");
        return Promise.resolve({ [Symbol.dispose]: () => turns.push("given back") });
      },
    },
  });
  updates.start();
  clock.pass(59 * minuteMs);
  t.deepEqual(asked, []);
  clock.pass(minuteMs);
  await eventually(() => assert.equal(found.of(web), "v2"));
  t.deepEqual(asked, ["c0", "c1"]);
  t.is(found.of(gone), undefined);
  // The next check is scheduled once this one has finished.
  await eventually(() => assert.ok(!clock.isIdle));
  clock.pass(25 * 60 * minuteMs - 1);
  t.is(asked.length, 2);
  clock.pass(1);
  await eventually(() => assert.equal(asked.length, 4));

  // A caller sees only their own apps.
  const caller = { uid: 1000, root: false, ownerUid: 1000 };
  const look = async () => (await updates.check(caller, new AbortController().signal)).apps;
  t.deepEqual(await look(), [{ id: "web", version: "v1", availableVersion: "v2", outdatedImages: [] }]);
  t.deepEqual(turns, ["taken", "given back"]);
  image = () => Promise.reject(new SvcError("unavailable", "the registry does not respond"));
  t.deepEqual(
    await look(),
    [
      {
        ...{ id: "web", version: "v1", availableVersion: "v2", outdatedImages: [] },
        problem: "the registry does not respond",
      },
    ],
    "the known updates stay",
  );
  const silent = { freshness: "unknown", isUnanswered: true, freshnessReason: "it hangs" } as const;
  const built = { freshness: "unknown", freshnessReason: "it was built here" } as const;
  image = () =>
    Promise.resolve({ services: [silent, built, silent].map((each) => ({ service: "s", image: each })) });
  t.like(await look(), [{ id: "web", availableVersion: "v2", problem: "it hangs" }]);
  await eventually(() => assert.ok(!clock.isIdle));
  updates[Symbol.dispose]();
  t.true(clock.isIdle);
});

test("a found update is forgotten with the version that it was found for", (t) => {
  const found = new FoundUpdates();
  found.set(appOf("web"), "v2");
  t.is(found.of(appOf("web")), "v2");
  t.is(found.of(appOf("web", "c2")), undefined);
  t.is(found.of({ ...appOf("web"), version: "v2" }), undefined, "a directory always has the same commit");
  const { revision } = found;
  found.set(appOf("web"), "v2");
  found.set(appOf("other"), undefined);
  t.is(found.revision, revision, "nothing else changed");
  found.set(appOf("web"), "v3");
  t.true(found.revision > revision);
  found.retain(new Set());
  t.is(found.of(appOf("web")), undefined);
});

// Apps that restart after a pull of their image: those with a changed image, and those that svc was about to start
// anyway.

interface Case {
  readonly status: Partial<RuntimeStatus>;
  /** Whether the image changed. */
  readonly changed: boolean;
  readonly desired: AppRecord["desired"];
  readonly restarted: boolean;
}

const cases: Record<string, Case> = {
  "an app that runs on another image": {
    ...{ status: { state: "RUNNING" }, changed: true },
    ...{ desired: "running", restarted: true },
  },
  "an app that runs on the same image": {
    ...{ status: { state: "RUNNING" }, changed: false },
    ...{ desired: "running", restarted: false },
  },
  "a lost app": {
    ...{ status: { state: "STOPPED", isLost: true }, changed: false },
    ...{ desired: "running", restarted: true },
  },
  "an app whose engine was unavailable": {
    ...{ status: { state: "UNKNOWN" }, changed: false },
    ...{ desired: "running", restarted: true },
  },
  "an app that exited by itself": {
    ...{ status: { state: "CRASHED" }, changed: true },
    ...{ desired: "running", restarted: false },
  },
  "an app that its user stopped": {
    ...{ status: { state: "STOPPED", isLost: true }, changed: true },
    ...{ desired: "stopped", restarted: false },
  },
};

for (const [name, { status, changed, desired, restarted }] of Object.entries(cases)) {
  test(`after a pull of its image, ${name} ${restarted ? "restarts" : "stays unchanged"}`, async (t) => {
    await using made = await storeWithApp();
    const { store, registry, operations } = made;
    await store.write([patchApp("web", { desired })]);
    const done: string[] = [];
    let now = status;
    const runtime = {
      status: () => now,
      check: () => Promise.resolve(),
      settle: () => Promise.resolve(),
      stop: () => {
        done.push("stop");
        now = { state: "STOPPED" };
        return Promise.resolve();
      },
      start: () => Promise.resolve(void done.push("start")),
      images: { pull: () => Promise.resolve({ changed, digest: "", replaced: [], services: [] }) },
    } as unknown as AppRuntime;
    const context = {
      ...{ store, registry, operations, log: { warn: () => undefined } },
      runtimeOf: () => runtime,
      runnable: (app: AppRecord) => app,
      ports: { requireFree: () => Promise.resolve() },
      userHelpers: {},
    } as unknown as AppsContext;
    const repuller = new Repuller({ ...context, lifecycle: new Lifecycle(context) });
    t.like(await repuller.repull(registry.get("web")!, {}), { restarted, changed });
    t.deepEqual(done, restarted ? ["stop", "start"] : []);
    t.is(registry.get("web")?.desired, desired);
    t.deepEqual(operations.all(), []);
  });
}
