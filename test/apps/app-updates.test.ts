/** Automatic checks for updates. */
import assert from "node:assert/strict";
import test from "ava";
import type { AppRecord } from "../../src/apps/records/app-record.ts";
import { AppUpdates } from "../../src/apps/changes/app-updates.ts";
import { FoundUpdates } from "../../src/apps/records/found-updates.ts";
import { SvcError } from "../../src/errors.ts";
import type { RuntimeImage } from "../../src/runtimes/capabilities.ts";
import { eventually } from "../support/eventually.ts";
import { FakeClock } from "../support/fake-clock.ts";

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
