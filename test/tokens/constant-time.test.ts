/** Digests of tokens are compared in constant time wherever they are compared (T 12): no measurement would show it reliably. */
import { readFile, readdir } from "node:fs/promises";
import test from "ava";

const dir = new URL("../../src/tokens/", import.meta.url);

test("nothing but timingSafeEqual compares digests", async (t) => {
  for (const name of await readdir(dir)) {
    const source = await readFile(new URL(name, dir), "utf8");
    t.notRegex(source, /\.equals\(|\.compare\(|[dD]igest\)? *[=!]==? *(?!undefined|null)/, name);
  }
  const { isSameDigest } = await import("../../src/tokens/token-digest.ts");
  t.regex(isSameDigest.toString(), /\{\s*return timingSafeEqual\(one, other\);\s*\}$/);
});
