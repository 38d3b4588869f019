/**
 * A process that writes rows `<prefix><n>`, two per write so that half a write would show, and prints each number when
 * it is acknowledged. Arguments: store directory, prefix, count (0: until killed).
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
      // Writes to pipes are synchronous on Linux, so every acknowledged number is printed even if the process is
      // killed.
      process.stdout.write(`${n}\n`);
    }
  }),
);
