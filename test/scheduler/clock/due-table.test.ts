import test from "ava";
import { DueTable } from "../../../src/scheduler/clock/due-table.ts";
import { dayMs } from "../../../src/triggers/wall-slice.ts";
import { Zones } from "../../../src/triggers/zone.ts";
import { job } from "../support/evaluation.ts";

test("a job on 29 February fires on that day only, years after its start", (t) => {
  const table = new DueTable(new Zones());
  const fired: string[] = [];
  run(table.fill([job("leap", "0 0 29 2 *")]));
  for (let atMs = Date.UTC(2096, 2, 1); atMs < Date.UTC(2109, 0, 1); atMs += dayMs)
    run(table.pass(atMs, () => fired.push(new Date(atMs).toISOString().slice(0, 10))));
  t.deepEqual(fired, ["2104-02-29", "2108-02-29"]);
});

function run(work: Generator<undefined, void>): void {
  while (work.next().done !== true);
}
