/** Many concurrent changes of jobs block nobody, in any order. */
import test from "ava";
import { JobTable, type JobChange } from "../../../src/scheduler/jobs/job-table.ts";
import type { Job } from "../../../src/scheduler/jobs/job.ts";
import { parseTrigger } from "../support/parse-trigger.ts";

/** A prime, so that its multiples have a different order. */
const count = 20_011;
const step = 7_919;
/** Comparisons while some hundreds of changes are sorted or applied; all at once it would be half a million. */
const mostLooks = 20_000;

const trigger = parseTrigger("hourly");
const idOf = (n: number): string => `job-${String(n).padStart(6, "0")}`;

test("changes in any order are sorted and applied in slices", (t) => {
  let looks = 0;
  const changeOf = (n: number): JobChange => {
    const key = {
      id: idOf(n),
      get ownerUid() {
        looks += 1;
        return 0;
      },
    };
    return { key, job: { ownerUid: 0, id: key.id, trigger, comment: "", action: { type: "shell" } } as Job };
  };
  const changes = Array.from({ length: count }, (_, at) => changeOf((at * step) % count));
  /** The table with the changes, and the maximum of comparisons in one slice. */
  const take = (before: JobTable): { table: JobTable; most: number } => {
    const work = before.withAll(changes);
    for (let most = 0; ;) {
      looks = 0;
      const { done, value } = work.next();
      most = Math.max(most, looks);
      if (done === true) return { table: value, most };
    }
  };
  let table = new JobTable();
  // In a table that has them already each change is also looked up.
  for (const round of ["first", "again"]) {
    const taken = take(table);
    table = taken.table;
    t.deepEqual(
      table.jobs.map(({ id }) => id),
      Array.from({ length: count }, (_, n) => idOf(n)),
    );
    t.is(table.totalsOf(0).jobs, count);
    t.true(taken.most < mostLooks, `${round}: ${taken.most} comparisons in one slice`);
  }
});
