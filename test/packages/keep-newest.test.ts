import { readdir, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { keepNewest } from "../../src/packages/keep-newest.ts";
import { World } from "./support/world.ts";

test("of more files than may be, the newest stay", async (t) => {
  await using world = await World.create();
  for (const [name, atSecs] of Object.entries({ a: 40, b: 10, c: 30, d: 20 })) {
    const path = join(world.directory, name);
    await writeFile(path, "");
    await utimes(path, atSecs, atSecs);
  }
  await keepNewest(world.directory, 4);
  t.is((await readdir(world.directory)).length, 4);
  await keepNewest(world.directory, 2);
  t.deepEqual((await readdir(world.directory)).toSorted(), ["a", "c"]);
});
