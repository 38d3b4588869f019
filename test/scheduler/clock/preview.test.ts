/** A preview of a trigger's firings. */
import test from "ava";
import { previewFirings } from "../../../src/scheduler/clock/preview.ts";

import { Zones } from "../../../src/triggers/zone.ts";
import { parseTrigger } from "../support/parse-trigger.ts";

test("the preview stops when its client disconnects", async (t) => {
  const client = new AbortController();
  let turns = 0;
  const yieldToOthers = (): Promise<void> => {
    if (++turns === 3) client.abort(new Error("the client disconnected"));
    return Promise.resolve();
  };
  const asked = { afterMs: 0, count: 100, yieldToOthers, signal: client.signal };
  const daily = parseTrigger("0 0 * * *");
  await t.throwsAsync(previewFirings(daily, new Zones().get("UTC"), asked), {
    message: "the client disconnected",
  });
  t.is(turns, 3);
});
