/**
 * A process that writes rows `<prefix><n>`, two per write so that half a write would show, and prints each number as
 * it is acknowledged. Arguments: store directory, prefix, how many (0: until killed).
 */
import { openStore, put } from "./temporary-store.ts";

const [dir = "", prefix = "", count = "0"] = process.argv.slice(2);
await using store = await openStore({ dir });
const limit = Number(count) || Number.POSITIVE_INFINITY;
const parallel = 4;
let next = 0;
await Promise.all(
  Array.from({ length: parallel }, async () => {
    while (next < limit) {
      const n = next++;
      await store.write([put(`${prefix}${n}`), put(`${prefix}${n}-twin`)]);
      // Pipes are written synchronously on Linux: what is acknowledged is printed, killed or not.
      process.stdout.write(`${n}\n`);
    }
  }),
);
