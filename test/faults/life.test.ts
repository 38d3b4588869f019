/** A short life; the long one is `node test/faults/life.ts --minutes 120 --seed 1`. */
import test from "ava";
import { live } from "./life.ts";

/** However slow the machine is: with this seed, each kind of end is among them. */
const leastActs = 12;
const ends = [
  "end the daemon",
  "kill a supervisor",
  "lose power",
  "run a job, and kill the daemon",
  "stop or start",
  "upgrade",
];

test("through ends of the daemon, kills and upgrades apps stay as they are wanted, and files and runs are kept", async (t) => {
  t.timeout(600_000);
  const done: string[] = [];
  const bounds = { ms: 12_000, leastActs };
  const did = await live({ seed: 1, ...bounds, rootsApps: 2, jobs: 10, log: (line) => done.push(line) });
  t.log(did);
  t.true(done.length >= leastActs);
  t.deepEqual(
    ends.filter((end) => !done.includes(end)),
    [],
  );
});
