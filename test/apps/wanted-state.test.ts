/** What the daemon starts by itself and could not is tried again: later each time, not for ever, and not against a person. */
import test from "ava";
import type { AppOperationKind } from "../../gen/svc/v1/words.ts";
import { WantedState, type WantedStateOptions } from "../../src/apps/wanted-state.ts";
import type { Operation } from "../../src/apps/operations.ts";
import type { RuntimeStatus } from "../../src/runtimes/runtime.ts";
import { FakeClock } from "../support/fake-clock.ts";

const minuteMs = 60_000;

/** One app, `web`, that is meant to run. */
function createWorld() {
  const clock = new FakeClock();
  const begunMs = clock.monotonicMs();
  const world = {
    clock,
    /** When a start was tried, in seconds since the daemon began. */
    tries: [] as number[],
    desired: "running",
    comesUp: false,
    status: undefined as Partial<RuntimeStatus> | undefined,
    say: (_id: string): void => undefined,
    wanted: undefined as unknown as WantedState,
    /** Lets time pass and what it sets off come to its end, bit by bit. */
    async pass(durationMs: number): Promise<void> {
      for (let passedMs = 0; passedMs < durationMs; passedMs += 500) {
        clock.pass(500);
        await new Promise(setImmediate);
      }
    },
    begin(kind: AppOperationKind, detail: Operation["detail"] = {}): void {
      world.wanted.giveWay({ appId: "web", kind, detail } as Operation);
    },
    end(kind: AppOperationKind): void {
      world.wanted.takeBack({ appId: "web", kind } as Operation);
    },
  };
  const runtime = {
    status: () => world.status,
    onChange: (listener: (id: string) => void) => {
      world.say = listener;
      return { [Symbol.dispose]: () => undefined };
    },
  };
  const app = () => ({ id: "web", desired: world.desired });
  const options = {
    clock,
    registry: { get: app, all: () => [app()], operationOf: () => undefined },
    runtimes: [runtime],
    runtimeOf: () => runtime,
    lifecycle: {
      bringUp: () => {
        world.tries.push((clock.monotonicMs() - begunMs) / 1000);
        return world.comesUp ? Promise.resolve() : Promise.reject(new Error("the engine is not there"));
      },
      bringDown: () => Promise.resolve(),
    },
    log: { warn: () => undefined },
  };
  world.wanted = new WantedState(options as unknown as WantedStateOptions);
  return world;
}

test("a start that fails is tried again, later each time, and not any more after an hour", async (t) => {
  const world = createWorld();
  await using wanted = world.wanted;
  await wanted.start(["web"]);
  t.is(wanted.dueStarts.atMs("web"), world.clock.nowMs() + 5_000);
  await world.pass(30 * minuteMs);
  t.deepEqual(world.tries, [0, 5, 20, 65, 185, 485, 785, 1085, 1385, 1685]);
  await world.pass(150 * minuteMs);
  t.is(world.tries.at(-1), 3_485);
  t.is(wanted.dueStarts.atMs("web"), undefined);
  t.true(world.clock.isIdle);
});

test("one that has come up is left alone, and begins anew with its next failure", async (t) => {
  const world = createWorld();
  await using wanted = world.wanted;
  await wanted.start(["web"]);
  await world.pass(6_000);
  world.comesUp = true;
  await world.pass(minuteMs);
  t.deepEqual(world.tries, [0, 5, 20]);
  t.is(wanted.dueStarts.atMs("web"), undefined);
  world.comesUp = false;
  world.status = { state: "CRASHED", isLost: true };
  world.say("web");
  await world.pass(10_000);
  t.deepEqual(world.tries.slice(3), [66.5, 71.5]);
});

