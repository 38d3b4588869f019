/** The rules of a job, and the limits of jobs. */
import { setImmediate as turn } from "node:timers/promises";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import test from "ava";
import {
  type ScheduleActionSchema,
  UpsertScheduleRequestSchema,
  type ScheduleAction,
  type UpsertScheduleRequest,
  PreviewScheduleRequestSchema,
} from "../../../gen/svc/v1/schedule_pb.ts";
import { type FieldViolation, SvcError } from "../../../src/errors.ts";
import { JobOwners } from "../../../src/scheduler/jobs/job-owners.ts";
import { JobRules } from "../../../src/scheduler/jobs/job-rules.ts";
import { JobWriter } from "../../../src/scheduler/jobs/job-writer.ts";
import type { Job, JobSpec } from "../../../src/scheduler/jobs/job.ts";
import { Violations } from "../../../src/scheduler/jobs/violations.ts";
import { TriggerParser } from "../../../src/triggers/trigger.ts";
import { Zones } from "../../../src/triggers/zone.ts";
import { spec as jobSpec, openWorld, putJob, schedulesOf } from "../support/world.ts";

// Rules of a job that the contract cannot express: each broken rule is one violation of one field, all at once.

type Request = Exclude<MessageInitShape<typeof UpsertScheduleRequestSchema>, UpsertScheduleRequest>;
type Action = Exclude<MessageInitShape<typeof ScheduleActionSchema>, ScheduleAction>;

const shell: Action = { type: "shell", command: "true" };
const http: Action = { type: "http", url: "http://localhost/" };

function read(
  changes: Request,
  { isRoots = true, stored, path = "" }: { isRoots?: boolean; stored?: Job; path?: string } = {},
): { spec: JobSpec; violations: FieldViolation[] } {
  const request = create(UpsertScheduleRequestSchema, {
    id: "a",
    trigger: "hourly",
    action: shell,
    ...changes,
  });
  const violations = new Violations();
  const spec = new JobRules(new Zones(), new TriggerParser()).read(
    request,
    { path, stored, isRoots },
    violations,
  );
  try {
    violations.check();
    return { spec, violations: [] };
  } catch (error) {
    if (!(error instanceof SvcError) || error.reason !== "invalid_request") throw error;
    return {
      spec,
      violations: (error as SvcError<"invalid_request">).payload?.violations as FieldViolation[],
    };
  }
}

test("absent fields have their defaults", (t) => {
  const { spec, violations } = read({});
  t.deepEqual(violations, []);
  t.like(spec, {
    timeZone: "",
    enabled: true,
    comment: "",
    managedBy: "",
    action: { type: "shell", command: "true" },
    timeoutSecs: 600,
    jitterSecs: 0,
    retries: 0,
    catchUp: "none",
  });
  t.is(spec.trigger.text, "hourly");
  t.false("keep" in spec);
});

test("given fields are kept, and no others are set", (t) => {
  const action: Action = { ...http, method: "POST", headers: { "X-A": "1" }, body: "b" };
  const changes = {
    utc: true,
    enabled: false,
    timeout: 9,
    keep: 2,
    jitterSecs: 3,
    retries: 4,
    catchUp: "latest",
  };
  const { spec } = read({ ...changes, action });
  t.deepEqual(spec.action, {
    type: "http",
    url: "http://localhost/",
    method: "POST",
    headers: { "X-A": "1" },
    body: "b",
  });
  t.like(spec, {
    timeZone: "UTC",
    enabled: false,
    timeoutSecs: 9,
    keep: 2,
    jitterSecs: 3,
    retries: 4,
    catchUp: "latest",
  });
});

