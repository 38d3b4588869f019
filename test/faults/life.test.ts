/** A short soak test; the long one is `node test/faults/life.ts --minutes 120 --seed 1`. */
import test from "ava";
import { live } from "./life.ts";

/** Each action once, however slow the host is. */
const leastActs = 12;
const ends = [
  "detach work",
  "detach work and end the daemon",
  "detach work and kill the daemon",
  "end the daemon",
  "kill a supervisor",
  "lose power",
  "reload a page",
  "run a job, and kill the daemon",
  "stop or start",
  "upgrade",
];

test("after exits of the daemon, kills and upgrades, apps have their desired state, and files and runs are retained", async (t) => {
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
