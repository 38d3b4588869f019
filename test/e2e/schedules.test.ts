/** Schedules on a real daemon: their effects, every kind of caller, and rejections by field. */
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Client } from "@connectrpc/connect";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import {
  ScheduleService,
  type ScheduleAction,
  type ScheduleActionSchema,
  type UpsertScheduleRequest,
  type UpsertScheduleRequestSchema,
} from "../../gen/svc/v1/schedule_pb.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import { isRoot, needsRoot, protocolOf, protocols } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { sendRest } from "../support/rest-transport.ts";

type Request = Exclude<MessageInitShape<typeof UpsertScheduleRequestSchema>, UpsertScheduleRequest>;
type Action = Exclude<MessageInitShape<typeof ScheduleActionSchema>, ScheduleAction>;
type Schedules = Client<typeof ScheduleService>;

const rootTest = isRoot ? test : test.skip;
const emptyDaemon = sharedDaemon();
const protocol = protocolOf(import.meta.url);
const selfUid = process.geteuid?.() ?? 0;
const [nobody, games] = [65534, 5];

const yearly = "0 0 1 1 *";
const shell: Action = { type: "shell", command: "true" };
const http: Action = { type: "http", url: "http://localhost/" };

/** A job, as both of its messages accept it. */
type Job = Omit<Request, "$typeName" | "$unknown" | "owner" | "action"> & {
  id: string;
  trigger: string;
  action: Action;
};

/** A job with only the field under test. */
function job(id: string, changes: Partial<Job> = {}): Job {
  return { trigger: yearly, action: shell, ...changes, id };
}

async function idsOf(schedules: Schedules, managedBy?: string): Promise<string[]> {
  const { schedules: jobs } = await schedules.listSchedules(managedBy === undefined ? {} : { managedBy });
  return jobs.map(({ id }) => id);
}

test("jobs are listed by the app that they act on", async (t) => {
  const daemon = await emptyDaemon();
  const schedules = daemon.client(ScheduleService, protocol);
  const dir = join(daemon.dir, "web");
  await writePackage(dir, await freePort());
  const { id: app } = await daemon.client(AppService).installApp({ spec: dir });
  await schedules.upsertSchedule(job("a-shell"));
  await schedules.upsertSchedule(job("b-stop", { action: { type: "app_stop", app } }));
  await schedules.upsertSchedule(job("c-shell", { action: { ...shell, app } }));
  const first = await schedules.listSchedules({ app, limit: 1 });
  t.deepEqual(
    first.schedules.map(({ id }) => id),
    ["b-stop"],
  );
  const second = await schedules.listSchedules({ app, limit: 1, pageToken: first.nextPageToken });
  t.deepEqual(
    second.schedules.map(({ id }) => id),
    ["c-shell"],
  );
  t.is(second.nextPageToken, "");
  t.deepEqual((await schedules.listSchedules({ app: "nothing" })).schedules, []);
});

test("the life of a schedule", async (t) => {
  const daemon = await emptyDaemon();
  const schedules = daemon.client(ScheduleService, protocol);
  const made = await schedules.upsertSchedule(
    job("hi", {
      trigger: "*/5 * * * *",
      comment: "says hi",
      action: { type: "shell", command: "echo hi" },
    }),
  );
  t.like(made, {
    id: "hi",
    enabled: true,
    owner: selfUid,
    managedBy: undefined,
    timeout: 600,
    catchUp: "none",
  });
  t.is(made.lastRun, undefined);
  const inSecs = Number(made.nextRunUnix) - Date.now() / 1000;
  t.true(inSecs > -1 && inSecs <= 300, `next run in ${inSecs} s`);
  t.deepEqual(await schedules.getSchedule({ id: "hi" }), made);
  t.deepEqual((await schedules.listSchedules({})).schedules, [made]);

  const { started, run } = await schedules.runSchedule({ id: "hi" });
  t.true(started);
  t.like(run, { jobId: "hi", status: "RUNNING", trigger: "manual", attempt: 1, owner: selfUid });
  const [ended] = await eventually(async () => {
    const { runs } = await schedules.listScheduleRuns({ id: "hi" });
    if (runs[0]?.status === "RUNNING") throw new Error("it is still running");
    return runs;
  });
  t.like(ended, {
    id: run?.id,
    status: "SUCCEEDED",
    exitCode: 0,
    output: "hi\n",
    error: "",
    truncated: false,
  });
  const { lastRun } = await schedules.getSchedule({ id: "hi" });
  t.like(lastRun, { id: run?.id, status: "SUCCEEDED", output: "" });

  const off = await schedules.upsertSchedule(job("hi", { enabled: false }));
  t.like(off, { enabled: false, comment: "", trigger: yearly, nextRunUnix: undefined });
  t.is((await schedules.listScheduleRuns({ id: "hi" })).runs.length, 1, "an edit keeps the runs");

  t.deepEqual((await schedules.removeSchedule({ id: "hi" })).id, "hi");
  const gone = { code: "NotFound", reason: "not_found", message: 'no job "hi"' };
  t.like(await errorOf(schedules.getSchedule({ id: "hi" })), gone);
  t.like(await errorOf(schedules.removeSchedule({ id: "hi" })), gone);
  t.like(await errorOf(schedules.runSchedule({ id: "hi" })), gone);
  t.like(await errorOf(schedules.cancelScheduleRun({ id: "hi" })), gone);
  t.like(await errorOf(schedules.listScheduleRuns({ id: "hi" })), gone);
});