for (const [title, changes, violations] of [
  ["an invalid trigger", { trigger: "61 * * * *" }, { trigger: 'minute "61" must be 0 to 59' }],
  [
    "a time zone beside utc",
    { utc: true, timeZone: "Europe/Berlin" },
    { time_zone: "must be omitted if utc is true" },
  ],
  [
    "an unknown time zone",
    { timeZone: "Mars/Olympus" },
    { time_zone: '"Mars/Olympus" must be UTC or an IANA time zone such as Europe/Berlin' },
  ],
  ["NUL in a comment", { comment: "a\0b" }, { comment: "must not hold NUL bytes" }],
  [
    "NUL in a command",
    { action: { ...shell, command: "a\0b" } },
    { "action.command": "must not hold NUL bytes" },
  ],
  ["NUL in a body", { action: { ...http, body: "a\0b" } }, { "action.body": "must not hold NUL bytes" }],
  [
    "NUL in a storage's name",
    { action: { type: "backup", app: "a", storages: ["s3", "a\0"] } },
    { "action.storages[1]": "must not hold NUL bytes" },
  ],
  [
    "a shell job without a command",
    { action: { type: "shell" } },
    { "action.command": "is required for shell" },
  ],
  [
    "a blank command",
    { action: { type: "shell", command: " \n" } },
    { "action.command": "must not be blank" },
  ],
  [
    "a start without an app",
    { action: { type: "app_start" } },
    { "action.app": "is required for app_start" },
  ],
  ["a backup without an app", { action: { type: "backup" } }, { "action.app": "is required for backup" }],
  ["a request without a URL", { action: { type: "http" } }, { "action.url": "is required for http" }],
  [
    "an app to reboot",
    { action: { type: "node_reboot", app: "a" } },
    { "action.app": "is not for node_reboot" },
  ],
  [
    "a request's fields on a command",
    {
      action: {
        ...shell,
        url: "http://a/",
        method: "GET",
        headers: { a: "b" },
        body: "b",
        storages: ["s"],
        keep: 1,
      },
    },
    Object.fromEntries(
      ["storages", "keep", "url", "method", "headers", "body"].map((field) => [
        `action.${field}`,
        "is not for shell",
      ]),
    ),
  ],
  [
    "children of an action that is not a command",
    { action: { ...http, keepChildren: true } },
    { "action.keep_children": "is not for http" },
  ],
  [
    "two different numbers of archives",
    { keep: 2, action: { type: "backup", app: "a", keep: 3 } },
    { "action.keep": "must equal keep, which is 2, or be omitted" },
  ],
  [
    "a URL without a host",
    { action: { ...http, url: "http:///path" } },
    { "action.url": "must have a host" },
  ],
  [
    "a URL with a query for a host",
    { action: { ...http, url: "https://?a" } },
    { "action.url": "must have a host" },
  ],
  [
    "a URL with a port for a host",
    { action: { ...http, url: "http://:80/" } },
    { "action.url": "must be an http:// or https:// URL with a host" },
  ],
  [
    "a header with a line break",
    { action: { ...http, headers: { "X-A": "a\r\nX-B: b" } } },
    { 'action.headers["X-A"]': "must have a value of printable Latin-1 characters, without line breaks" },
  ],
  [
    "a header beyond Latin-1",
    { action: { ...http, headers: { "X-A": "日" } } },
    { 'action.headers["X-A"]': "must have a value of printable Latin-1 characters, without line breaks" },
  ],
  [
    "a header that frames the message",
    { action: { ...http, headers: { "Content-Length": "3" } } },
    { 'action.headers["Content-Length"]': "is set by svc and cannot be changed" },
  ],
  [
    "a header for a proxy",
    { action: { ...http, headers: { "Proxy-Authorization": "Basic eDp5" } } },
    { 'action.headers["Proxy-Authorization"]': "is set by svc and cannot be changed" },
  ],
  [
    "a header twice",
    { action: { ...http, headers: { "X-A": "1", "x-a": "2" } } },
    { 'action.headers["x-a"]': "is repeated; names are case-insensitive" },
  ],
  [
    "a hidden value where none is kept",
    { action: { ...http, headers: { Authorization: "***" } } },
    { 'action.headers["Authorization"]': "is ***, but no value is stored; set the value" },
  ],
  [
    "headers of more than 16 KiB",
    {
      action: {
        ...http,
        headers: Object.fromEntries(["a", "b", "c"].map((name) => [name, "x".repeat(8_000)])),
      },
    },
    { "action.headers": "must have at most 16384 bytes in names and values, not 24003" },
  ],
] as const satisfies readonly (readonly [string, Request, Record<string, string>])[]) {
  test(`rejected: ${title}`, (t) => {
    const found = read(changes).violations;
    t.deepEqual(Object.fromEntries(found.map(({ field, description }) => [field, description])), violations);
  });
}

