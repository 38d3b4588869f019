/** The short version of `npm run check:attack`. */
import test from "ava";
import { attackAll } from "./scenario.ts";

test("another client is served while slow clients, resets and a bomb come in", async (t) => {
  // A machine that is busy with other tests is slow by itself: the real bound is that of check:attack.
  const mostP99Ms = 3_000;
  const findings = await attackAll({
    connections: 100,
    resets: 6_000,
    bombBytes: 256 * 1024 * 1024,
    mostP99Ms,
  });
  for (const { attack, text, isGood } of findings) {
    t.log(`${attack}: ${text}`);
    t.true(isGood, attack);
  }
});
