/** Apps are read again after a write by any process, and not before. */
import assert from "node:assert/strict";
import test from "ava";
import { AppRegistry } from "../../src/apps/records/app-registry.ts";
import { deleteApp, insertApp, patchApp } from "../../src/apps/records/app-record.ts";
import type { Store } from "../../src/store/store.ts";
import { openStore, put, temporaryStore } from "../store/support/temporary-store.ts";
import { eventually } from "../support/eventually.ts";
import { newApp } from "../support/many-apps.ts";

/** A store that counts the reads of all apps. */
function counted(store: Store): { store: Store; looks: () => number } {
  let looks = 0;
  const proxy = new Proxy(store, {
    get(target, name) {
      if (name === "all") {
        return (sql: string, ...params: never[]) => {
          if (sql.includes("FROM apps ")) looks++;
          return target.all(sql, ...params);
        };
      }
      const value = Reflect.get(target, name) as unknown;
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
  return { store: proxy, looks: () => looks };
}

test("a commit that writes no app causes no read of all apps", async (t) => {
  await using temporary = await temporaryStore();
  const { store, looks } = counted(temporary.store);
  using registry = new AppRegistry(store);
  await store.write([insertApp(newApp("one", 0)), insertApp(newApp("two", 0))]);
  t.is(registry.all().length, 2);
  const [before, { revision }] = [looks(), registry];
  for (const key of ["a", "b", "c"]) {
    await store.write([put(key)]);
    t.is(registry.all().length, 2);
  }
  t.is(looks(), before);
  t.is(registry.revision, revision);
});

test("every kind of write is noticed, this process's at once and another's within a second", async (t) => {
  await using temporary = await temporaryStore();
  await using other = await openStore({ dir: temporary.dir });
  using registry = new AppRegistry(temporary.store);
  const ids = () => registry.all().map(({ id, state }) => `${id} ${state}`);
  t.deepEqual(ids(), []);
  await temporary.store.write([insertApp(newApp("one", 0))]);
  t.deepEqual(ids(), ["one STOPPED"]);
  await temporary.store.write([patchApp("one", { state: "RUNNING" })]);
  t.deepEqual(ids(), ["one RUNNING"]);
  await other.write([insertApp(newApp("two", 0))]);
  await eventually(() => assert.deepEqual(ids(), ["one RUNNING", "two STOPPED"]), 1_000);
  await other.write([patchApp("two", { state: "CRASHED" })]);
  await eventually(() => assert.deepEqual(ids(), ["one RUNNING", "two CRASHED"]), 1_000);
  await other.write([deleteApp("one")]);
  await eventually(() => assert.deepEqual(ids(), ["two CRASHED"]), 1_000);
  await temporary.store.write([deleteApp("two")]);
  t.deepEqual(ids(), []);
});
