import { cp, rename } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { storeIdOf } from "../../src/store/store-id.ts";
import { openStore, temporaryDir } from "./support/temporary-store.ts";

async function idIn(dir: string): Promise<string> {
  await using store = await openStore({ dir });
  return storeIdOf(store);
}

test("a store keeps its id wherever it goes, and another one at its place has another", async (t) => {
  await using parent = await temporaryDir();
  const dir = join(parent.path, "store");
  const id = await idIn(dir);
  t.regex(id, /^[0-9a-f]{16}$/);
  t.is(await idIn(dir), id, "opened again");
  await cp(dir, join(parent.path, "copy"), { recursive: true });
  t.is(await idIn(join(parent.path, "copy")), id, "copied");
  await rename(dir, join(parent.path, "moved"));
  t.is(await idIn(join(parent.path, "moved")), id, "moved");
  t.not(await idIn(dir), id, "another one");
});
