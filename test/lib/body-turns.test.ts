import { setImmediate as nextTurn } from "node:timers/promises";
import test from "ava";
import { BodyTurns } from "../../src/lib/body-turns.ts";
import { FairTurns } from "../../src/lib/fair-turns.ts";

test("of one user one large body is read after the other; others' do not wait", async (t) => {
  const bodies = new BodyTurns(new FairTurns());
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
  // Whoever leaves while it waits is passed over.
  second![Symbol.dispose]();
  first![Symbol.dispose]();
  await Promise.all(waiting);
  t.deepEqual(order, ["second", "third"]);
  third![Symbol.dispose]();
  t.is(bodies.open("a").large(), undefined, "nobody is left");
});