test("a job has one run at a time, which can be canceled", async (t) => {
  const daemon = await emptyDaemon();
  const schedules = daemon.client(ScheduleService, protocol);
  await schedules.upsertSchedule(job("long", { action: { type: "shell", command: "sleep 600" } }));
  t.like(await errorOf(schedules.cancelScheduleRun({ id: "long" })), {
    code: "FailedPrecondition",
    message: 'no run of job "long" is running',
  });
  const first = await schedules.runSchedule({ id: "long" });
  const second = await schedules.runSchedule({ id: "long" });
  t.true(first.started);
  t.false(second.started);
  t.is(second.run?.id, first.run?.id);
  t.like((await schedules.getSchedule({ id: "long" })).lastRun, { status: "RUNNING" });
  t.like(await schedules.cancelScheduleRun({ id: "long" }), { id: first.run?.id, status: "CANCELED" });
  const third = await schedules.runSchedule({ id: "long" });
  t.true(third.started);
  await schedules.removeSchedule({ id: "long" });
  await schedules.upsertSchedule(job("long"));
  t.deepEqual((await schedules.listScheduleRuns({ id: "long" })).runs, [], "its runs were removed with it");
});

test("a push replaces the jobs of its manager", async (t) => {
  const daemon = await emptyDaemon();
  const schedules = daemon.tokenClient(ScheduleService, protocol);
  const push = (...jobs: Job[]) =>
    schedules.replaceManagedSchedules({ managedBy: "platform", schedules: jobs });
  await schedules.upsertSchedule(job("mine"));
  const secret = { ...http, headers: { Authorization: "Bearer one" } };
  const answer = await push(job("b"), job("a", { action: secret }), job("c", { managedBy: "platform" }));
  t.deepEqual(
    answer.schedules.map(({ id, managedBy }) => [id, managedBy]),
    [
      ["a", "platform"],
      ["b", "platform"],
      ["c", "platform"],
    ],
  );
  t.is(answer.nextPageToken, "");
  await schedules.runSchedule({ id: "b" });
  await eventually(async () => {
    const { lastRun } = await schedules.getSchedule({ id: "b" });
    if (lastRun?.status !== "SUCCEEDED") throw new Error(`it is ${String(lastRun?.status)}`);
  });

  const hidden = { ...http, headers: { authorization: "***" } };
  await push(job("b"), job("a", { action: hidden, comment: "changed" }), job("d"));
  t.deepEqual(await idsOf(schedules), ["a", "b", "d", "mine"]);
  t.deepEqual(await idsOf(schedules, "platform"), ["a", "b", "d"]);
  t.deepEqual(await idsOf(schedules, ""), ["mine"]);
  t.like(await schedules.getSchedule({ id: "a" }), {
    comment: "changed",
    action: { headers: { authorization: "***" } },
  });
  t.is((await schedules.listScheduleRuns({ id: "b" })).runs.length, 1, "unchanged jobs keep their runs");

  const before = (await schedules.listSchedules({})).schedules;
  const other = schedules.replaceManagedSchedules({ managedBy: "other", schedules: [job("e"), job("b")] });
  for (const [title, refused, expected] of [
    [
      "an operator's id",
      push(job("new"), job("mine")),
      {
        code: "FailedPrecondition",
        reason: "job_owned",
        message: 'job "mine" is managed by the operator; nothing was written',
        payload: { case: "jobOwned", value: { ids: ["mine"] } },
      },
    ],
    [
      "another manager's id",
      other,
      { reason: "job_owned", payload: { case: "jobOwned", value: { ids: ["b"], managedBy: "platform" } } },
    ],
    [
      "two of an id, a bad trigger, somebody else's mark",
      push(job("new"), job("new"), job("x", { trigger: "nonsense" }), job("y", { managedBy: "other" })),
      {
        code: "InvalidArgument",
        reason: "invalid_request",
        message:
          'schedules[1].id: "new" is repeated; ' +
          'schedules[2].trigger: "nonsense" is not valid: use hourly, HH:MM, @daily, "every 15m", "mon 03:00", on:EVENT or five cron fields ("30 2 * * mon-fri"); ' +
          'schedules[3].managed_by must be "platform" or omitted, not "other"',
      },
    ],
  ] as const) {
    t.like(await errorOf(refused), expected, title);
    t.deepEqual((await schedules.listSchedules({})).schedules, before, `${title}: nothing is written`);
  }
  t.deepEqual((await push()).schedules, []);
  t.deepEqual(await idsOf(schedules), ["mine"]);
});

