/** When a trigger would fire, for people to look at. */
import test from "ava";
import { previewFirings } from "../../../src/scheduler/clock/preview.ts";

import { Zones } from "../../../src/scheduler/trigger/zone.ts";
import { parseTrigger } from "../support/parse-trigger.ts";

test("nobody looks further once whoever asked is gone", async (t) => {
  const client = new AbortController();
  let turns = 0;
  const giveWay = (): Promise<void> => {
    if (++turns === 3) client.abort(new Error("the client went away"));
    return Promise.resolve();
  };
  const asked = { afterMs: 0, count: 100, giveWay, signal: client.signal };
  const daily = parseTrigger("0 0 * * *");
  await t.throwsAsync(previewFirings(daily, new Zones().get("UTC"), asked), {
    message: "the client went away",
  });
  t.is(turns, 3);
});
