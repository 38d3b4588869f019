import type { Store } from "./store.ts";

/**
 * The unique ID of this store, created with it and copied and moved with it. Whatever svc creates elsewhere, such as on
 * a container engine that several daemons share, carries it to show its owner.
 */
export function storeIdOf(store: Pick<Store, "get">): string {
  const row = store.get<{ value: string }>("SELECT value FROM store_id");
  if (row === undefined) throw new Error("the store has no id");
  return row.value;
}