test("one whose start failed as its engine was away starts as soon as that is back, not when it is due", async (t) => {
  const world = createWorld();
  await using wanted = world.wanted;
  await wanted.start(["web"]);
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

test("how often an app was lost is not held against another one of its id", async (t) => {
  const world = createWorld();
  await using wanted = world.wanted;
  world.comesUp = true;
  await wanted.start([]);
  const lose = (): number => {
    world.status = { state: "CRASHED", isLost: true };
    world.say("web");
    return (wanted.dueStarts.atMs("web") ?? NaN) - world.clock.nowMs();
  };
  const waits = [lose()];
  await world.pass(1_000);
  waits.push(lose());
  world.begin("remove");
  waits.push(lose());
  t.deepEqual(waits, [500, 1_000, 500]);
});

test("one that comes up without a start is left alone", async (t) => {
  const world = createWorld();
  await using wanted = world.wanted;
  await wanted.start(["web"]);
  t.not(wanted.dueStarts.atMs("web"), undefined);
  world.status = { state: "RUNNING" };
  world.say("web");
  t.is(wanted.dueStarts.atMs("web"), undefined);
  await world.pass(minuteMs);
  t.deepEqual(world.tries, [0]);
});

test("one that is not meant to run any more is left alone", async (t) => {
  const world = createWorld();
  await using wanted = world.wanted;
  await wanted.start(["web"]);
  t.false(world.clock.isIdle);
  world.desired = "stopped";
  await world.pass(minuteMs);
  t.deepEqual(world.tries, [0]);
  t.true(world.clock.isIdle);
});

for (const kind of ["start", "restart", "stop", "upgrade", "remove", "restore", "repull"] as const) {
  test(`whoever begins a ${kind} decides what becomes of it`, async (t) => {
    const world = createWorld();
    await using wanted = world.wanted;
    await wanted.start(["web"]);
    t.not(wanted.dueStarts.atMs("web"), undefined);
    world.begin(kind);
    t.is(wanted.dueStarts.atMs("web"), undefined);
    await world.pass(minuteMs);
    t.deepEqual(world.tries, [0]);
  });
}

for (const kind of ["upgrade", "restore", "repull"] as const) {
  test(`a start that was due is made up for when ${kind} has left the app down`, async (t) => {
    const world = createWorld();
    await using wanted = world.wanted;
    await wanted.start(["web"]);
    world.begin(kind);
    await world.pass(minuteMs);
    world.end(kind);
    await world.pass(4_000);
    t.deepEqual(world.tries, [0, 60]);
  });

  test(`${kind} of an app that nothing was due of, that has brought it up or is a stopped one's starts nothing`, async (t) => {
    const world = createWorld();
    await using wanted = world.wanted;
    await wanted.start(["web"]);
    world.begin(kind);
    world.status = { state: "RUNNING" };
    world.end(kind);
    await world.pass(minuteMs);
    t.deepEqual(world.tries, [0], "up");
    // By an end of its own.
    world.status = undefined;
    world.end("backup");
    await world.pass(minuteMs);
    t.deepEqual(world.tries, [0], "work that nothing was set aside for");
    world.begin(kind);
    world.end(kind);
    await world.pass(minuteMs);
    t.deepEqual(world.tries, [0], "nothing was due");
    await wanted.start(["web"]);
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
    await using wanted = world.wanted;
    await wanted.start(["web"]);
    world.begin(kind);
    world.end(kind);
    await world.pass(minuteMs);
    t.deepEqual(world.tries, [0]);
  });
}

test("a backup, settings and a copy leave it as it is", async (t) => {
  const world = createWorld();
  await using wanted = world.wanted;
  await wanted.start(["web"]);
  world.begin("backup");
  world.begin("settings");
  world.begin("clone", { lockOnly: true });
  await world.pass(6_000);
  t.deepEqual(world.tries, [0, 5]);
});

test("nothing is tried once the daemon ends", async (t) => {
  const world = createWorld();
  await world.wanted.start(["web"]);
  t.false(world.clock.isIdle);
  await world.wanted[Symbol.asyncDispose]();
  t.true(world.clock.isIdle);
  t.is(world.wanted.dueStarts.atMs("web"), undefined);
});