test("invalid fields are rejected by name", async (t) => {
  const daemon = await emptyDaemon();
  const http16k = Object.fromEntries(["a", "b", "c"].map((name) => [name, "x".repeat(8_000)]));
  const cases = [
    ["id", job("x".repeat(65))],
    ["id", job("a b")],
    ["trigger", { id: "a", action: shell }],
    ["trigger", job("a", { trigger: "* * * *" })],
    ["trigger", job("a", { trigger: "5/10 * * * *" })],
    ["trigger", job("a", { trigger: "a\0b" })],
    ["action", { id: "a", trigger: yearly }],
    ["action.type", job("a", { action: { type: "format_disk" } })],
    ["action.type", job("a", { action: { command: "true" } })],
    ["action.app", job("a", { action: { type: "app_start" } })],
    ["action.command", job("a", { action: { type: "shell" } })],
    ["action.command", job("a", { action: { type: "shell", command: "a\0b" } })],
    ["action.url", job("a", { action: { type: "http" } })],
    ["action.url", job("a", { action: { ...http, url: "http://" } })],
    ["action.url", job("a", { action: { ...http, url: "http:///path" } })],
    ["action.url", job("a", { action: { ...http, url: "ftp://localhost/" } })],
    ["action.method", job("a", { action: { ...http, method: "TRACE" } })],
    ["action.headers", job("a", { action: { ...http, headers: http16k } })],
    ['action.headers["X-A"]', job("a", { action: { ...http, headers: { "X-A": "a\nb" } } })],
    ['action.headers["a b"]', job("a", { action: { ...http, headers: { "a b": "c" } } })],
    ["action.keep", job("a", { action: { type: "backup", app: "a", keep: 0 } })],
    ["action.storages", job("a", { action: { ...shell, storages: ["s3"] } })],
    ["keep", job("a", { keep: 0 })],
    ["timeout", job("a", { timeout: 0 })],
    ["timeout", job("a", { timeout: 3601 })],
    ["jitter_secs", job("a", { jitterSecs: 3601 })],
    ["retries", job("a", { retries: 11 })],
    ["catch_up", job("a", { catchUp: "all" })],
    ["time_zone", job("a", { timeZone: "Mars/Olympus" })],
    ["time_zone", job("a", { timeZone: "Europe/Berlin", utc: true })],
    ["comment", job("a", { comment: "x".repeat(1025) })],
    ["comment", job("a", { comment: "a\0" })],
    ["managed_by", job("a", { managedBy: "x".repeat(65) })],
  ] as const satisfies readonly (readonly [string, Request])[];
  for (const [at, [field, request]] of cases.entries()) {
    const schedules = daemon.client(ScheduleService, protocols[at % protocols.length]);
    const { code, reason, payload } = await errorOf(schedules.upsertSchedule(request));
    const title = `${field} of ${JSON.stringify(request).slice(0, 100)}`;
    t.is(code, "InvalidArgument", title);
    t.is(reason, "invalid_request", title);
    t.deepEqual(
      payload.case === "invalidRequest" && payload.value.violations.map((one) => one.field),
      [field],
      title,
    );
  }
  const huge = job("a", { action: { ...http, headers: { "X-A": "x".repeat(1024 * 1024) } } });
  for (const each of protocols) {
    const { reason } = await errorOf(daemon.client(ScheduleService, each).upsertSchedule(huge));
    t.is(reason, each === "rest" ? "body_too_large" : "invalid_request", each);
  }
  t.deepEqual(await idsOf(daemon.client(ScheduleService)), []);
});

