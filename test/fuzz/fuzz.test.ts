/** The short version of `npm run check:fuzz`. */
import test from "ava";
import { fuzz } from "./fuzz.ts";

test("3,000 random requests: the daemon lives and declares all that it answers", async (t) => {
  const seed = Date.now() % 2 ** 32;
  t.log(`seed ${seed}`);
  const { answers, failures } = await fuzz({ count: 3_000, seed });
  t.deepEqual(failures, []);
  t.true([...answers.keys()].includes("REST 200"));
});
