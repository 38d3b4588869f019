/** Failed automatic starts are retried: with growing delays, not forever, and not against a user's request. */
import assert from "node:assert/strict";
import test from "ava";
import type { AppOperationKind } from "../../gen/svc/v1/values.ts";
import { Reconciler, type ReconcilerOptions } from "../../src/apps/lifecycle/reconciler.ts";
import type { Operation } from "../../src/apps/lifecycle/operations.ts";
import type { RuntimeStatus } from "../../src/runtimes/runtime-status.ts";
import { shareOwner } from "../../src/lib/share-owner.ts";
import { eventually } from "../support/eventually.ts";
import { FakeClock } from "../support/fake-clock.ts";

const minuteMs = 60_000;

/** One app, `web`, whose desired state is running. */
function createWorld() {
  const clock = new FakeClock();
  const begunMs = clock.monotonicMs();
  const world = {
    clock,
    /** The times of attempted starts, in seconds since the daemon started. */
    tries: [] as number[],
    desired: "running",
    /** Whether it runs without a status event. */
    isUp: false,
    /** The user whose share each stop used. */
    stops: [] as number[],
    comesUp: false,
    status: undefined as Partial<RuntimeStatus> | undefined,
    say: (_id: string): void => undefined,
    reconciler: undefined as unknown as Reconciler,
    /** Advances time step by step, and lets the resulting work finish. */
    async pass(durationMs: number): Promise<void> {
      for (let passedMs = 0; passedMs < durationMs; passedMs += 500) {
        clock.pass(500);
        await new Promise(setImmediate);
      }
    },
    begin(kind: AppOperationKind, detail: Operation["detail"] = {}): void {
      world.reconciler.began({ appId: "web", kind, detail } as Operation);
    },
    end(kind: AppOperationKind, detail: Operation["detail"] = {}): void {
      world.reconciler.ended({ appId: "web", kind, detail } as Operation);
    },
  };
  const runtime = {
    external: { upNow: () => new Set(world.isUp ? ["web"] : []) },
    status: () => world.status,
    onChange: (listener: (id: string) => void) => {
      world.say = listener;
      return { [Symbol.dispose]: () => undefined };
    },
  };
  const app = () => ({ id: "web", ownerUid: 1001, desired: world.desired });
  const options = {
    clock,
    registry: { get: app, all: () => [app()], operationOf: () => undefined },
    runtimes: [runtime],
    runtimeOf: () => runtime,
    lifecycle: {
      bringUp: () => {
        world.tries.push((clock.monotonicMs() - begunMs) / 1000);
        return world.comesUp ? Promise.resolve() : Promise.reject(new Error("the engine is unavailable"));
      },
      bringDown: () => {
        world.stops.push(shareOwner());
        world.isUp = false;
        return Promise.resolve();
      },
    },
    log: { warn: () => undefined },
  };
  world.reconciler = new Reconciler(options as unknown as ReconcilerOptions);
  return world;
}

test("a failed start is retried with growing delays, and not any more after an hour", async (t) => {
  const world = createWorld();
  await using reconciler = world.reconciler;
  await reconciler.start(["web"]);
  t.is(reconciler.startRetries.atMs("web"), world.clock.nowMs() + 5_000);
  await world.pass(30 * minuteMs);
  t.deepEqual(world.tries, [0, 5, 20, 65, 185, 485, 785, 1085, 1385, 1685]);
  await world.pass(150 * minuteMs);
  t.is(world.tries.at(-1), 3_485);
  t.is(reconciler.startRetries.atMs("web"), undefined);
  t.true(world.clock.isIdle);
});

test("an app that runs is not started, and its retries start over with its next failure", async (t) => {
  const world = createWorld();
  await using reconciler = world.reconciler;
  await reconciler.start(["web"]);
  await world.pass(6_000);
  world.comesUp = true;
  await world.pass(minuteMs);
  t.deepEqual(world.tries, [0, 5, 20]);
  t.is(reconciler.startRetries.atMs("web"), undefined);
  world.comesUp = false;
  world.status = { state: "CRASHED", isLost: true };
  world.say("web");
  await world.pass(10_000);
  t.deepEqual(world.tries.slice(3), [66.5, 71.5]);
});

test("an app whose start failed because its engine was unavailable starts as soon as the engine is back", async (t) => {
  const world = createWorld();
  await using reconciler = world.reconciler;
  await reconciler.start(["web"]);
  await world.pass(6_000);
  world.status = { state: "UNKNOWN" };
  world.say("web");
  await world.pass(1_000);
  t.deepEqual(world.tries, [0, 5]);
  world.comesUp = true;
  world.status = { state: "STOPPED", isLost: true };
  world.say("web");
  await world.pass(minuteMs);
  t.deepEqual(world.tries, [0, 5, 7.5]);
});