test("all errors are reported at once, one violation per field, under the field's path", (t) => {
  const { violations } = read(
    {
      trigger: "never",
      comment: "\0",
      timeZone: "X",
      action: { type: "http", url: "http://:0/", command: "\0" },
    },
    { path: "schedules[3]." },
  );
  t.deepEqual(violations.map(({ field }) => field).sort(), [
    "schedules[3].action.command",
    "schedules[3].action.url",
    "schedules[3].comment",
    "schedules[3].time_zone",
    "schedules[3].trigger",
  ]);
});

test("a response names at most 64 violations", (t) => {
  const headers = Object.fromEntries(Array.from({ length: 200 }, (_, index) => [`X-${index}`, "\n"]));
  t.is(read({ action: { ...http, headers } }).violations.length, 64);
});

/** A job with stored header values. */
function storedHttp(url: string): Job {
  const headers = { Authorization: "secret", Accept: "text/plain", "X-Gone": "1" };
  const spec = jobSpec({ action: { type: "http", url, headers } });
  return { ...spec, ownerUid: 0, ownerName: "", id: "a", updatedAtMs: 0, revision: 1 };
}

test("a hidden header value keeps its stored value, whatever the case of its name", (t) => {
  const stored = storedHttp("http://LOCALHOST:80/path?and=query");
  const { spec, violations } = read(
    { action: { ...http, headers: { authorization: "***", "X-New": "2" } } },
    { stored },
  );
  t.deepEqual(violations, []);
  t.deepEqual(spec.action.headers, { authorization: "secret", "X-New": "2" });
});

for (const url of ["https://a/", "http://b/", "http://a:81/", "http://a.evil/"]) {
  test(`a hidden header value does not go to another origin: ${url}`, (t) => {
    const headers = { authorization: "***", accept: "***" };
    const asked = (given: Record<string, string>) =>
      read({ action: { ...http, url, headers: given } }, { stored: storedHttp("http://a/") });
    t.deepEqual(
      asked(headers).violations.map(({ field, description }) => [field, description]),
      [
        [
          'action.headers["authorization"]',
          "is ***, but the stored value is for http://a; set the value again for the new url",
        ],
      ],
    );
    const { spec, violations } = asked({ ...headers, authorization: "again" });
    t.deepEqual(violations, []);
    t.deepEqual(spec.action.headers, { authorization: "again", accept: "text/plain" });
  });
}

for (const [title, action, violations] of [
  ["a start of an app", { type: "app_start", app: "a" }, {}],
  ["a backup of an app", { type: "backup", app: "a" }, {}],
  ["a command with an app", { ...shell, app: "a" }, {}],
  [
    "a command without an app",
    shell,
    { "action.app": "is required: a user's jobs act on the user's own apps" },
  ],
  ["a start without an app", { type: "app_stop" }, { "action.app": "is required for app_stop" }],
  [
    "a reboot",
    { type: "node_reboot" },
    {
      "action.type":
        "node_reboot is for root's jobs; a user's must be one of app_start, app_stop, app_restart, app_update, backup, backup_verify, shell",
    },
  ],
  [
    "a request",
    http,
    {
      "action.type":
        "http is for root's jobs; a user's must be one of app_start, app_stop, app_restart, app_update, backup, backup_verify, shell",
    },
  ],
] as const satisfies readonly (readonly [string, Action, Record<string, string>])[]) {
  test(`a user's job, ${Object.keys(violations).length === 0 ? "allowed" : "rejected"}: ${title}`, (t) => {
    const found = read({ action }, { isRoots: false }).violations;
    t.deepEqual(Object.fromEntries(found.map(({ field, description }) => [field, description])), violations);
  });
}

