/** In-memory jobs with responses for the command line to show. */
import { clone, create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import {
  ScheduleRunSchema,
  ScheduleSchema,
  type Schedule,
  type ScheduleRun,
  type ScheduleService,
} from "../../../gen/svc/v1/schedule_pb.ts";
import { invalidField, SvcError } from "../../../src/errors.ts";
import { jobNotFound } from "../../../src/scheduler/jobs/job.ts";

/** The current time in `runSvc`: 2026-01-02T00:00:00Z. */
const nowMs = Date.parse("2026-01-02T00:00:00Z");

export type JobFields = Parameters<typeof create<typeof ScheduleSchema>>[1];

/** A job with the fields that tests check: it fires in 4 minutes. */
export function jobOf(fields: JobFields & { id: string }): Schedule {
  return create(ScheduleSchema, {
    trigger: "*/5 * * * *",
    enabled: true,
    action: { type: "shell", command: "echo hi" },
    timeout: 600,
    catchUp: "none",
    owner: 1000,
    ownerName: "ada",
    revision: "1",
    nextRunUnix: BigInt(nowMs / 1000 + 240),
    ...(fields as object),
  });
}

/** A run that started a minute ago and took 1.5 s. */
export function runOf(fields: Partial<ScheduleRun> = {}): ScheduleRun {
  return create(ScheduleRunSchema, {
    id: "7",
    jobId: "echo",
    trigger: "manual",
    status: "SUCCEEDED",
    attempt: 1,
    startedAt: timestampFromDate(new Date(nowMs - 60_000)),
    endedAt: timestampFromDate(new Date(nowMs - 58_500)),
    exitCode: 0,
    output: "hi\n",
    owner: 1000,
    ...(fields as object),
  });
}

/** Scripted runs by job ID; other runs print `hi` and succeed. */
export interface FakeRun {
  readonly pieces?: readonly Uint8Array[];
  readonly end?: Partial<ScheduleRun>;
  /** A run is already in progress. */
  readonly found?: boolean;
  /** Whether a run never ends by itself. */
  readonly hangs?: boolean;
}

export interface FakeSchedules {
  readonly jobs: Schedule[];
  readonly runs: Readonly<Record<string, FakeRun>>;
  /** Concurrent changes by other users, one before each UpsertSchedule. */
  readonly meanwhile?: ((jobs: Schedule[]) => void)[];
  /** Every accepted UpsertSchedule. */
  readonly upserts: Parameters<ServiceImpl<typeof ScheduleService>["upsertSchedule"]>[0][];
}

export function fakeSchedules(
  { jobs, runs, upserts, meanwhile = [] }: FakeSchedules,
  onLeft: () => void,
): Partial<ServiceImpl<typeof ScheduleService>> {
  const find = (id: string, owner = 1000): Schedule => {
    const job = jobs.find((each) => each.id === id && each.owner === owner);
    if (job === undefined) throw jobNotFound(id);
    return job;
  };
  return {
    // One job per page, so that a client has to request more.
    listSchedules: ({ managedBy, pageToken }) => {
      const listed = jobs.filter((job) => managedBy === undefined || (job.managedBy ?? "") === managedBy);
      const at = Number(pageToken);
      return {
        schedules: listed.slice(at, at + 1),
        nextPageToken: at + 1 < listed.length ? String(at + 1) : "",
      };
    },
    getSchedule: ({ id, owner }) => find(id, owner),
    upsertSchedule: (request) => {
      const { id, trigger, owner = 1000, managedBy } = request;
      if (trigger.includes("61")) throw invalidField("trigger", 'minute "61" must be 0 to 59');
      if (id === "forbidden") throw invalidField("action.type", "node_reboot is for root's jobs");
      if (trigger === "59 23 31 12 *") throw new SvcError("too_many", "too many jobs");
      const { app } = request.action ?? {};
      if (app === "helo" || app === "nope") throw invalidField("action.app", `no app "${app}"`);
      if (id === "appless") throw invalidField("action.app", "is required");
      meanwhile.shift()?.(jobs);
      const at = jobs.findIndex((job) => job.id === id && job.owner === owner);
      if (at !== -1 && request.createOnly) {
        throw new SvcError("already_exists", `there is a job "${id}" already`);
      }
      if (request.revision !== "" && jobs[at]?.revision !== request.revision) {
        throw new SvcError("conflict", `job "${id}" was changed since it was read`);
      }
      if (at !== -1 && (jobs[at]?.managedBy ?? "") !== (managedBy ?? "")) {
        throw new SvcError("job_owned", `job "${id}" belongs to another`);
      }
      const { $typeName: _type, owner: _owner, createOnly: _new, enabled = true, ...fields } = request;
      const revision = String(Number(jobs[at]?.revision ?? 0) + 1);
      const job = jobOf({ ...fields, id, enabled, owner, revision });
      if (!enabled) delete job.nextRunUnix;
      if (at === -1) jobs.push(job);
      else jobs[at] = job;
      upserts.push(request);
      return job;
    },
    removeSchedule: ({ id, owner }) => {
      jobs.splice(jobs.indexOf(find(id, owner)), 1);
      return { id };
    },
    runSchedule: ({ id }) => ({
      started: runs[id]?.found !== true,
      run: runOf({ jobId: find(id).id, status: "RUNNING" }),
    }),
    async *runScheduleStream({ id }, { signal }) {
      const { pieces = [Buffer.from("hi\n")], end = {}, found = false, hangs = false } = runs[id] ?? {};
      const run = runOf({ jobId: find(id).id, status: "RUNNING" });
      yield { event: { case: "run", value: run }, started: !found };
      // The output of a run that another caller started is not streamed.
      for (const output of found ? [] : pieces) yield { event: { case: "output", value: output } };
      if (hangs) {
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
        onLeft();
      }
      yield { event: { case: "run", value: runOf({ jobId: id, ...end }) } };
    },
    cancelScheduleRun: ({ id }) => runOf({ jobId: find(id).id, status: "CANCELED" }),
    // One run per page.
    listScheduleRuns: ({ id, pageToken }) =>
      pageToken === ""
        ? {
            runs: [
              runOf({
                id: "9",
                jobId: find(id).id,
                status: "FAILED",
                exitCode: 3,
                error: "exit code 3\nmore",
              }),
            ],
            nextPageToken: "9",
          }
        : {
            runs: [runOf({ id: "8", jobId: id, trigger: "schedule", attempt: 2, output: "eight \x1b[2J\n" })],
          },
    async *followScheduleRuns({ id }) {
      const run = runOf({ jobId: id === "" ? "echo" : find(id).id });
      yield { ...clone(ScheduleRunSchema, run), status: "RUNNING", endedAt: undefined };
      yield run;
    },
    previewSchedule: ({ trigger, timeZone, count = 5, action }) => {
      if (action?.app === "missing") throw invalidField("action.app", 'no app "missing"');
      if (trigger.includes("61")) throw invalidField("trigger", 'minute "61" must be 0 to 59');
      if (timeZone === "Nowhere/Land")
        throw invalidField("time_zone", 'there is no time zone "Nowhere/Land"');
      const firings = [
        { unix: BigInt(nowMs / 1000 + 60), localTime: "2026-01-02T01:01:00+01:00", anomaly: "gap" },
        { unix: BigInt(nowMs / 1000 + 360), localTime: "2026-01-02T01:06:00+01:00", anomaly: "none" },
      ].slice(0, count);
      return {
        firings: ["0 0 29 2 */6", "on:app.crashed"].includes(trigger) ? [] : firings,
        timeZone: timeZone || "Europe/Berlin",
      };
    },
  };
}