test("a job is only created, or changed as it was read", async (t) => {
  const daemon = await emptyDaemon();
  const schedules = daemon.client(ScheduleService, protocol);
  const put = (changes: Partial<Job>) => schedules.upsertSchedule(job("one", changes));
  const read = () => schedules.getSchedule({ id: "one" });
  const gone = await errorOf(put({ revision: "1" }));
  t.like(gone, { code: "Aborted", reason: "conflict" });
  t.regex(gone.message, /"one" was removed since it was read/);
  t.deepEqual(await idsOf(schedules), []);

  const made = await put({ createOnly: true, comment: "first" });
  t.not(made.revision, "");
  const exists = await errorOf(put({ createOnly: true, comment: "second" }));
  t.like(exists, { code: "AlreadyExists", reason: "already_exists" });
  t.deepEqual(await read(), made);

  const changed = await put({ revision: made.revision, comment: "third" });
  t.not(changed.revision, made.revision);
  t.is((await put({ comment: "third" })).revision, changed.revision, "nothing was changed");
  const late = await errorOf(put({ revision: made.revision, comment: "fourth" }));
  t.like(late, { code: "Aborted", reason: "conflict" });
  t.regex(late.message, /"one" was changed since it was read/);
  t.deepEqual(await read(), changed);

  await schedules.removeSchedule({ id: "one" });
  const again = await put({ comment: "third" });
  t.not(again.revision, changed.revision, "a recreated job is a different one");
});

test("of many that create one job, or change it as they read it, one succeeds", async (t) => {
  const daemon = await emptyDaemon();
  const schedules = daemon.client(ScheduleService);
  const race = async (changes: Partial<Job>) => {
    const writes = Array.from({ length: 10 }, (_, index) =>
      schedules.upsertSchedule(
        job("one", { ...changes, comment: `${index} after ${changes.revision ?? "none"}` }),
      ),
    );
    const ends = await Promise.allSettled(writes);
    const done = ends.filter((end) => end.status === "fulfilled").map(({ value }) => value);
    t.is(done.length, 1);
    t.deepEqual(await schedules.getSchedule({ id: "one" }), done[0]);
    return done[0]?.revision ?? "";
  };
  await race({ revision: await race({ createOnly: true }) });
});

test("the manager of a job decides who may write it", async (t) => {
  const daemon = await emptyDaemon();
  const schedules = daemon.client(ScheduleService);
  await schedules.upsertSchedule(job("ours"));
  await schedules.replaceManagedSchedules({ managedBy: "platform", schedules: [job("theirs")] });
  const owned = { code: "FailedPrecondition", reason: "job_owned" };
  for (const [id, managedBy, expected] of [
    ["ours", "", undefined],
    ["ours", "platform", { ...owned, payload: { case: "jobOwned", value: { ids: ["ours"] } } }],
    ["theirs", "platform", undefined],
    [
      "theirs",
      "",
      { ...owned, payload: { case: "jobOwned", value: { ids: ["theirs"], managedBy: "platform" } } },
    ],
    ["theirs", "other", owned],
    [
      "new",
      "platform",
      {
        code: "NotFound",
        reason: "not_found",
        message: 'no job "new" managed by "platform"; omit managed_by to create an unmanaged one',
      },
    ],
  ] as const) {
    const writing = schedules.upsertSchedule(job(id, { managedBy, comment: `by ${managedBy}` }));
    if (expected === undefined) t.is((await writing).managedBy ?? "", managedBy);
    else t.like(await errorOf(writing), expected, `${id} by ${managedBy}`);
  }
  t.deepEqual(await idsOf(schedules), ["ours", "theirs"]);
  await schedules.removeSchedule({ id: "theirs" });
  t.deepEqual(await idsOf(schedules), ["ours"], "the operator may remove any job");
});

