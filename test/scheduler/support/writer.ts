/**
 * A process that changes the schedules of a store like an in-process command, until it is stopped or killed. Prints
 * each acknowledged change as a line of JSON. Arguments: store directory, role, number.
 */
import { create } from "@bufbuild/protobuf";
import { ScheduleSchema, UpsertScheduleRequestSchema } from "../../../gen/svc/v1/schedule_pb.ts";
import { FairQueue } from "../../../src/lib/fair-queue.ts";
import { JobOwners } from "../../../src/scheduler/jobs/job-owners.ts";
import { Schedules, type SchedulesOptions } from "../../../src/scheduler/schedules.ts";
import { Zones } from "../../../src/triggers/zone.ts";
import { openWorld } from "./world.ts";

/** The stored change: a job as it is now, a manager's jobs as they are now, an opened run, or a closed one. */
export type Acknowledged =
  | { kind: "job"; id: string; comment: string | null }
  | { kind: "managed"; managedBy: string; comments: Record<string, string> }
  | { kind: "opened"; job: string; run: number }
  | { kind: "closed"; job: string; run: number; output: string };

const [dir = "", role = "", number = ""] = process.argv.slice(2);
const caller = { uid: 0, root: true };
const jobsEach = 8;

const world = await openWorld({ dir });
const { store, registry, log: runs } = world;
const unused = (): never => {
  throw new Error("nothing is run here");
};
const runner: SchedulesOptions["runner"] = {
  start: unused,
  follow: unused,
  cancel: unused,
  finishing: unused,
};
const schedules = new Schedules({
  store,
  registry,
  runs,
  runner,
  zones: new Zones(),
  selfUid: 0,
  waitOf: () => undefined,
  owners: new JobOwners({ selfUid: 0, lookUp: () => Promise.resolve("root") }),
  hasApp: () => true,
  now: Date.now,
  fairQueue: new FairQueue(),
  log: { warn: () => undefined },
});
const action = { type: "shell", command: "true" };
const idOf = (index: number): string => `${role}-${number}-${index}`;
const random = (below: number): number => Math.floor(Math.random() * below);

/** Resolves when it is in the pipe, before the next step starts: output found after a kill was acknowledged. */
async function acknowledge(fact: Acknowledged): Promise<void> {
  await new Promise<void>((resolve) => process.stdout.write(`${JSON.stringify(fact)}\n`, () => resolve()));
}

async function put(id: string, comment: string): Promise<void> {
  const request = create(UpsertScheduleRequestSchema, { id, trigger: "hourly", comment, action });
  await schedules.upsert({ id }, request, caller);
  await acknowledge({ kind: "job", id, comment });
}

async function edit(turn: number): Promise<void> {
  const id = idOf(random(jobsEach));
  const isThere = registry.get({ ownerUid: 0, id }) !== undefined;
  if (isThere && random(4) === 0) {
    await schedules.remove({ id }, caller);
    await acknowledge({ kind: "job", id, comment: null });
  } else {
    await put(id, String(turn));
  }
  // Shared by all processes: their edits collide.
  await schedules.upsert(
    { id: "shared" },
    create(UpsertScheduleRequestSchema, {
      id: "shared",
      trigger: "hourly",
      comment: `${number} ${turn}`,
      action,
    }),
    caller,
  );
}

async function push(turn: number): Promise<void> {
  const managedBy = `manager-${number}`;
  const chosen = Array.from({ length: jobsEach }, (_, index) => idOf(index)).filter(() => random(3) > 0);
  const comments = Object.fromEntries(chosen.map((id) => [id, random(2) === 0 ? "kept" : String(turn)]));
  const jobs = Object.entries(comments).map(([id, comment]) =>
    create(ScheduleSchema, { id, trigger: "hourly", comment, action }),
  );
  await schedules.replaceManaged(managedBy, jobs, caller);
  await acknowledge({ kind: "managed", managedBy, comments });
}

async function record(turn: number): Promise<void> {
  const id = idOf(random(jobsEach));
  const key = { ownerUid: 0, id };
  if (registry.get(key) === undefined) await put(id, "recorded");
  const { started, run } = await runs.open(key, { trigger: "manual", attempt: 1 });
  if (!started) throw new Error(`run ${run.id} of ${id} is already in progress`);
  await acknowledge({ kind: "opened", job: id, run: run.id });
  const output = `${turn} ${"x".repeat(random(4_000))}`;
  await runs.close(run, { status: "SUCCEEDED", exitCode: 0, output, error: "", truncated: false });
  await acknowledge({ kind: "closed", job: id, run: run.id, output });
}

const roles: Readonly<Record<string, (turn: number) => Promise<void>>> = { edit, push, record };
const work = roles[role];
if (work === undefined) throw new Error(`no role "${role}"`);
const state = { isAsked: true };
process.stdin.once("end", () => (state.isAsked = false)).resume();
for (let turn = 0; state.isAsked; turn++) await work(turn);
await world[Symbol.asyncDispose]();
