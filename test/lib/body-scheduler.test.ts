import { setImmediate as nextTurn } from "node:timers/promises";
import test from "ava";
import { BodyScheduler } from "../../src/lib/body-scheduler.ts";
import { FairQueue } from "../../src/lib/fair-queue.ts";

test("one user's large bodies are read one at a time and do not delay other users", async (t) => {
  const bodies = new BodyScheduler(new FairQueue());
  const [first, second, third, other] = ["a", "a", "a", "b"].map((name) => bodies.open(name));
  t.is(first!.large(), undefined);
  t.is(first!.large(), undefined, "it is large once");
  const order: string[] = [];
  const waiting = [second, third].map(async (body, index) => {
    await body!.large();
    order.push(["second", "third"][index]!);
  });
  t.is(other!.large(), undefined);
  await nextTurn();
  t.deepEqual(order, []);
  // A body that is disposed while it waits is skipped.
  second![Symbol.dispose]();
  first![Symbol.dispose]();
  await Promise.all(waiting);
  t.deepEqual(order, ["second", "third"]);
  third![Symbol.dispose]();
  t.is(bodies.open("a").large(), undefined, "nobody is left");
});
