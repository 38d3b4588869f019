/** Which apps run anew after their image was pulled: those that have another image, and those that svc was about to start anyway. */
import test from "ava";
import { patchApp, type AppRecord } from "../../src/apps/app-record.ts";
import type { AppsContext } from "../../src/apps/apps-context.ts";
import { Lifecycle } from "../../src/apps/lifecycle.ts";
import { Repuller } from "../../src/apps/repull.ts";
import type { AppRuntime, RuntimeStatus } from "../../src/runtimes/runtime.ts";
import { storeWithApp } from "./support/store-with-app.ts";

interface Case {
  readonly status: Partial<RuntimeStatus>;
  /** Whether the image is another one. */
  readonly changed: boolean;
  readonly desired: AppRecord["desired"];
  readonly restarted: boolean;
}

const cases: Record<string, Case> = {
  "one that runs on another image": {
    ...{ status: { state: "RUNNING" }, changed: true },
    ...{ desired: "running", restarted: true },
  },
  "one that runs on the same image": {
    ...{ status: { state: "RUNNING" }, changed: false },
    ...{ desired: "running", restarted: false },
  },
  "one that was lost": {
    ...{ status: { state: "STOPPED", isLost: true }, changed: false },
    ...{ desired: "running", restarted: true },
  },
  "one whose engine was away": {
    ...{ status: { state: "UNKNOWN" }, changed: false },
    ...{ desired: "running", restarted: true },
  },
  "one that ended by itself": {
    ...{ status: { state: "CRASHED" }, changed: true },
    ...{ desired: "running", restarted: false },
  },
  "one that its people have stopped": {
    ...{ status: { state: "STOPPED", isLost: true }, changed: true },
    ...{ desired: "stopped", restarted: false },
  },
};

for (const [name, { status, changed, desired, restarted }] of Object.entries(cases)) {
  test(`a pull of the image of ${name} has it ${restarted ? "run anew" : "stay as it is"}`, async (t) => {
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
      identities: {},
    } as unknown as AppsContext;
    const repuller = new Repuller({ ...context, lifecycle: new Lifecycle(context) });
    t.like(await repuller.repull(registry.get("web")!, {}), { restarted, changed });
    t.deepEqual(done, restarted ? ["stop", "start"] : []);
    t.is(registry.get("web")?.desired, desired);
    t.deepEqual(operations.all(), []);
  });
}
