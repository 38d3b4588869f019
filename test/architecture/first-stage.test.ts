/** The first stage answers before much is loaded: what it imports at once, however far, is little. */
import test from "ava";
import { importsOf, parseSource } from "./sources.ts";

/** They take longer than all that the first stage does. */
const heavy = ["commander", "node:http", "node:http2", "node:fs/promises", "node:readline", "node:crypto"];

for (const entry of ["src/main.ts", "src/cli/quick.ts", "src/cli/complete.ts", "src/cli/complete-names.ts"]) {
  test(`${entry} loads nothing heavy at once`, async (t) => {
    const seen = new Set([entry]);
    for (const file of seen) {
      if (!/\.(ts|mjs)$/.test(file)) continue;
      for (const { to, isTypeOnly, isLazy } of importsOf(await parseSource(file))) {
        if (!isTypeOnly && !isLazy) seen.add(to);
      }
    }
    t.true(seen.size > 1);
    t.deepEqual(
      [...seen].filter(
        (each) => heavy.includes(each) || each.startsWith("@bufbuild/") || each.endsWith("_pb.ts"),
      ),
      [],
    );
  });
}
