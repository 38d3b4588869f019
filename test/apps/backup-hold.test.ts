/** What is noted of an app before a backup freezes it: whoever finds it so lets it go on. */
import test from "ava";
import type { AppsContext } from "../../src/apps/apps-context.ts";
import type { AppRecord } from "../../src/apps/app-record.ts";
import { BackupHold } from "../../src/apps/backup-hold.ts";
import { Lifecycle } from "../../src/apps/lifecycle.ts";
import type { AppRuntime, RuntimeStatus } from "../../src/runtimes/runtime.ts";
import { storeWithApp } from "./support/store-with-app.ts";

test("what is frozen is known before it is, until it goes on", async (t) => {
  await using made = await storeWithApp();
  const { store, registry, operations } = made;
  const noted: [string, string, string[] | undefined][] = [];
  const note = (when: string): void => {
    for (const { phase, detail } of operations.all()) noted.push([when, phase, detail.frozen]);
  };
  const runtime = {
    status: (): Partial<RuntimeStatus> => ({ state: "RUNNING" }),
    freezable: () => Promise.resolve(["all of it"]),
    freeze: async () => note("freeze"),
    thaw: async () => {
      note("thaw");
      return true;
    },
  } as unknown as AppRuntime;
  const context = {
    ...{ store, registry, operations, log: { warn: () => undefined } },
    runtimeOf: () => runtime,
    runnable: (app: AppRecord) => app,
    paths: { appDir: () => "" },
    identities: { tree: () => Promise.resolve({ isThere: () => Promise.resolve(true) }) },
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
