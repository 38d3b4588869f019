/** Recovery of interrupted operations, and retries of automatic starts. */
import assert from "node:assert/strict";
import test from "ava";
import type { AppOperationKind } from "../../gen/svc/v1/values.ts";
import type { AppsContext } from "../../src/apps/apps-context.ts";
import { Remover } from "../../src/apps/changes/removal.ts";
import { Repuller } from "../../src/apps/changes/repull.ts";
import { BackupHold } from "../../src/apps/lifecycle/backup-hold.ts";
import { Lifecycle } from "../../src/apps/lifecycle/lifecycle.ts";
import type { Operation } from "../../src/apps/lifecycle/operations.ts";
import { Reconciler, type ReconcilerOptions } from "../../src/apps/lifecycle/reconciler.ts";
import { Recovery, type RecoveryOptions } from "../../src/apps/lifecycle/recovery.ts";
import type { AppRecord } from "../../src/apps/records/app-record.ts";
import { SvcError } from "../../src/errors.ts";
import { shareOwner } from "../../src/lib/share-owner.ts";
import type { AppRuntime } from "../../src/runtimes/contract.ts";
import type { RuntimeStatus } from "../../src/runtimes/runtime-status.ts";
import { startFailed } from "../../src/runtimes/start-failed.ts";
import { diskFull } from "../../src/store/sqlite-failure.ts";
import { eventually } from "../support/eventually.ts";
import { FakeClock } from "../support/fake-clock.ts";
import { storeWithApp } from "./support/store-with-app.ts";

// Recovery of operations whose process died: each app independently.

const count = 20;

