import { availableParallelism } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import test from "ava";
import { fillProcessors } from "./room.ts";

test("work goes on side by side until there is no more, and never more than four by processor", async (t) => {
  let left = 60;
  let running = 0;
  let most = 0;
  await fillProcessors(async () => {
    if (left === 0) return false;
    left -= 1;
    running += 1;
    most = Math.max(most, running);
    await sleep(200);
    running -= 1;
    return true;
  });
  t.is(left, 0);
  t.is(running, 0, "what was begun has ended");
  t.true(most > availableParallelism());
  t.true(most <= availableParallelism() * 4);
});

test("a failure is told", async (t) => {
  await t.throwsAsync(
    fillProcessors(() => Promise.reject(new Error("no room"))),
    { message: "no room" },
  );
});