test("the failures of an app do not count for another one with its ID", async (t) => {
  const world = createWorld();
  await using reconciler = world.reconciler;
  world.comesUp = true;
  await reconciler.start([]);
  const lose = (): number => {
    world.status = { state: "CRASHED", isLost: true };
    world.say("web");
    return (reconciler.startRetries.atMs("web") ?? NaN) - world.clock.nowMs();
  };
  const waits = [lose()];
  await world.pass(1_000);
  waits.push(lose());
  world.begin("remove");
  waits.push(lose());
  t.deepEqual(waits, [500, 1_000, 500]);
});

test("an app that runs without a start is not started", async (t) => {
  const world = createWorld();
  await using reconciler = world.reconciler;
  await reconciler.start(["web"]);
  t.not(reconciler.startRetries.atMs("web"), undefined);
  world.status = { state: "RUNNING" };
  world.say("web");
  t.is(reconciler.startRetries.atMs("web"), undefined);
  await world.pass(minuteMs);
  t.deepEqual(world.tries, [0]);
});

test("an app that should not run any more is not started", async (t) => {
  const world = createWorld();
  await using reconciler = world.reconciler;
  await reconciler.start(["web"]);
  t.false(world.clock.isIdle);
  world.desired = "stopped";
  await world.pass(minuteMs);
  t.deepEqual(world.tries, [0]);
  t.true(world.clock.isIdle);
});

test("a running app that should not run is stopped on its owner's share", async (t) => {
  const world = createWorld();
  await using reconciler = world.reconciler;
  await reconciler.start([]);
  world.desired = "stopped";
  world.isUp = true;
  await eventually(() => assert.deepEqual(world.stops, [1001]), 15_000);
  t.false(world.isUp);
});

for (const kind of ["start", "restart", "stop", "upgrade", "remove", "restore", "repull"] as const) {
  test(`${kind} by a user decides the app's state`, async (t) => {
    const world = createWorld();
    await using reconciler = world.reconciler;
    await reconciler.start(["web"]);
    t.not(reconciler.startRetries.atMs("web"), undefined);
    world.begin(kind);
    t.is(reconciler.startRetries.atMs("web"), undefined);
    await world.pass(minuteMs);
    t.deepEqual(world.tries, [0]);
  });
}

for (const kind of ["upgrade", "restore", "repull"] as const) {
  test(`a due start is made up for if ${kind} has left the app stopped`, async (t) => {
    const world = createWorld();
    await using reconciler = world.reconciler;
    await reconciler.start(["web"]);
    world.begin(kind);
    await world.pass(minuteMs);
    world.end(kind);
    await world.pass(4_000);
    t.deepEqual(world.tries, [0, 60]);
  });

  test(`${kind} of an app without a due start, of a running one, or of a stopped one starts nothing`, async (t) => {
    const world = createWorld();
    await using reconciler = world.reconciler;
    await reconciler.start(["web"]);
    world.begin(kind);
    world.status = { state: "RUNNING" };
    world.end(kind);
    await world.pass(minuteMs);
    t.deepEqual(world.tries, [0], "up");
    // It exits by itself.
    world.status = undefined;
    world.end("backup");
    await world.pass(minuteMs);
    t.deepEqual(world.tries, [0], "an operation that suspended nothing");
    world.begin(kind);
    world.end(kind);
    await world.pass(minuteMs);
    t.deepEqual(world.tries, [0], "nothing was due");
    await reconciler.start(["web"]);
    world.begin(kind);
    world.desired = "stopped";
    world.end(kind);
    await world.pass(minuteMs);
    t.deepEqual(world.tries, [0, 180], "stopped");
  });
}

for (const kind of ["start", "restart", "stop", "remove"] as const) {
  test(`after ${kind} nothing is made up for`, async (t) => {
    const world = createWorld();
    await using reconciler = world.reconciler;
    await reconciler.start(["web"]);
    world.begin(kind);
    world.end(kind);
    await world.pass(minuteMs);
    t.deepEqual(world.tries, [0]);
  });
}

test("a backup, settings and a copy leave it unchanged", async (t) => {
  const world = createWorld();
  await using reconciler = world.reconciler;
  await reconciler.start(["web"]);
  world.begin("backup");
  world.begin("settings");
  world.begin("clone", { lockOnly: true });
  await world.pass(6_000);
  t.deepEqual(world.tries, [0, 5]);
});

test("nothing is retried once the daemon stops", async (t) => {
  const world = createWorld();
  await world.reconciler.start(["web"]);
  t.false(world.clock.isIdle);
  await world.reconciler[Symbol.asyncDispose]();
  t.true(world.clock.isIdle);
  t.is(world.reconciler.startRetries.atMs("web"), undefined);
});

for (const [kind, tries] of [
  ["restart", [5, 20]],
  ["start", []],
] as const) {
  test(`an app whose ${kind} met a port in use is started later: ${tries.length > 0}`, async (t) => {
    const world = createWorld();
    await using reconciler = world.reconciler;
    await reconciler.start([]);
    world.begin(kind);
    world.end(kind, { portInUse: true });
    await world.pass(21_000);
    t.deepEqual(world.tries, [...tries]);
  });
}