test("an app that cannot be settled for now delays no other", async (t) => {
  const end = Promise.withResolvers<undefined>();
  const ids = Array.from({ length: count }, (_, at) => `app-${at}`);
  const [hung, others] = [new Set(ids.slice(0, 3)), ids.slice(3)];
  const stopped: string[] = [];
  const options = {
    operations: {
      all: () => ids.map((appId) => ({ appId, kind: "stop", phase: "stop", detail: {} })),
      isLive: () => Promise.resolve(false),
      takeOver: () => Promise.resolve(true),
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

test("an app that cannot be settled is retried, and logged once until it succeeds", async (t) => {
  const logged: string[] = [];
  let fails = true;
  const options = {
    operations: {
      all: () => [{ id: 1, appId: "web", kind: "stop", phase: "stop", detail: {} }],
      isLive: () => Promise.resolve(false),
      takeOver: () => Promise.resolve(true),
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

// The record of an app before a backup pauses it: whoever finds it resumes the app.

test("a paused app is recorded before the pause, until it resumes", async (t) => {
  await using made = await storeWithApp();
  const { store, registry, operations } = made;
  const noted: [string, string, string[] | undefined][] = [];
  const note = (when: string): void => {
    for (const { phase, detail } of operations.all()) noted.push([when, phase, detail.frozen]);
  };
  const runtime = {
    status: (): Partial<RuntimeStatus> => ({ state: "RUNNING" }),
    freezing: {
      freezable: () => Promise.resolve(["all of it"]),
      freeze: async () => note("freeze"),
      thaw: async () => {
        note("thaw");
        return true;
      },
    },
  } as unknown as AppRuntime;
  const context = {
    ...{ store, registry, operations, log: { warn: () => undefined } },
    runtimeOf: () => runtime,
    runnable: (app: AppRecord) => app,
    paths: { appDir: () => "" },
    userHelpers: { tree: () => Promise.resolve({ exists: () => Promise.resolve(true) }) },
  } as unknown as AppsContext;
  const hold = new BackupHold({ ...context, lifecycle: new Lifecycle(context) });
  await hold.hold("web", "pause", async () => note("read"), {});
  const frozen = ["all of it"];
  t.deepEqual(noted, [
    ["freeze", "frozen", frozen],
    ["read", "frozen", frozen],
    ["thaw", "frozen", frozen],
  ]);
  t.deepEqual(operations.all(), []);
});

// An operation on an app that the daemon's exit interrupts is left for the next daemon to resume, and any other
// failure finishes it.

/** The error of an operation when the engine's connection is closed during it. */
const closed = new SvcError("unavailable", "the daemon is stopping; try again in a moment");

type Doing = (app: AppRecord, lifecycle: Lifecycle, context: AppsContext) => Promise<unknown>;
const works: Record<string, { phase: string; isUp: boolean; do: Doing }> = {
  start: { phase: "start", isUp: false, do: (app, lifecycle) => lifecycle.start(app) },
  stop: { phase: "stop", isUp: true, do: (app, lifecycle) => lifecycle.stop(app) },
  "the stop of a restart": { phase: "stop", isUp: true, do: (app, lifecycle) => lifecycle.restart(app) },
  "the start of a restart": { phase: "start", isUp: false, do: (app, lifecycle) => lifecycle.restart(app) },
  repull: {
    ...{ phase: "stop", isUp: true },
    do: (app, lifecycle, context) => new Repuller({ ...context, lifecycle }).repull(app, {}),
  },
  "the stop of a removal": { phase: "stop", isUp: true, do: remove },
  "the rest of a removal": { phase: "delete", isUp: false, do: remove },
};

function remove(app: AppRecord, _lifecycle: Lifecycle, context: AppsContext): Promise<unknown> {
  return new Remover(context).remove(app);
}

/** Runs an operation that fails with `error`; resolves with the operations left in progress. */
async function leftOf(name: string, isLeaving: boolean, error: SvcError): Promise<string[]> {
  await using made = await storeWithApp();
  const { store, registry, operations } = made;
  const { isUp, do: work } = works[name]!;
  const fails = (): Promise<never> => {
    if (isLeaving) operations.leave();
    return Promise.reject(error);
  };
  const runtime = {
    status: (): Partial<RuntimeStatus> => ({ state: isUp ? "RUNNING" : "STOPPED" }),
    check: () => Promise.resolve(),
    reattach: () => Promise.resolve("running"),
    start: fails,
    stop: () => (isUp ? fails() : Promise.resolve()),
    remove: fails,
    images: { pull: () => Promise.resolve({ changed: true, digest: "", replaced: [], services: [] }) },
  } as unknown as AppRuntime;
  const context = {
    ...{ store, registry, operations, log: { warn: () => undefined } },
    runtimeOf: () => runtime,
    runtimesOf: () => [runtime],
    runnable: (app: AppRecord) => app,
    ports: { requireFree: () => Promise.resolve() },
    userHelpers: {},
    userName: () => Promise.resolve("ann"),
  } as unknown as AppsContext;
  const app = registry.get("web")!;
  await work(app, new Lifecycle(context), context).catch(() => undefined);
  return operations.all().map(({ phase }) => phase);
}

for (const [name, { phase }] of Object.entries(works)) {
  test(`${name} that the daemon's exit interrupts stays in progress`, async (t) => {
    t.deepEqual(await leftOf(name, true, closed), [phase]);
    t.deepEqual(await leftOf(name, false, closed), [], "the daemon continues, and so may its users");
    const failed = startFailed("web", "it ended at once");
    if (phase === "start") t.deepEqual(await leftOf(name, true, failed), [], "it finished by itself");
  });
}

test("a stop whose record does not fit on the disk reports that the app is stopped", async (t) => {
  await using made = await storeWithApp();
  const { store, registry, operations } = made;
  const ends: string[] = [];
  operations.end = () => Promise.reject(diskFull());
  const runtime = {
    status: () => ({ state: "RUNNING" }),
    stop: () => Promise.resolve(void ends.push("stopped")),
  } as unknown as AppRuntime;
  const context = {
    ...{ store, registry, operations },
    runtimesOf: () => [runtime],
    runtimeOf: () => runtime,
    runnable: (app: AppRecord) => app,
  } as unknown as AppsContext;
  await t.throwsAsync(new Lifecycle(context).stop(registry.get("web")!), {
    message: /^app "web" is stopped, but svc could not record how the app ended: .*disk.* full/,
  });
  t.deepEqual(ends, ["stopped"]);
  t.is(registry.get("web")?.desired, "stopped");
  operations.begin = () => Promise.reject(diskFull());
  await t.throwsAsync(new Lifecycle(context).stop(registry.get("web")!), { message: diskFull().message });
  t.deepEqual(ends, ["stopped"], "a stop that could not start has stopped nothing, and does not report it");
});

test("a removal whose engine does not come back stays in progress, and nobody waits for it", async (t) => {
  await using made = await storeWithApp();
  const { store, registry, operations } = made;
  const away = new SvcError("unavailable", "it is unavailable");
  let asked = 0;
  const runtime = {
    // It stops when the removal has started.
    engine: { requireResponse: () => (asked++ === 0 ? Promise.resolve() : Promise.reject(away)) },
    stop: () => Promise.reject(away),
  } as unknown as AppRuntime;
  const context = {
    ...{ store, registry, operations },
    runtimeOf: () => runtime,
    runtimesOf: () => [runtime],
    runnable: (app: AppRecord) => app,
  } as unknown as AppsContext;
  const error = await new Remover(context, 0).remove(registry.get("web")!).catch((reason: unknown) => reason);
  t.like(error, {
    reason: "unavailable",
    message: 'app "web" is being removed, which goes on when the container engine is back: it is unavailable',
  });
  const left = operations.of("web")!;
  t.like(left, { kind: "remove", phase: "stop", detail: { awaitsEngine: true } });
  t.false(await operations.isLive(left), "the next cleanup may resume it");
});

// Failed automatic starts are retried: with growing delays, not forever, and not against a user's request.

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
    // The app exits by itself.
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
  test(`after a ${kind} by the user no start is retried`, async (t) => {
    const world = createWorld();
    await using reconciler = world.reconciler;
    await reconciler.start(["web"]);
    world.begin(kind);
    world.end(kind);
    await world.pass(minuteMs);
    t.deepEqual(world.tries, [0]);
  });
}

test("a backup, a change of settings and a copy leave the planned start unchanged", async (t) => {
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