test("values of headers are written and never returned", async (t) => {
  const daemon = await emptyDaemon();
  const schedules = daemon.client(ScheduleService, "rest");
  const canary = "c4n4ry-of-a-header";
  const action = { ...http, headers: { Authorization: canary, "X-Plain": canary } };
  const made = await schedules.upsertSchedule(job("a", { action }));
  t.deepEqual(made.action?.headers, { Authorization: "***", "X-Plain": "***" });
  // The read job is written back with a change.
  await schedules.upsertSchedule({
    ...job("a", { comment: "again" }),
    ...(made.action && { action: made.action }),
  });
  for (const path of ["/v1/schedules", "/v1/schedules/a", "/v1/schedules/a/runs", "/v1/audit"]) {
    const { text } = await sendRest({ socketPath: daemon.socketPath }, "GET", path);
    t.false(text.includes(canary), path);
  }
  t.false(daemon.log().includes(canary));
  const bad = { ...http, headers: { Authorization: `${canary}\n` } };
  const { message } = await errorOf(schedules.upsertSchedule(job("b", { action: bad })));
  t.false(message.includes(canary), "not even in an error");
  t.like(await errorOf(schedules.upsertSchedule(job("b", { action: { ...http, headers: { A: "***" } } }))), {
    message: 'action.headers["A"] is ***, but no value is stored; set the value',
  });
  const moved = { ...http, url: "http://elsewhere.example.org/", headers: { Authorization: "***" } };
  const refused = await errorOf(schedules.upsertSchedule(job("a", { action: moved })));
  t.is(refused.code, "InvalidArgument");
  t.regex(
    refused.message,
    /^action\.headers\["Authorization"\] is \*\*\*, but the stored value is for http:/,
  );
});

