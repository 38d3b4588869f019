/** Counts are kept until an app changes, for each caller alone. */
import test from "ava";
import { AppRegistry } from "../../src/apps/app-registry.ts";
import { deleteApp, insertApp } from "../../src/apps/app-record.ts";
import { FoundUpdates } from "../../src/apps/found-updates.ts";
import { AppCounters } from "../../src/apps/app-counters.ts";
import { newApp, noBackups, ToldRuntime } from "../support/many-apps.ts";
import { temporaryStore } from "../store/support/temporary-store.ts";

const root = { uid: 0, root: true, ownerUid: 0 };
const ada = { uid: 1000, root: false, ownerUid: 1000 };
const bob = { uid: 1001, root: false, ownerUid: 1001 };

test("counts follow the store and the runtimes, and show nobody another's apps", async (t) => {
  await using temporary = await temporaryStore();
  const { store } = temporary;
  using registry = new AppRegistry(store);
  const runtime = new ToldRuntime();
  const counters = new AppCounters({
    registry,
    runtimes: [runtime as never],
    backups: noBackups,
    updates: new FoundUpdates(),
    stateOf: (app) => runtime.status(app.id)?.state ?? app.state,
  });
  await store.write([insertApp(newApp("one", 1000)), insertApp(newApp("two", 1001))]);
  const first = counters.of(root);
  t.like(first, { total: 2, running: 0, stopped: 2 });
  t.is(counters.of(root), first, "nothing changed, so it is the same object");
  t.like(counters.of(ada), { total: 1, stopped: 1 });

  runtime.tell("one", { state: "RUNNING", reason: "", health: "none", restarts: 0, lastLines: [] });
  t.like(counters.of(ada), { total: 1, running: 1, stopped: 0 });
  t.like(counters.of(bob), { total: 1, running: 0, stopped: 1 });
  t.like(counters.of(root), { total: 2, running: 1, stopped: 1 });
  t.is(counters.byState().get("RUNNING"), 1);

  await store.write([deleteApp("two")]);
  t.like(counters.of(root), { total: 1, running: 1, stopped: 0 });
  t.like(counters.of(bob), { total: 0 });
});
