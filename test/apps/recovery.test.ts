/** What becomes of operations whose process died: each app by itself. */
import assert from "node:assert/strict";
import test from "ava";
import type { Operation } from "../../src/apps/operations.ts";
import { Recovery, type RecoveryOptions } from "../../src/apps/recovery.ts";
import { eventually } from "../support/eventually.ts";

const count = 20;

test("an app that cannot be brought to rest for now keeps no other waiting", async (t) => {
  const end = Promise.withResolvers<undefined>();
  const ids = Array.from({ length: count }, (_, at) => `app-${at}`);
  const [hung, others] = [new Set(ids.slice(0, 3)), ids.slice(3)];
  const stopped: string[] = [];
  const options = {
    operations: {
      all: () => ids.map((appId) => ({ appId, kind: "stop", phase: "stop", detail: {} })),
      isLive: () => Promise.resolve(false),
      adopt: () => Promise.resolve(true),
      release: () => undefined,
    },
    registry: { get: (id: string) => ({ id }) },
    lifecycle: {
      finishStop: async ({ appId }: Operation) => {
        if (hung.has(appId)) await end.promise;
        stopped.push(appId);
      },
    },
    log: { info: () => undefined, error: () => undefined },
  };
  const sweep = new Recovery(options as unknown as RecoveryOptions).sweep();
  await eventually(() => assert.deepEqual(stopped.toSorted(), others.toSorted()));
  end.resolve(undefined);
  await sweep;
  t.is(stopped.length, count);
});

test("what cannot be brought to rest is tried again and again, and logged once until it could", async (t) => {
  const logged: string[] = [];
  let fails = true;
  const options = {
    operations: {
      all: () => [{ id: 1, appId: "web", kind: "stop", phase: "stop", detail: {} }],
      isLive: () => Promise.resolve(false),
      adopt: () => Promise.resolve(true),
      release: () => undefined,
    },
    registry: { get: (id: string) => ({ id }) },
    lifecycle: { finishStop: () => (fails ? Promise.reject(new Error("away")) : Promise.resolve()) },
    log: { info: () => logged.push("begins"), error: () => logged.push("failed") },
  };
  const recovery = new Recovery(options as unknown as RecoveryOptions);
  for (const failing of [true, true, true, false, true]) {
    fails = failing;
    await recovery.sweep();
  }
  t.deepEqual(logged, ["begins", "failed", "begins", "failed"]);
});
