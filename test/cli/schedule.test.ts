/** `svc schedule` with in-memory jobs: requests, output and exit codes. */
import test from "ava";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { exitCodeOfRun } from "../../src/cli/commands/schedule/run.ts";
import { commandName, idsLike, jobName } from "../../src/cli/commands/schedule/job-names.ts";
import { parseFields } from "../../src/cli/commands/schedule/edit-in-editor.ts";
import { create } from "@bufbuild/protobuf";
import type { Command } from "commander";
import { AppBackupsSchema } from "../../gen/svc/v1/app_pb.ts";
import type { Schedule } from "../../gen/svc/v1/schedule_pb.ts";
import type { GlobalOptions } from "../../src/cli/context.ts";
import type { CliHost } from "../../src/cli/host.ts";
import { InProcessClient } from "../../src/cli/client/in-process-client.ts";
import { createProgram, globalOptions } from "../../src/cli/program.ts";
import type { RunCommand } from "../../src/cli/run-command.ts";
import { createPaint } from "../../src/cli/output/color.ts";
import { formatTook, inLocalTime, inUtc, relativeTo } from "../../src/cli/output/instant.ts";
import { actionText, jobColumns, nextRunSentence, nextRunText } from "../../src/cli/output/schedule-table.ts";
import { renderTable } from "../../src/cli/output/table.ts";
import { checkRun, type CommandCase } from "./support/command-case.ts";
import { appOf, createFakePipeline, localUser, startFakeDaemon } from "./support/fake-daemon.ts";
import { jobOf, runOf, type FakeRun, type FakeSchedules, type JobFields } from "./support/fake-schedules.ts";
import { runSvc, type SvcOptions } from "./support/run-svc.ts";

const nowMs = Date.parse("2026-01-02T00:00:00Z");

function schedules(runs: Record<string, FakeRun> = {}): FakeSchedules {
  const jobs = [
    jobOf({ id: "echo" }),
    jobOf({ id: "off", enabled: false, comment: "later \x1b[2J" }),
    jobOf({
      id: "push",
      managedBy: "platform",
      trigger: "daily@03:00",
      action: { type: "http", url: "https://example.org/", headers: { "X-Key": "***", Accept: "***" } },
    }),
    jobOf({ id: "other", owner: 33, ownerName: "www", timeZone: "Europe/Berlin" }),
  ];
  jobs.push(jobOf({ id: "universal", utc: true }));
  jobs.push(jobOf({ id: "saves", action: { type: "backup", app: "a", keep: 9 } }));
  for (const id of ["fails", "slow", "busy", "hangs", "odd"]) jobs.push(jobOf({ id }));
  return { jobs, runs, upserts: [] };
}

async function svc(args: readonly string[], jobs = schedules(), options: SvcOptions = {}) {
  await using daemon = await startFakeDaemon([], jobs);
  return await runSvc(["schedule", ...args, "--socket", daemon.socketPath], options);
}

