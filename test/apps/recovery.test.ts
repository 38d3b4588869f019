/** Recovery of operations whose process died: each app independently. */
import assert from "node:assert/strict";
import test from "ava";
import type { Operation } from "../../src/apps/lifecycle/operations.ts";
import { Recovery, type RecoveryOptions } from "../../src/apps/lifecycle/recovery.ts";
import { eventually } from "../support/eventually.ts";
import type { AppsContext } from "../../src/apps/apps-context.ts";
import type { AppRecord } from "../../src/apps/records/app-record.ts";
import { BackupHold } from "../../src/apps/lifecycle/backup-hold.ts";
import { Lifecycle } from "../../src/apps/lifecycle/lifecycle.ts";
import type { AppRuntime } from "../../src/runtimes/contract.ts";
import type { RuntimeStatus } from "../../src/runtimes/runtime-status.ts";
import { storeWithApp } from "./support/store-with-app.ts";
import { Remover } from "../../src/apps/changes/removal.ts";
import { Repuller } from "../../src/apps/changes/repull.ts";
import { SvcError } from "../../src/errors.ts";
import { diskFull } from "../../src/store/sqlite-failure.ts";
import { startFailed } from "../../src/runtimes/start-failed.ts";

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

test("an app that cannot be settled is retried, and logged once until it succeeds", async (t) => {
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

// An operation on an app that the daemon's exit interrupts is left for the next daemon to resume, and any other failure finishes it.

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
    adopt: () => Promise.resolve("running"),
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
    message: /^app "web" is stopped and stays so, but how it ended could not be written down: .*disk.* full/,
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
