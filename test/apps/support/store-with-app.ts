/** Dependencies of operations on an app, without a daemon. */
import { insertApp } from "../../../src/apps/records/app-record.ts";
import { AppRegistry } from "../../../src/apps/records/app-registry.ts";
import { Operations } from "../../../src/apps/lifecycle/operations.ts";
import type { Store } from "../../../src/store/store.ts";
import { temporaryStore } from "../../store/support/temporary-store.ts";
import { newApp } from "../../support/many-apps.ts";

export interface StoreWithApp extends AsyncDisposable {
  readonly store: Store;
  readonly registry: AppRegistry;
  readonly operations: Operations;
}

/** A store with the app `web`, whose desired state is running, and its operations. */
export async function storeWithApp(): Promise<StoreWithApp> {
  await using made = new AsyncDisposableStack();
  const { store } = made.use(await temporaryStore());
  const registry = made.use(new AppRegistry(store));
  const executor = { bootId: "boot", pid: process.pid, startTicks: 1 };
  const operations = new Operations({ store, executor, now: Date.now });
  operations.recovery.set(() => Promise.resolve());
  await store.write([insertApp({ ...newApp("web", 0), desired: "running" })]);
  const all = made.move();
  return { store, registry, operations, [Symbol.asyncDispose]: () => all.disposeAsync() };
}