const cases: CommandCase[] = [
  {
    args: ["list"],
    stdout:
      /^ID +TRIGGER +ACTION +NEXT RUN +LAST RUN +OWNER +MANAGED BY\necho +\*\/5 \* \* \* \* +run "echo hi" +in 4m +ada\noff [^\n]* disabled [^]*push +daily@03:00 +GET https:\/\/example\.org\/ [^\n]*platform\nother +\*\/5 \* \* \* \* Europe\/Berlin [^\n]*www\n/,
  },
  { args: ["ls", "--managed-by", "platform"], stdout: /^ID[^\n]*\npush[^\n]*\n$/ },
  { args: ["ls", "--managed-by", "nobody"], stdout: /^$/, stderr: /^No job matches/ },
  { args: ["list", "--utc"], stdout: /2026-01-02 00:04:00Z/ },
  { args: ["show", "push"], stdout: /Action: +GET https[^]*Header: +X-Key: \*\*\*[^]*Managed by: +platform/ },
  { args: ["show", "off", "--utc"], stdout: /Comment: +later \\x1b\[2J/ },
  { args: ["show", "echo", "--utc"], stdout: /Next run: +2026-01-02 00:04:00Z \(in 4m\)[^]*Timeout: +10m/ },
  {
    args: ["show", "nope"],
    exitCode: 3,
    stderr: /^svc: no job "nope"; see the jobs with: svc schedule list\n$/,
  },
  { args: ["show", "other", "--owner", "33"], stdout: /Trigger: +\*\/5 \* \* \* \* Europe\/Berlin/ },
  { args: ["show", "other", "--owner", "www"], stdout: /Trigger: +\*\/5 \* \* \* \* Europe\/Berlin/ },
  {
    args: ["show", "other", "--owner", "ada"],
    exitCode: 2,
    stderr: /^svc: user "ada" does not exist on the daemon's host; use a name or a number of that host\n/,
  },
  { args: ["show", "other", "--owner", "4294967295"], exitCode: 2, stderr: /must be a user id/ },
  {
    args: ["add", "*/5 * * * *", "shell", "--command", "date"],
    stdout: /^Added date\. Next run in 4m, at 2026-01-02 0\d:04:00 [+-]\d\d:\d\d\n$/,
  },
  { args: ["add", "hourly", "shell", "--command", "echo ho"], stdout: /^Added echo-2\./ },
  {
    args: ["add", "hourly", "node_reboot", "--disabled"],
    stdout: /^Added reboot\. .*svc schedule enable reboot/,
  },
  { args: ["add", "hourly", "shell"], exitCode: 2, stderr: /^svc: shell needs --command 'echo hi'\n$/ },
  { args: ["add", "hourly", "backup"], exitCode: 2, stderr: /backup needs --app/ },
  {
    args: ["add", "hourly", "shell", "--command", "x", "--url", "http://x"],
    exitCode: 2,
    stderr: /--url is for http, not for shell/,
  },
  {
    args: ["add", "hourly", "dance"],
    exitCode: 2,
    stderr: /^svc: unknown action "dance"; choose one of: node_reboot,/,
  },
  { args: ["add", "61 * * * *", "node_reboot"], exitCode: 2, stderr: /minute "61" must be 0 to 59/ },
  { args: ["add", "hourly", "node_reboot", "--timeout", "2h"], exitCode: 2, stderr: /such as 90s or 10m/ },
  { args: ["add", "hourly", "node_reboot", "--timeout", "0"], exitCode: 2, stderr: /from 1 to 3600 seconds/ },
  { args: ["add", "hourly", "node_reboot", "--retries", "11"], exitCode: 2, stderr: /must be 0 to 10/ },
  { args: ["add", "hourly", "node_reboot", "--catch-up", "all"], exitCode: 2, stderr: /none, latest/ },
  {
    args: ["add", "hourly", "node_reboot", "--utc", "--time-zone", "Asia/Kolkata"],
    exitCode: 2,
    stderr: /either --utc or --time-zone/,
  },
  {
    args: ["add", "hourly", "http", "--url", "http://x", "--header", "nope"],
    exitCode: 2,
    stderr: /'Name: value'/,
  },
  {
    args: ["add", "hourly", "node_reboot", "--id", "echo"],
    exitCode: 5,
    stderr: /job "echo" already exists; change it with: svc schedule edit echo; or replace it with --replace/,
  },
  { args: ["add", "hourly", "node_reboot", "--id", "echo", "--replace"], stdout: /^Replaced echo\./ },
  { args: ["add", "hourly", "node_reboot", "--id", "new", "--replace"], stdout: /^Added new\./ },
  {
    args: ["add", "every 5m", "node_reboot", "--id", "forbidden"],
    exitCode: 2,
    stderr:
      /^svc: action: node_reboot is for root's jobs; run it as root: sudo svc schedule add 'every 5m' node_reboot --id forbidden --socket \S+\n$/,
  },
  {
    args: ["add", "every 5m", "shell", "--command", "echo hi", "--id", "appless"],
    exitCode: 2,
    stderr:
      /is required; name one of your apps \(see: svc ls\): svc schedule add 'every 5m' shell --command 'echo hi' --id appless --socket \S+ --app ID; or run it with sudo\n$/,
  },
  { args: ["edit", "echo", "--trigger", "hourly"], stdout: /^Changed echo\. Next run/ },
  { args: ["edit", "echo"], exitCode: 2, stderr: /pass a change/ },
  { args: ["edit", "echo", "--url", "http://x"], exitCode: 2, stderr: /--url is for http/ },
  {
    args: ["edit", "push", "--comment", "mine"],
    stdout: /^Changed push/,
    stderr: /^warning: push is managed by "platform": its next sync overwrites/,
  },
  { args: ["enable", "off"], stdout: /^Enabled off\. Next run/ },
  { args: ["disable", "echo", "off"], stdout: /^Disabled echo\nDisabled off\n$/ },
  { args: ["disable", "push"], stdout: /^Disabled push\n$/, stderr: /managed by "platform"/ },
  {
    args: ["disable", "nope", "echo"],
    exitCode: 3,
    stdout: /^Disabled echo\n$/,
    stderr: /^svc: no job "nope"; see the jobs with: svc schedule list\n$/,
  },
  { args: ["remove", "echo"], exitCode: 2, stderr: /; pass --yes to confirm/ },
  { args: ["remove", "ecoh"], exitCode: 3, stderr: /no job "ecoh"/ },
  { args: ["rm", "echo", "off", "--yes"], stdout: /^Removed echo\nRemoved off\n$/ },
  { args: ["rm", "push", "-y"], stdout: /^Removed push\n$/, stderr: /managed by "platform"/ },
  { args: ["run", "echo"], stdout: /^hi\n$/, stderr: /^Run 7 succeeded: exit 0, took 1\.5s\n$/ },
  {
    args: ["run", "echo", "--detach"],
    stdout: /^Started run 7 of echo\. Follow it: svc schedule run echo\n$/,
  },
  { args: ["run", "nope"], exitCode: 3, stderr: /svc schedule list/ },
  { args: ["cancel", "echo"], stdout: /^Run 7 of echo is CANCELED\n$/ },
  {
    args: ["runs", "echo"],
    stdout:
      /^RUN +STATUS +TRIGGER +STARTED +TOOK +RESULT +ERROR\n +9 +FAILED +manual +1m ago +1\.5s +exit 3 +exit code 3\n +8 +SUCCEEDED +schedule, attempt 2 /,
  },
  { args: ["runs", "echo", "-n", "1"], stdout: /^RUN[^\n]*\n[^\n]*\n$/ },
  { args: ["runs", "echo", "-n", "51"], exitCode: 2, stderr: /must be 1 to 50/ },
  { args: ["runs", "echo", "--output"], stdout: /^hi\n$/, stderr: /^exit code 3\nmore\n$/ },
  { args: ["runs", "echo", "-o", "8"], stdout: /^eight \x1b\[2J\n$/ },
  { args: ["runs", "echo", "-o", "1"], exitCode: 3, stderr: /run 1 of echo does not exist any more/ },
  { args: ["runs"], exitCode: 2, stderr: /name a job/ },
  { args: ["runs", "--follow", "-o"], exitCode: 2, stderr: /cannot be combined with/ },
  {
    args: ["runs", "--follow", "--utc"],
    stdout:
      /^2026-01-01 23:59:00Z {2}echo {2}run 7 {2}RUNNING +exit 0\n2026-01-01 23:59:01Z {2}echo {2}run 7 {2}SUCCEEDED +took 1\.5s, exit 0\n$/,
  },
  {
    args: ["next", "*/5 * * * *"],
    stdout: /^TIME +FROM NOW +CLOCK CHANGE\n2026-01-02T01:01:00\+01:00 +in 1m +the clock skips[^\n]*\n/,
    stderr: /read in Europe\/Berlin/,
  },
  {
    args: ["next", "0 0 29 2 */6"],
    stdout: /^$/,
    stderr: /^"0 0 29 2 \*\/6" does not fire within nine years\.\n$/,
  },
  {
    args: ["next", "on:app.crashed"],
    stderr: /^"on:app.crashed" fires on the event, not at fixed times\.\n$/,
  },
  { args: ["next", "hourly", "--count", "101"], exitCode: 2, stderr: /must be 1 to 100/ },
  {
    args: ["--help"],
    stdout:
      /Triggers:\n {2}hourly, daily@HH:MM[^]*@daily[^]*"every 15m"[^]*"mon 03:00"[^]*svc schedule add '\*\/5/,
  },
];

for (const expected of cases) {
  const { args } = expected;
  test(`svc schedule ${args.join(" ")}`, async (t) => {
    const run = args[0] === "--help" ? await runSvc(["schedule", "--help"]) : await svc(args);
    checkRun(t, run, expected);
  });
}

test("root gets no advice about its own apps", async (t) => {
  const { stderr } = await svc(["add", "hourly", "node_reboot", "--id", "appless"], schedules(), {
    host: { uid: 0 },
  });
  t.notRegex(stderr, /--app/);
});

test("without jobs, list suggests how to add one", async (t) => {
  const { stdout, stderr } = await svc(["list"], { jobs: [], runs: {}, upserts: [] });
  t.is(stdout, "");
  t.regex(stderr, /Add one: svc schedule add/);
});

interface SentCase {
  args: string[];
  sent: JobFields | Record<string, unknown>;
}

const httpJob = ["add", "hourly", "http", "--id", "j", "--url", "http://x.org/"];
const rebootJob = ["add", "hourly", "node_reboot", "--id", "j"];
const sentCases: SentCase[] = [
  {
    args: rebootJob,
    sent: { id: "j", trigger: "hourly", enabled: true, utc: false, timeZone: "", managedBy: undefined },
  },
  { args: [...rebootJob, "--disabled"], sent: { enabled: false } },
  { args: [...rebootJob, "--timeout", "90s"], sent: { timeout: 90 } },
  { args: [...rebootJob, "--timeout", "1h"], sent: { timeout: 3600 } },
  { args: [...rebootJob, "--jitter", "1m30s"], sent: { jitterSecs: 90 } },
  { args: [...rebootJob, "--jitter", "45"], sent: { jitterSecs: 45 } },
  { args: [...rebootJob, "--retries", "3", "--catch-up"], sent: { retries: 3, catchUp: "latest" } },
  { args: [...rebootJob, "--catch-up", "none"], sent: { catchUp: "none" } },
  { args: [...rebootJob, "--utc", "--comment", "x"], sent: { utc: true, comment: "x" } },
  { args: [...rebootJob, "--time-zone", "Asia/Kolkata"], sent: { timeZone: "Asia/Kolkata" } },
  { args: [...rebootJob, "--owner", "33"], sent: { owner: 33 } },
  { args: [...rebootJob, "--owner", "www"], sent: { owner: 33 } },
  {
    args: [...httpJob, "--method", "POST", "--header", "A: b: c", "--header", "x-y:z", "--body", "{}"],
    sent: {
      action: {
        type: "http",
        url: "http://x.org/",
        method: "POST",
        headers: { A: "b: c", "x-y": "z" },
        body: "{}",
      },
    },
  },
  {
    args: ["add", "hourly", "backup", "--app", "a", "--storage", "s", "--storage", "t", "--keep", "2"],
    sent: { id: "a-backup", keep: 2, action: { type: "backup", app: "a", storages: ["s", "t"] } },
  },
  {
    args: ["add", "hourly", "shell", "--command", "date", "--keep-children"],
    sent: { action: { type: "shell", command: "date", keepChildren: true } },
  },
  { args: ["edit", "echo", "--no-keep-children"], sent: { action: { keepChildren: false } } },
  {
    args: ["edit", "echo", "--app", "a"],
    sent: { id: "echo", trigger: "*/5 * * * *", timeout: 600, action: { app: "a", command: "echo hi" } },
  },
  { args: ["edit", "other", "--owner", "33", "--utc"], sent: { owner: 33, utc: true, timeZone: "" } },
  { args: ["edit", "other", "--owner", "33", "--time-zone", ""], sent: { utc: false, timeZone: "" } },
  { args: ["edit", "universal", "--time-zone", ""], sent: { utc: false, timeZone: "" } },
  { args: ["edit", "universal", "--time-zone", "", "--utc"], sent: { utc: true, timeZone: "" } },
  {
    args: ["edit", "push", "--header", "accept: */*"],
    sent: { managedBy: "platform", action: { headers: { "X-Key": "***", accept: "*/*" } } },
  },
  { args: ["edit", "saves", "--keep", "3"], sent: { keep: 3, action: { keep: undefined, app: "a" } } },
  { args: ["edit", "saves", "--comment", "x"], sent: { action: { keep: 9 } } },
  {
    args: ["disable", "push"],
    sent: { id: "push", enabled: false, managedBy: "platform", trigger: "daily@03:00" },
  },
  {
    args: ["add", "hourly", "node_reboot", "--id", "push", "--replace"],
    sent: { managedBy: "platform", action: { type: "node_reboot" } },
  },
];

for (const { args, sent } of sentCases) {
  test(`sent by: svc schedule ${args.join(" ")}`, async (t) => {
    const jobs = schedules();
    const run = await svc(args, jobs);
    t.is(run.exitCode, 0, run.stderr);
    t.like(jobs.upserts[0], sent as object);
  });
}

/** Jobs among which another user creates those of `ids`, one before each write. */
function takenMeanwhile(...ids: string[]): FakeSchedules {
  const meanwhile = ids.map((id) => (jobs: Schedule[]) => void jobs.push(jobOf({ id, comment: "theirs" })));
  return { ...schedules(), meanwhile };
}

test("add uses the next ID when another user takes the free one", async (t) => {
  const jobs = takenMeanwhile("date", "date-2");
  const run = await svc(["add", "hourly", "shell", "--command", "date"], jobs);
  t.regex(run.stdout, /^Added date-3\./, run.stderr);
  t.like(jobs.upserts, { 0: { id: "date-3", createOnly: true, revision: "" }, length: 1 });
});

test("add fails when other users take every ID", async (t) => {
  const ids = Array.from({ length: 60 }, (_, index) => (index === 0 ? "date" : `date-${index + 1}`));
  const jobs = takenMeanwhile(...ids);
  const run = await svc(["add", "hourly", "shell", "--command", "date"], jobs);
  t.deepEqual([run.exitCode, jobs.upserts.length], [5, 0]);
  t.regex(run.stderr, /there is a job "date-50" already/);
});

test("add --id does not overwrite a job that another user has just created", async (t) => {
  const jobs = takenMeanwhile("date");
  const run = await svc(["add", "hourly", "shell", "--command", "date", "--id", "date"], jobs);
  t.deepEqual([run.exitCode, jobs.upserts.length], [5, 0]);
  t.regex(run.stderr, /job "date" already exists; change it with: svc schedule edit date/);
});

/** Jobs among which another user changes `echo` before each of the first `times` writes. */
function changedMeanwhile(times: number): FakeSchedules {
  const change = (jobs: Schedule[]) => {
    const echo = jobs.find(({ id }) => id === "echo");
    if (echo === undefined) throw new Error("echo is gone");
    Object.assign(echo, { comment: "theirs", revision: `${echo.revision}1` });
  };
  return { ...schedules(), meanwhile: Array.from({ length: times }, () => change) };
}

for (const [args, sent] of [
  [["edit", "echo", "--trigger", "hourly"], { trigger: "hourly", comment: "theirs", enabled: true }],
  [["edit", "echo", "--timeout", "90s"], { timeout: 90, comment: "theirs" }],
  [["disable", "echo"], { enabled: false, comment: "theirs" }],
] as const) {
  test(`concurrent changes are kept: svc schedule ${args.join(" ")}`, async (t) => {
    const jobs = changedMeanwhile(2);
    const run = await svc(args, jobs);
    t.is(run.exitCode, 0, run.stderr);
    t.like(jobs.upserts, { 0: { ...sent, revision: "111" }, length: 1 });
  });
}

test("a change fails when others keep changing the job", async (t) => {
  const jobs = changedMeanwhile(60);
  const run = await svc(["disable", "echo"], jobs);
  t.deepEqual([run.exitCode, jobs.upserts.length], [5, 0]);
  t.regex(run.stderr, /^svc: job "echo" was changed since it was read\n$/);
  t.is(jobs.meanwhile?.length, 10);
});

test("--timeout after the command is the job's; before the command it is the call's deadline", async (t) => {
  const seen: GlobalOptions[] = [];
  const run: RunCommand =
    () =>
    (...args) => {
      seen.push(globalOptions(args.at(-1) as Command));
      return Promise.resolve();
    };
  const host = { args: ["schedule"], version: "1.2.3" } as unknown as CliHost;
  const parse = async (...args: string[]) => {
    const program = await createProgram(host, run, () => Promise.resolve());
    return program.parseAsync(args, { from: "user" });
  };
  await parse("schedule", ...rebootJob, "--timeout", "9");
  await parse("schedule", "--timeout", "60", ...rebootJob, "--timeout", "9", "--json");
  t.deepEqual(seen, [{ color: true }, { color: true, timeout: 60, json: true }]);
});

test("a removed header is not sent", async (t) => {
  const jobs = schedules();
  await svc(["edit", "push", "--header", "X-KEY:"], jobs);
  t.deepEqual(jobs.upserts[0]?.action?.headers, { Accept: "***" });
});

test("the output of a run already in progress is printed once, at its end", async (t) => {
  const { stdout } = await svc(
    ["run", "odd"],
    schedules({ odd: { found: true, end: { output: "theirs\n" } } }),
  );
  t.is(stdout, "theirs\n");
});

for (const args of [
  ["list"],
  ["show", "echo"],
  ["runs", "echo"],
  ["next", "hourly"],
  ["enable", "off"],
  ["cancel", "echo"],
]) {
  test(`svc schedule ${args.join(" ")} --json prints the API's response`, async (t) => {
    const { stdout, stderr } = await svc([...args, "--json"]);
    t.is(stderr, "");
    t.is(typeof JSON.parse(stdout), "object");
    if (args[0] === "runs")
      t.like(JSON.parse(stdout), { runs: [{ id: "9", started_at: "2026-01-01T23:59:00Z" }] });
    if (args[0] === "list") t.is((JSON.parse(stdout) as { schedules: unknown[] }).schedules.length, 11);
  });
}

test("--json with several names prints one line each: results on stdout, failures on stderr", async (t) => {
  const { stdout, stderr, exitCode } = await svc(["rm", "echo", "nope", "off", "nada", "--yes", "--json"]);
  t.is(exitCode, 3);
  t.is(stdout, '{"id":"echo"}\n{"id":"off"}\n');
  const single = await svc(["rm", "nope", "--yes", "--json"]);
  t.like(JSON.parse(single.stderr), { code: "not_found", reason: "not_found" });
  t.is(stderr, single.stderr + single.stderr.replaceAll("nope", "nada"));
});

test("run --json prints the finished run", async (t) => {
  const { stdout, exitCode } = await svc(
    ["run", "fails", "--json"],
    schedules({ fails: { end: { status: "FAILED", exitCode: 3 } } }),
  );
  t.is(exitCode, 3);
  t.like(JSON.parse(stdout), { job_id: "fails", status: "FAILED", exit_code: 3 });
});

const runCases: { title: string; run: FakeRun; exitCode: number; stderr: RegExp }[] = [
  {
    title: "the command exits with the run's exit code",
    run: { end: { status: "FAILED", exitCode: 42, error: "boom \x1b[2J" } },
    exitCode: 42,
    stderr: /^boom \\x1b\[2J\nRun 7 failed: exit 42, took/,
  },
  {
    title: "an HTTP job fails",
    run: { end: { status: "FAILED", exitCode: undefined, httpStatus: 503 } },
    exitCode: 1,
    stderr: /^Run 7 failed: HTTP 503, took/,
  },
  {
    title: "a job exceeds its timeout",
    run: { end: { status: "TIMED_OUT" } },
    exitCode: 124,
    stderr: /Run 7 timed out/,
  },
  {
    title: "a run is canceled",
    run: { end: { status: "CANCELED" } },
    exitCode: 130,
    stderr: /Run 7 was canceled/,
  },
  {
    title: "a run already in progress is followed",
    run: { found: true },
    exitCode: 0,
    stderr: /^Run 7 is already in progress: waiting for it to finish\.\nRun 7 succeeded/,
  },
];

for (const { title, run, exitCode, stderr } of runCases) {
  test(`run: ${title}`, async (t) => {
    const result = await svc(["run", "odd"], schedules({ odd: run }));
    t.is(result.exitCode, exitCode);
    t.regex(result.stderr, stderr);
  });
}

for (const [status, code, exitCode] of [
  ["SUCCEEDED", 0, 0],
  ["FAILED", undefined, 1],
  ["FAILED", 0, 1],
  ["FAILED", 137, 137],
  ["FAILED", 256, 1],
  ["TIMED_OUT", 143, 124],
  ["CANCELED", 143, 130],
  ["INTERRUPTED", undefined, 1],
] as const) {
  test(`the command exits with ${exitCode} for a run that is ${status} with ${code}`, (t) => {
    t.is(exitCodeOfRun({ status, ...(code !== undefined && { exit_code: code }) }), exitCode);
  });
}

const splitOutput = ["a\xc3", "\xbc \x1b[2J\r", "\nb\r", "\xff\r\n"].map((piece) =>
  Buffer.from(piece, "latin1"),
);

test("run: a pipe gets the bytes unchanged, a terminal gets escaped text", async (t) => {
  const jobs = schedules({ odd: { pieces: splitOutput } });
  t.is((await svc(["run", "odd"], jobs)).stdout, "aü \x1b[2J\r\nb\r�\r\n");
  const { stdout } = await svc(["run", "odd"], jobs, { terminal: true });
  t.is(stdout, "aü \\x1b[2J\nb\\x0d�\n");
});

for (const [found, stderr] of [
  [false, /^Canceled run 7 of hangs\.\n/],
  [true, /Run 7 continues\. Cancel it: svc schedule cancel hangs\n/],
] as const) {
  test(`Ctrl-C stops following a run that ${found ? "was already in progress" : "the command started"}, with 130`, async (t) => {
    await using daemon = await startFakeDaemon([], schedules({ hangs: { hangs: true, found } }));
    const interrupt = new AbortController();
    const running = runSvc(["schedule", "run", "hangs", "--socket", daemon.socketPath], {
      host: { interrupted: interrupt.signal },
    });
    while (daemon.requests.length === 0) await new Promise(setImmediate);
    setTimeout(() => interrupt.abort(), 200);
    const result = await running;
    t.is(result.exitCode, 130);
    t.is(result.stdout, found ? "" : "hi\n");
    t.regex(result.stderr, stderr);
    for (let waited = 0; daemon.left() === 0 && waited < 5000; waited += 10) {
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    t.is(daemon.left(), 1);
  });
}

test("run --detach needs a daemon", async (t) => {
  const pipeline = createFakePipeline([], undefined, schedules());
  const openInProcess = () =>
    Promise.resolve(new InProcessClient({ pipeline, user: localUser, dispose: () => Promise.resolve() }));
  const { exitCode, stderr } = await runSvc(["schedule", "run", "echo", "--detach"], {
    dependencies: { openInProcess },
  });
  t.is(exitCode, 6);
  t.regex(stderr, /omit --detach/);
});

for (const [action, text] of [
  [{ type: "app_restart", app: "hello" }, "restart hello"],
  [{ type: "node_reboot" }, "reboot the host"],
  [{ type: "backup", app: "a", storages: ["s", "t"] }, "back up a to s, t"],
  [{ type: "shell", app: "a", command: "ls" }, 'run "ls" in a'],
  [{ type: "http", method: "POST", url: "http://x" }, "POST http://x"],
] as const) {
  test(`an action is shown as: ${text}`, (t) => {
    const bare = { storages: [], headers: {} };
    t.is(actionText({ ...bare, ...action }), text);
  });
}

test("a job with an event trigger is not reported as having no next run", (t) => {
  const [echo] = schedules().jobs;
  const job = { ...echo, trigger: "on:app.crashed", next_run_unix: undefined } as never;
  t.is(nextRunText(job, inUtc), "when it happens");
  t.is(nextRunSentence(job, 0), "The job runs on the event");
});

test("owner and manager are columns only if they differ", (t) => {
  const style = { paint: createPaint(false), columns: undefined };
  const [echo] = schedules().jobs;
  const job = { ...echo, owner: 1000, owner_name: "ada", time_zone: "", next_run_unix: undefined } as never;
  t.is(
    renderTable(jobColumns([job], 1000, inUtc), [job], style),
    'ID    TRIGGER      ACTION         NEXT RUN               LAST RUN\necho  */5 * * * *  run "echo hi"  not within nine years\n',
  );
  t.regex(renderTable(jobColumns([job], 0, inUtc), [job], style), /OWNER/);
});

test("instants are shown relative to now and as clock times", (t) => {
  const format = relativeTo(nowMs);
  t.deepEqual([nowMs + 250_000, nowMs - 90_000, nowMs + 500].map(format), ["in 4m 10s", "1m 30s ago", "now"]);
  t.is(inUtc(nowMs), "2026-01-02 00:00:00Z");
  t.is(Date.parse(inLocalTime(nowMs)), nowMs);
  t.deepEqual([-1, 240, 65_000].map(formatTook), ["0.0s", "0.2s", "1m 5s"]);
});

for (const [action, name] of [
  [{ type: "node_reboot" }, "reboot"],
  [{ type: "app_restart", app: "hello" }, "hello-restart"],
  [{ type: "http", url: "https://u:p@example.org:8080/x" }, "http-example.org"],
  [{ type: "shell", command: "A=1 B=2 /usr/bin/php x.php" }, "php"],
  [{ type: "shell", command: "  (cd /; ls)" }, "cd"],
  [{ type: "shell", command: "日本" }, "shell"],
  [{ type: "backup", app: "x".repeat(128) }, "x".repeat(48)],
] as const) {
  test(`a job without an ID is named ${name}`, (t) => {
    t.is(jobName({ app: "", command: "", ...action }), name);
  });
}

test("numbered IDs stay within 64 characters", (t) => {
  const ids = idsLike("a".repeat(64)).take(3).toArray();
  t.deepEqual(ids, ["a".repeat(64), `${"a".repeat(62)}-2`, `${"a".repeat(62)}-3`]);
  t.is(commandName(""), "shell");
});

for (const [text, message] of [
  ["- a", /must be fields/],
  ["a: [", /./],
  ["", /must be fields/],
  ["a: &x 1\nb: *x", /alias/i],
] as const) {
  test(`edited text that is not a job: ${JSON.stringify(text)}`, (t) => {
    t.throws(() => parseFields(text), { name: "UsageError", message });
  });
}

const crontab = `MAILTO=root
# every night
0 3 * * * /usr/bin/tidy --all
0 4 * * * /usr/bin/tidy --all
@daily report
`;

test("an import shows its plan, writes it, and writes no job twice", async (t) => {
  const jobs = schedules();
  const stdin = () => ({ stdin: Object.assign(Readable.from([crontab]), { isTTY: false }) });
  const args = ["import", "-", "--app", "a", "--prefix", "cron-"];
  const dry = await svc([...args, "--dry-run"], jobs, { host: stdin() });
  t.is(dry.exitCode, 0, dry.stderr);
  t.regex(dry.stderr, /line 1: MAILTO is ignored[^]*Nothing was written/);
  t.is(jobs.upserts.length, 0);
  t.regex(
    dry.stdout,
    /^ID[^\n]*\ncron-tidy +0 3 \* \* \* [^\n]*every night\ncron-tidy-2 [^\n]*\ncron-report +0 0 \* \* \*/,
  );
  const first = await svc(args, jobs, { host: stdin() });
  t.is(first.stdout, dry.stdout);
  t.regex(first.stderr, /Imported 3 jobs/);
  t.deepEqual(
    jobs.upserts.map(({ id, action, comment }) => [id, action?.app, action?.command, comment]),
    [
      ["cron-tidy", "a", "/usr/bin/tidy --all", "every night"],
      ["cron-tidy-2", "a", "/usr/bin/tidy --all", ""],
      ["cron-report", "a", "report", ""],
    ],
  );
  const second = await svc(args, jobs, { host: stdin() });
  t.regex(second.stderr, /line 3: already exists as job cron-tidy[^]*There is nothing to import/);
  t.is(jobs.upserts.length, 3);
});

test("an import of a crontab with a column of users asks for --system", async (t) => {
  const stdin = Object.assign(Readable.from(["0 3 * * * root /opt/a.sh\n"]), { isTTY: false });
  const args = ["import", "-", "--app", "a", "--dry-run"];
  const { stderr } = await svc(args, schedules(), { host: { stdin } });
  t.regex(stderr, /line 1: "root" is a user of this host, and is run as a command; .*, pass --system$/m);
});

test("an import keeps jobs that others have just created, and does not duplicate them", async (t) => {
  const theirs = { type: "shell", app: "a", command: "/usr/bin/tidy --all" };
  const jobs: FakeSchedules = {
    ...schedules(),
    meanwhile: [
      (all) => void all.push(jobOf({ id: "tidy", comment: "theirs" })),
      () => undefined,
      (all) => void all.push(jobOf({ id: "tidy-9", trigger: "0 4 * * *", action: theirs })),
    ],
  };
  const stdin = Object.assign(Readable.from([crontab]), { isTTY: false });
  const run = await svc(["import", "-", "--app", "a"], jobs, { host: { stdin } });
  t.is(run.exitCode, 0, run.stderr);
  t.regex(run.stderr, /line 4: already exists as job tidy-9/);
  t.deepEqual(
    jobs.upserts.map(({ id, trigger }) => [id, trigger]),
    [
      ["tidy-2", "0 3 * * *"],
      ["report", "0 0 * * *"],
    ],
  );
});

test("an import with invalid lines names each and writes nothing without --skip-bad", async (t) => {
  const jobs = schedules();
  const dir = await mkdtemp(join(tmpdir(), "svc-crontab-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const file = join(dir, "crontab");
  await writeFile(
    file,
    "61 * * * * a\n@reboot b\n* * * *\nCRON_TZ=Nowhere/Land\n0 0 * * * c\nCRON_TZ=\n1 1 * * * ok\n",
  );
  const refused = await svc(["import", file], jobs);
  t.is(refused.exitCode, 2);
  t.regex(
    refused.stderr,
    /^line 1: .*minute "61"[^\n]*\nline 2: @reboot is not supported[^\n]*\nline 3: .*a time and a command\nline 5: .*Nowhere[^\n]*\nsvc: 4 lines cannot be jobs, so nothing was written/,
  );
  t.is(jobs.upserts.length, 0);
  const rest = await svc(["import", file, "--skip-bad", "--disabled"], jobs);
  t.is(rest.exitCode, 0);
  t.like(jobs.upserts, { 0: { id: "ok", enabled: false }, length: 1 });
});

test("svc schedule without a command lists the jobs, and names backups that policies schedule", async (t) => {
  const backups = create(AppBackupsSchema, {});
  const apps = [appOf({ id: "saved", backups }), appOf({ id: "manual", backups }), appOf({ id: "never" })];
  await using daemon = await startFakeDaemon(apps, { ...schedules(), jobs: [] });
  const { exitCode, stderr } = await runSvc(["schedule", "--socket", daemon.socketPath]);
  t.is(exitCode, 0);
  t.regex(
    stderr,
    /^Backups by policy: saved \(03:30\)\. Details: svc backup policy ID\nNo other jobs yet\. Add one: /,
  );
});

for (const [typed, advice] of [
  ["helo", 'did you mean "hello"?'],
  ["nope", "your apps: hello, wiki"],
] as const)
  test(`a job of the unknown app ${typed} names the user's apps`, async (t) => {
    const apps = [appOf({ id: "hello" }), appOf({ id: "wiki" }), appOf({ id: "other", owner: 1001 })];
    await using daemon = await startFakeDaemon(apps, schedules());
    const add = ["schedule", "add", "hourly", "backup", "--app", typed, "--socket", daemon.socketPath];
    const { exitCode, stderr } = await runSvc(add);
    t.is(exitCode, 2);
    t.is(stderr, `svc: app: no app "${typed}"; ${advice}\n`);
  });

for (const flags of [[], ["--dry-run"]])
  test(`an import ${flags.join("")} for an app that does not exist fails before it writes`, async (t) => {
    const jobs = schedules();
    const stdin = Object.assign(Readable.from(["0 1 * * * a\n"]), { isTTY: false });
    const run = await svc(["import", "-", "--app", "missing", ...flags], jobs, { host: { stdin } });
    t.is(run.exitCode, 2);
    t.is(run.stderr, 'svc: app: no app "missing"; you have no apps\n');
    t.is(jobs.upserts.length, 0);
  });

test("an import suggests to repeat it only if that can help", async (t) => {
  const stdin = Object.assign(Readable.from(["0 1 * * * a\n59 23 31 12 * b\n"]), { isTTY: false });
  const run = await svc(["import", "-"], schedules(), { host: { stdin } });
  t.regex(run.stderr, /^line 2: 1 of 2 jobs were written\nsvc: too many jobs/);
});

for (const [args, uid, message] of [
  [["--system"], 1000, /run it with sudo/],
  [["--system", "--app", "a"], 0, /either --system or --app/],
] as const) {
  test(`import ${args.join(" ")} as ${uid} is rejected`, async (t) => {
    const { exitCode, stderr } = await svc(["import", "/nonexistent", ...args], schedules(), {
      host: { uid },
    });
    t.is(exitCode, 2);
    t.regex(stderr, message);
  });
}

test("a job that fires in more than a year shows the date", (t) => {
  const at = Date.UTC(2028, 1, 29, 12) / 1000;
  const job = { enabled: true, trigger: "0 12 29 2 *", later_run_unix: at } as Parameters<
    typeof nextRunText
  >[0];
  t.is(nextRunText(job, inUtc), "29 Feb 2028");
  t.regex(nextRunSentence(job, Date.UTC(2026, 10, 28)), /^Next run in 1y .*, at 2028-02-29 /);
});

test("a job whose last run failed is listed first, and status and info say how to see its output", async (t) => {
  const jobs = ["alpha", "nightly"].map((id) =>
    jobOf({
      id,
      action: { type: "backup", app: "hello" },
      lastRun: runOf({ jobId: id, status: id === "nightly" ? "FAILED" : "SUCCEEDED" }),
    }),
  );
  await using daemon = await startFakeDaemon([appOf({ id: "hello" })], { jobs, runs: {}, upserts: [] });
  await using other = await startFakeDaemon([appOf({ id: "hello" })], {
    jobs: jobs.slice(1),
    runs: {},
    upserts: [],
  });
  const svc = (...args: string[]) =>
    runSvc(["--socket", daemon.socketPath, ...args], { host: { uid: 1000 } });
  const listed = await svc("schedule", "list");
  t.regex(listed.stdout, /\nnightly .*FAILED[^]*\nalpha .*SUCCEEDED/);
  const output = "svc schedule runs nightly --output";
  t.is(listed.stderr, `The last run of nightly failed. See its output: ${output}\n`);
  t.regex(
    (await svc("status")).stdout,
    new RegExp(`^Jobs: +the last run of nightly failed; see its output with: ${output}$`, "m"),
  );
  t.regex(
    (await svc("info", "hello", "--socket", other.socketPath)).stdout,
    new RegExp(`^Failed job: +nightly \\(backup\\); see its output with: ${output}$`, "m"),
  );
});
