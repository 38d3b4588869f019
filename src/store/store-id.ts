import type { Store } from "./store.ts";

/**
 * What tells this store from every other, wherever it lies: made with it, and copied and moved with it. Whatever svc makes
 * elsewhere, such as on a container engine that several share, says by it whose it is.
 */
export function storeIdOf(store: Pick<Store, "get">): string {
  const row = store.get<{ value: string }>("SELECT value FROM store_id");
  if (row === undefined) throw new Error("the store has no id");
  return row.value;
}