test("a list is paged by owner and ID", async (t) => {
  const daemon = await emptyDaemon();
  const schedules = daemon.client(ScheduleService, "rest");
  const ids = Array.from({ length: 25 }, (_, index) => `job-${String(index).padStart(2, "0")}`);
  await schedules.replaceManagedSchedules({ managedBy: "platform", schedules: ids.map((id) => job(id)) });
  for (const id of ["a", "z"]) await schedules.upsertSchedule(job(id));
  const pagesOf = async (managedBy?: string): Promise<string[][]> => {
    const pages: string[][] = [];
    let pageToken = "";
    do {
      const page = await schedules.listSchedules({
        limit: 10,
        pageToken,
        ...(managedBy !== undefined && { managedBy }),
      });
      pages.push(page.schedules.map(({ id }) => id));
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
    return pages;
  };
  const all = await pagesOf();
  t.deepEqual(
    all.map(({ length }) => length),
    [10, 10, 7],
  );
  t.deepEqual(all.flat(), ["a", ...ids, "z"]);
  t.deepEqual(await pagesOf("platform"), [ids.slice(0, 10), ids.slice(10, 20), ids.slice(20)]);
  t.deepEqual(await pagesOf("nobody"), [[]]);
  for (const pageToken of ["x", "bm9uZQ", "MC8"]) {
    t.like(await errorOf(schedules.listSchedules({ pageToken })), {
      message: "page_token is not a next_page_token of an earlier response",
    });
  }
});

rootTest(`users have their own jobs on their own apps, and see no others${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  await using connection = await daemon.as(nobody);
  await using otherConnection = await daemon.as(games);
  const port = await freePort();
  const spec = join(daemon.dir, "web");
  await writePackage(spec, port);
  await connection.client(AppService).installApp({ spec, name: "nobodys" });
  await daemon.client(AppService).installApp({ spec, name: "roots" });
  const apps = (await daemon.client(AppService).listApps({})).apps;
  const [own, roots] = [nobody, 0].map((uid) => apps.find(({ owner }) => owner === uid)?.id ?? "");

  for (const each of protocols) {
    const [root, user, other] = [daemon, connection, otherConnection].map((one) =>
      one.client(ScheduleService, each),
    );
    if (root === undefined || user === undefined || other === undefined) return t.fail();
    await root.upsertSchedule(job("same", { comment: "root's" }));
    const made = await user.upsertSchedule(job("same", { action: { type: "app_start", app: own ?? "" } }));
    t.like(made, { owner: nobody, ownerName: "nobody", comment: "" });
    t.like(await root.getSchedule({ id: "same" }), { comment: "root's", owner: 0 });
    t.like(await root.getSchedule({ id: "same", owner: nobody }), { owner: nobody });
    t.deepEqual((await user.listSchedules({})).schedules, [made]);
    t.deepEqual((await other.listSchedules({})).schedules, []);
    t.deepEqual(
      (await root.listSchedules({})).schedules.map(({ owner, id }) => `${owner} ${id}`),
      ["0 same", `${nobody} same`],
    );

    const absent = { code: "NotFound", message: 'no job "same"' };
    const name = { id: "same" };
    for (const call of [
      other.getSchedule(name),
      other.removeSchedule(name),
      other.runSchedule(name),
      other.cancelScheduleRun(name),
      other.listScheduleRuns(name),
    ]) {
      t.like(await errorOf(call), absent);
    }
    const denied = { code: "PermissionDenied", reason: "root_required" };
    t.like(await errorOf(other.getSchedule({ id: "same", owner: nobody })), denied);
    t.like(await errorOf(user.upsertSchedule({ ...job("x"), owner: 0 })), denied);
    t.like(await errorOf(user.replaceManagedSchedules({ managedBy: "platform", schedules: [] })), denied);
    t.is(
      (await user.getSchedule({ id: "same", owner: nobody })).owner,
      nobody,
      "they may name their own uid",
    );

    for (const [field, action] of [
      ["action.type", { type: "node_reboot" }],
      ["action.type", http],
      ["action.app", shell],
      ["action.app", { ...shell, app: roots ?? "" }],
      ["action.app", { type: "app_stop", app: roots ?? "" }],
      ["action.app", { type: "app_stop", app: "none" }],
    ] as const satisfies readonly (readonly [string, Action])[]) {
      for (const writing of [
        user.upsertSchedule(job("x", { action })),
        root.upsertSchedule({ ...job("x", { action }), owner: nobody }),
      ]) {
        const { payload } = await errorOf(writing);
        t.deepEqual(
          payload.case === "invalidRequest" && payload.value.violations.map((one) => one.field),
          [field],
          JSON.stringify(action),
        );
      }
    }
    const foreign = await errorOf(
      user.upsertSchedule(job("x", { action: { type: "app_stop", app: roots ?? "" } })),
    );
    t.is(foreign.message, `action.app: no app "${roots ?? ""}"`, "as for a missing one");
    const unknown = await errorOf(root.upsertSchedule({ ...job("x"), owner: 4_000_000_000 }));
    t.regex(unknown.message, /owner: 4000000000 is not a user of this host/);
    t.is(
      (
        await root.upsertSchedule({
          ...job("by-root", { action: { type: "app_stop", app: own ?? "" } }),
          owner: nobody,
        })
      ).owner,
      nobody,
    );
    t.deepEqual(await idsOf(user), ["by-root", "same"]);

    await root.replaceManagedSchedules({ managedBy: "platform", schedules: [job("by-root")] });
    t.deepEqual(await idsOf(user), ["by-root", "same"], "a push never affects a user's jobs");
    await root.replaceManagedSchedules({ managedBy: "platform", schedules: [] });
    for (const id of ["by-root", "same"]) await root.removeSchedule({ id, owner: nobody });
    await root.removeSchedule({ id: "same" });
    t.deepEqual(await idsOf(root), []);
  }
});

rootTest(
  `a job created through sudo is root's, because it runs with root's rights${needsRoot}`,
  async (t) => {
    const daemon = await emptyDaemon();
    const headers = { "X-Svc-Sudo-Uid": String(nobody), "X-Svc-Sudo-User": "nobody" };
    const made = await daemon.client(ScheduleService).upsertSchedule(job("a"), { headers });
    t.is(made.owner, 0);
  },
);

rootTest(`the daemon's own files are readable only for their owner${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  const action = { ...http, headers: { Authorization: "secret" } };
  await daemon.client(ScheduleService).upsertSchedule(job("a", { action }));
  const files = (await readdir(daemon.storeDir)).filter((name) => name.startsWith("svc.db"));
  t.true(files.includes("svc.db"));
  for (const name of files) t.is((await stat(join(daemon.storeDir, name))).mode & 0o777, 0o600, name);
});

