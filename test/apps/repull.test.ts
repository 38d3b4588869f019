/**
 * Apps that restart after a pull of their image: those with a changed image, and those that svc was about to start
 * anyway.
 */
import test from "ava";
import { patchApp, type AppRecord } from "../../src/apps/records/app-record.ts";
import type { AppsContext } from "../../src/apps/apps-context.ts";
import { Lifecycle } from "../../src/apps/lifecycle/lifecycle.ts";
import { Repuller } from "../../src/apps/changes/repull.ts";
import type { AppRuntime } from "../../src/runtimes/contract.ts";
import type { RuntimeStatus } from "../../src/runtimes/runtime-status.ts";
import { storeWithApp } from "./support/store-with-app.ts";

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