// Size limits of an owner's jobs and of a page of them.

const longShell = (length: number) => ({ action: { type: "shell", command: "x".repeat(length) } }) as const;

test("the total size of an owner's jobs is limited, and may always shrink", async (t) => {
  await using world = await openWorld();
  const writer = new JobWriter({ ...world, now: () => world.clock.nowMs });
  const bounds = { jobs: 3, chars: 100 };
  const put = (id: string, length: number): Promise<void> =>
    writer.upsert(
      { ownerUid: 1, id },
      () => jobSpec(longShell(length)),
      { createOnly: false, revision: "" },
      bounds,
    );
  await put("a", 40);
  await put("b", 40);
  for (const [id, length] of [
    ["c", 10],
    ["b", 50],
  ] as const) {
    const error = await t.throwsAsync<SvcError>(put(id, length));
    t.is(error.reason, "too_many");
    t.regex(error.message, /characters exceed the limit of 100 per owner/);
  }
  await put("a", 10);
  await put("c", 10);
  t.is((await t.throwsAsync<SvcError>(put("d", 1))).message.split(" exceed")[0], "4 jobs");
});

test("a page contains as many jobs as fit, and the next one continues", async (t) => {
  await using world = await openWorld();
  for (let at = 0; at < 40; at += 1) {
    await putJob(world, { ownerUid: 0, id: `j${String(at).padStart(2, "0")}` }, longShell(65_500));
  }
  const owners = new JobOwners({ selfUid: 0, lookUp: () => Promise.resolve("root") });
  const schedules = schedulesOf(world, owners);
  const sizes: number[] = [];
  const ids: string[] = [];
  for (let pageToken = ""; ;) {
    const page = await schedules.list({ uid: 0, root: true }, { limit: 1_000, pageToken });
    sizes.push(page.schedules.length);
    ids.push(...page.schedules.map(({ id }) => id));
    pageToken = page.nextPageToken;
    if (pageToken === "") break;
  }
  t.deepEqual(sizes, [5, 5, 5, 5, 5, 5, 5, 5]);
  t.is(new Set(ids).size, 40);
});

// A list of jobs in all time zones: the next firing takes milliseconds in each, seconds in total.

const root = { uid: 0, root: true };

test("the event loop is not blocked while a list of jobs in three hundred zones is created", async (t) => {
  t.timeout(60_000);
  const world = await openWorld();
  const owners = new JobOwners({ selfUid: 0, lookUp: () => Promise.resolve("root") });
  const schedules = schedulesOf(world, owners);
  const zones = Intl.supportedValuesOf("timeZone").slice(0, 300);
  for (const [at, timeZone] of zones.entries())
    await putJob(world, { ownerUid: 0, id: `job-${at}` }, { timeZone });
  const { result, turns } = await turnsDuring(schedules.list(root, { limit: 1_000, pageToken: "" }));
  t.is(result.schedules.length, zones.length);
  t.true(turns > 3, `${turns} turns of the loop`);
});

test("the event loop is not blocked while the firings of a hundred years are computed", async (t) => {
  t.timeout(60_000);
  const world = await openWorld();
  const owners = new JobOwners({ selfUid: 0, lookUp: () => Promise.resolve("root") });
  const request = create(PreviewScheduleRequestSchema, {
    ...{ trigger: "0 0 1 1 *", timeZone: "Europe/Berlin", count: 100 },
  });
  const { result, turns } = await turnsDuring(
    schedulesOf(world, owners).preview(request, root, new AbortController().signal),
  );
  t.is(result.firings.length, 100);
  t.true(turns > 3, `${turns} turns of the loop`);
});

/** The number of event-loop turns until it was done. */
async function turnsDuring<Value>(work: Promise<Value>): Promise<{ result: Value; turns: number }> {
  const counting = new AbortController();
  const done = work.finally(() => counting.abort());
  let turns = 0;
  while (!counting.signal.aborted) {
    await turn();
    turns++;
  }
  return { result: await done, turns };
}