for (const streamed of ["connect", "grpc", "grpc-web"] as const) {
  test(`a run in the foreground streams its output over ${streamed}`, async (t) => {
    const daemon = await emptyDaemon();
    const schedules = daemon.client(ScheduleService, streamed);
    const command = "echo one; sleep 0.3; echo two >&2; exit 3";
    await schedules.upsertSchedule(job("a", { action: { type: "shell", command } }));
    const events = await Array.fromAsync(schedules.runScheduleStream({ id: "a" }));
    const [first, last] = [events[0], events.at(-1)];
    t.like(first, { started: true, event: { case: "run", value: { status: "RUNNING" } } });
    t.like(last?.event.value, { status: "FAILED", exitCode: 3, output: "one\ntwo\n" });
    const output = events.map(({ event }) =>
      event.case === "output" ? Buffer.from(event.value).toString() : "",
    );
    t.is(output.join(""), "one\ntwo\n");
    t.like(await errorOf(schedules.runScheduleStream({ id: "none" })), { code: "NotFound" });
  });

  test(`a client that disconnects cancels only the run that it started, over ${streamed}`, async (t) => {
    const daemon = await emptyDaemon();
    const schedules = daemon.client(ScheduleService, streamed);
    await schedules.upsertSchedule(job("a", { action: { type: "shell", command: "echo up; sleep 600" } }));
    const statusOf = async (): Promise<string> =>
      (await schedules.listScheduleRuns({ id: "a" })).runs[0]?.status ?? "none";
    const start = new AbortController();
    const starting = schedules.runScheduleStream({ id: "a" }, { signal: start.signal });
    const starter = starting[Symbol.asyncIterator]();
    t.like((await starter.next()).value, { started: true });
    t.like((await starter.next()).value, { event: { case: "output" } });

    const watch = new AbortController();
    const watching = schedules.runScheduleStream({ id: "a" }, { signal: watch.signal });
    const watcher = watching[Symbol.asyncIterator]();
    t.like((await watcher.next()).value, { started: false, event: { value: { status: "RUNNING" } } });
    watch.abort();
    await t.throwsAsync(async () => watcher.next());
    t.is(await statusOf(), "RUNNING");

    start.abort();
    await t.throwsAsync(async () => starter.next());
    await eventually(async () => {
      if ((await statusOf()) !== "CANCELED") throw new Error(`it is ${await statusOf()}`);
    });
    t.pass();
  });

  test(`runs are followed as they start and end over ${streamed}`, async (t) => {
    const daemon = await emptyDaemon();
    const schedules = daemon.client(ScheduleService, streamed);
    for (const id of ["a", "b"])
      await schedules.upsertSchedule(job(id, { action: { type: "shell", command: `echo ${id}` } }));
    const stop = new AbortController();
    const all: string[] = [];
    const ofA: string[] = [];
    const follow = async (name: { id?: string }, into: string[]): Promise<void> => {
      for await (const run of schedules.followScheduleRuns(name, { signal: stop.signal })) {
        into.push(`${run.jobId} ${run.status} ${run.output.trim()}`);
      }
    };
    const following = [follow({}, all), follow({ id: "a" }, ofA)].map((one) => one.catch(() => undefined));
    await eventually(async () => {
      for (const id of ["b", "a"]) await schedules.runSchedule({ id });
      const isSeen = ["a SUCCEEDED a", "b SUCCEEDED b"].every((line) => all.includes(line));
      // The first runs may start before anyone follows them.
      const isStartSeen = all.some((line) => line.startsWith("b RUNNING"));
      if (!isSeen || !isStartSeen || !ofA.includes("a SUCCEEDED a")) throw new Error("not yet");
    });
    stop.abort();
    await Promise.all(following);
    t.true(ofA.every((line) => line.startsWith("a ")));
    t.like(await errorOf(schedules.followScheduleRuns({ id: "none" })), { code: "NotFound" });
  });
}

