/** Work on an app that the end of the daemon cuts short is left for the next one to resume, and all else that fails has ended. */
import test from "ava";
import type { AppsContext } from "../../src/apps/apps-context.ts";
import type { AppRecord } from "../../src/apps/app-record.ts";
import { Lifecycle } from "../../src/apps/lifecycle.ts";
import { Remover } from "../../src/apps/removal.ts";
import { Repuller } from "../../src/apps/repull.ts";
import { SvcError } from "../../src/errors.ts";
import type { AppRuntime, RuntimeStatus } from "../../src/runtimes/runtime.ts";
import { diskFull } from "../../src/store/sqlite-failure.ts";
import { startFailed } from "../../src/runtimes/start-failed.ts";
import { storeWithApp } from "./support/store-with-app.ts";

/** What the work meets when the connection to the engine is closed under it. */
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

/** Does the work, which fails with `error`; resolves with what is left under way then. */
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
  test(`${name} that the end of the daemon cuts short stays under way`, async (t) => {
    t.deepEqual(await leftOf(name, true, closed), [phase]);
    t.deepEqual(await leftOf(name, false, closed), [], "the daemon goes on, and so may its people");
    const failed = startFailed("web", "it ended at once");
    if (phase === "start") t.deepEqual(await leftOf(name, true, failed), [], "it came to its end by itself");
  });
}

test("a stop that only its record lacks room for says that the app is stopped", async (t) => {
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
  t.deepEqual(ends, ["stopped"], "what could not begin has stopped nothing, and says nothing of it");
});

test("a removal whose engine does not come back is left under way, and nobody waits for it", async (t) => {
  await using made = await storeWithApp();
  const { store, registry, operations } = made;
  const away = new SvcError("unavailable", "it is away");
  let asked = 0;
  const runtime = {
    // It goes when the removal has begun.
    requireAnswer: () => (asked++ === 0 ? Promise.resolve() : Promise.reject(away)),
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
    message: 'app "web" is being removed, which goes on when the container engine is back: it is away',
  });
  const left = operations.of("web")!;
  t.like(left, { kind: "remove", phase: "stop", detail: { awaitsEngine: true } });
  t.false(await operations.isLive(left), "the next sweep may go on with it");
});
