/** When it is looked for newer versions by itself. */
import assert from "node:assert/strict";
import test from "ava";
import type { AppRecord } from "../../src/apps/app-record.ts";
import { AppUpdates } from "../../src/apps/app-updates.ts";
import { FoundUpdates } from "../../src/apps/found-updates.ts";
import { SvcError } from "../../src/errors.ts";
import { eventually } from "../support/eventually.ts";
import { FakeClock } from "../support/fake-clock.ts";

const minuteMs = 60_000;

function appOf(id: string, commit = "c1"): AppRecord {
  return { id, ownerUid: 1000, version: "v1", origin: { kind: "git", commit } } as AppRecord;
}

test("it is looked within an hour of the start and then once a day, and one host that fails keeps no other back", async (t) => {
  const clock = new FakeClock();
  const found = new FoundUpdates();
  const [web, gone] = [appOf("web"), appOf("gone")];
  let asked = 0;
  using updates = new AppUpdates({
    found,
    clock,
    log: { warn: () => undefined },
    random: () => 1,
    packages: {
      newerVersion: ({ commit }) => {
        asked += 1;
        if (asked % 2 === 0) throw new SvcError("git_failed", "there is no such host");
        return Promise.resolve(commit === "c1" ? "v2" : undefined);
      },
    },
    apps: {
      all: () => Promise.resolve([gone, web].toSorted((a, b) => (a.id > b.id ? -1 : 1))),
      visibleIds: () => new Set(["web", "gone"]),
      image: () => Promise.resolve({}),
    },
  });
  updates.start();
  clock.advance(59 * minuteMs);
  t.is(asked, 0);
  clock.advance(minuteMs);
  await eventually(() => assert.equal(asked, 2));
  const before = found.revision;
  await eventually(() => assert.ok(found.of(gone) === "v2" || found.of(web) === "v2"));
  t.true(before <= found.revision);
  // Planned once the pass is over.
  await eventually(() => {
    clock.advance(25 * 60 * minuteMs);
    assert.ok(asked >= 4);
  });
});

test("what was found is forgotten with the version that it was found for", (t) => {
  const found = new FoundUpdates();
  found.set(appOf("web"), "v2");
  t.is(found.of(appOf("web")), "v2");
  t.is(found.of(appOf("web", "c2")), undefined);
  found.keepOnly(new Set());
  t.is(found.of(appOf("web")), undefined);
});