test("a job on 29 February shows its next date, and no next run", async (t) => {
  const daemon = await emptyDaemon();
  const schedules = daemon.client(ScheduleService, protocol);
  const action = { type: "shell", command: "true" };
  const rare = await schedules.upsertSchedule({ id: "rare", trigger: "0 3 29 2 *", utc: true, action });
  t.is(rare.nextRunUnix === undefined, rare.laterRunUnix !== undefined, "one of the two");
  const { firings } = await schedules.previewSchedule({ trigger: "0 3 29 2 *", utc: true, count: 3 });
  t.is(firings.length, 3);
  t.true(firings.every(({ localTime }) => localTime.endsWith("-02-29T03:00:00+00:00")));
  t.is(rare.nextRunUnix ?? rare.laterRunUnix, firings[0]?.unix);
  const off = await schedules.upsertSchedule({
    ...{ id: "rare", trigger: "0 3 29 2 *" },
    enabled: false,
    action,
  });
  t.is(off.laterRunUnix, undefined);
});

test("a trigger without any date is rejected", async (t) => {
  const daemon = await emptyDaemon();
  const schedules = daemon.client(ScheduleService, protocol);
  const action = { type: "shell", command: "true" };
  const trigger = "0 3 30,31 2 *";
  const calls = [
    () => schedules.upsertSchedule({ id: "never", trigger, action }),
    () =>
      schedules.replaceManagedSchedules({ managedBy: "test", schedules: [{ id: "never", trigger, action }] }),
    () => schedules.previewSchedule({ trigger }),
  ];
  for (const call of calls) {
    t.like(await errorOf(call()), {
      code: "InvalidArgument",
      reason: "invalid_request",
    });
    t.true(
      (await errorOf(call())).message.endsWith(`trigger: "${trigger}" never fires: there is no 30 February`),
    );
  }
});

test("a trigger is previewed without a job", async (t) => {
  const daemon = await emptyDaemon();
  const schedules = daemon.client(ScheduleService, protocol);
  const afterUnix = BigInt(Date.UTC(2026, 2, 28) / 1000);
  const preview = await schedules.previewSchedule({
    trigger: "02:30",
    timeZone: "Europe/Berlin",
    count: 3,
    afterUnix,
  });
  t.is(preview.timeZone, "Europe/Berlin");
  t.deepEqual(
    preview.firings.map(({ localTime, anomaly }) => [localTime, anomaly]),
    [
      ["2026-03-28T02:30:00+01:00", "none"],
      ["2026-03-29T03:00:00+02:00", "gap"],
      ["2026-03-30T02:30:00+02:00", "none"],
    ],
  );
  t.is(preview.firings[1]?.unix, BigInt(Date.UTC(2026, 2, 29, 1) / 1000));
  t.is((await schedules.previewSchedule({ trigger: "hourly", utc: true })).firings.length, 5);
  t.deepEqual((await schedules.previewSchedule({ trigger: "on:app.crashed" })).firings, []);
  const { reason, message } = await errorOf(
    schedules.previewSchedule({ trigger: "x", utc: true, timeZone: "UTC" }),
  );
  t.is(reason, "invalid_request");
  t.regex(message, /^trigger: .*; time_zone must be omitted if utc is true$/);
});

test("the daemon reports the schedule capability", async (t) => {
  const daemon = await emptyDaemon();
  const { capabilities } = await daemon.client(DaemonService).getStatus({});
  t.true(capabilities.includes("schedules"));
});

test("empty texts of an action, which generated clients send, count as absent", async (t) => {
  const daemon = await emptyDaemon();
  const action = { type: "shell", command: "true", url: "", method: "", app: "" };
  const body = JSON.stringify({ trigger: "hourly", action });
  const sent = await sendRest({ socketPath: daemon.socketPath }, "PUT", "/v1/schedules/generated", body);
  t.is(sent.status, 200, sent.text);
  t.deepEqual(await idsOf(daemon.client(ScheduleService, protocol)), ["generated"]);
});
