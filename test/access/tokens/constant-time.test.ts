/** Digests of tokens are always compared in constant time, which no measurement would show reliably. */
import { readFile, readdir } from "node:fs/promises";
import test from "ava";

const dir = new URL("../../../src/access/tokens/", import.meta.url);

test("digests are compared only with timingSafeEqual", async (t) => {
  for (const name of await readdir(dir)) {
    const source = await readFile(new URL(name, dir), "utf8");
    t.notRegex(source, /\.equals\(|\.compare\(|[dD]igest\)? *[=!]==? *(?!undefined|null)/, name);
  }
  const { isSameDigest } = await import("../../../src/access/tokens/token-digest.ts");
  t.regex(isSameDigest.toString(), /\{\s*return timingSafeEqual\(one, other\);\s*\}$/);
});
