/** Jobs that events fire. */
import test from "ava";
import type { NodeEvent } from "../../../src/observability/events/event-log.ts";
import { EventJobs } from "../../../src/scheduler/clock/event-jobs.ts";
import type { Job } from "../../../src/scheduler/jobs/job.ts";
import { FakeClock } from "../../support/fake-clock.ts";

function jobOn(ownerUid: number, id: string, kind: string, subject = ""): Job {
  return { ownerUid, id, enabled: true, trigger: { event: { kind, subject } } } as unknown as Job;
}

function open(jobs: readonly Job[]) {
  const clock = new FakeClock();
  const fired: string[] = [];
  let publish: (event: NodeEvent) => void = () => undefined;
  const eventJobs = new EventJobs({
    jobs: { all: () => jobs },
    due: { fire: ({ id }) => void fired.push(id) },
    events: {
      listen: (listener) => {
        publish = listener;
        return { [Symbol.dispose]: () => undefined };
      },
    },
    isRoot: (uid) => uid === 0,
    clock,
  });
  return { clock, fired, eventJobs, publish: (event: NodeEvent) => publish(event) };
}

test("a flood of events fires each job once per 100 ms", (t) => {
  const { clock, fired, publish } = open([
    jobOn(5, "any", "app.detail"),
    jobOn(5, "one", "app.detail", "a7"),
  ]);
  for (let each = 0; each < 4_000; each++) publish({ kind: "app.detail", appId: `a${each % 200}`, owner: 5 });
  t.deepEqual(fired, []);
  clock.pass(100);
  t.deepEqual(fired, ["any", "one"]);
  clock.pass(1_000);
  t.is(fired.length, 2, "a job fires again only on another event");
  publish({ kind: "app.detail", appId: "a8", owner: 5 });
  clock.pass(100);
  t.deepEqual(fired, ["any", "one", "any"]);
});

test("events of one moment fire only the jobs whose owners may see them", (t) => {
  const { clock, fired, publish, eventJobs } = open([
    jobOn(5, "own", "app.crashed", "web"),
    jobOn(6, "another user", "app.crashed", "web"),
    jobOn(6, "other app", "app.crashed", "db"),
    jobOn(6, "hosts", "alert.began"),
    jobOn(0, "root", "app.crashed", "web"),
    jobOn(0, "roots", "alert.began", "disk"),
  ]);
  publish({ kind: "app.crashed", appId: "web", owner: 5 });
  publish({ kind: "app.crashed", appId: "cache", owner: 6 });
  publish({ kind: "alert.began", subject: "disk", isRoots: true });
  clock.pass(100);
  t.deepEqual(fired, ["own", "root", "roots"]);
  publish({ kind: "alert.began", subject: "load" });
  clock.pass(100);
  t.deepEqual(fired.slice(3), ["hosts"]);
  publish({ kind: "app.crashed", appId: "web", owner: 5 });
  eventJobs[Symbol.dispose]();
  clock.pass(100);
  t.is(fired.length, 4, "nothing fires after the end");
});
