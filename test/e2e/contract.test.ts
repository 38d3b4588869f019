/**
 * Promises of the contract for every resource: absent values are omitted, resources can be written back as read, IDs
 * are names.
 */
import { once } from "node:events";
import { connect as connectHttp2 } from "node:http2";
import { connect as connectSocket } from "node:net";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { create, toBinary, getOption, hasOption, type DescService } from "@bufbuild/protobuf";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { CredentialService } from "../../gen/svc/v1/credential_pb.ts";
import { routes } from "../../gen/svc/v1/routes.ts";
import { rules } from "../../gen/svc/v1/rules_pb.ts";
import { GetScheduleRequestSchema, ScheduleService } from "../../gen/svc/v1/schedule_pb.ts";
import { SourceService } from "../../gen/svc/v1/source_pb.ts";
import { runSvc } from "../cli/support/run-svc.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import { protocols, type TestDaemon } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { sendRest } from "../support/rest-transport.ts";
import { sampleMessage } from "../support/sample-message.ts";

type Json = Record<string, unknown>;

const emptyDaemon = sharedDaemon();

const yearly = "0 0 1 1 *";
const reboot = { trigger: yearly, action: { type: "node_reboot" } };
const echo = { trigger: yearly, action: { type: "shell", command: "echo hi" } };

async function send(
  daemon: TestDaemon,
  method: string,
  path: string,
  body?: unknown,
): Promise<[number, Json]> {
  const text = body === undefined ? undefined : JSON.stringify(body);
  const answer = await sendRest({ socketPath: daemon.socketPath }, method, path, text);
  return [answer.status, JSON.parse(answer.text) as Json];
}

test("REST omits absent values", async (t) => {
  const daemon = await emptyDaemon();
  await send(daemon, "PUT", "/v1/schedules/a", reboot);
  const [, job] = await send(daemon, "GET", "/v1/schedules/a");
  t.false("managed_by" in job);
  t.deepEqual(job["action"], { type: "node_reboot", storages: [], headers: {} });
  t.is(job["skipped"], 0, "a meaningful zero is included");
  const [, refused] = await send(daemon, "PUT", "/v1/schedules/managed/platform", {
    schedules: [{ id: "a", ...reboot }],
  });
  t.deepEqual(refused["job_owned"], { ids: ["a"] });
});

test("the image of a process app is an empty object, over REST and in the CLI", async (t) => {
  const daemon = await emptyDaemon();
  const dir = join(daemon.dir, "imageless");
  await writePackage(dir, await freePort(), { id: "imageless" });
  await daemon.client(AppService).installApp({ spec: dir });
  t.deepEqual(await send(daemon, "GET", "/v1/apps/imageless/image"), [200, {}]);
  const svc = (...args: string[]) => runSvc([...args, "--socket", daemon.socketPath]);
  t.deepEqual(JSON.parse((await svc("app", "image", "imageless", "--json")).stdout), {});
  t.is((await svc("app", "image", "imageless")).exitCode, 0);
});

test("a schedule is written back over REST as it was read, by its owner and by root", async (t) => {
  const daemon = await emptyDaemon();
  await send(daemon, "PUT", "/v1/schedules/a", echo);
  await send(daemon, "POST", "/v1/schedules/a/run", {});
  const read = await eventually(async () => {
    const [, job] = await send(daemon, "GET", "/v1/schedules/a");
    if ((job["last_run"] as Json | undefined)?.["status"] !== "SUCCEEDED")
      throw new Error(JSON.stringify(job));
    return job;
  });
  t.deepEqual(await send(daemon, "PUT", "/v1/schedules/a", read), [200, read]);
  const strange = { ...read, last_run: "?", skips: [{ reason: "eclipse" }], next_run_unix: {}, skipped: -1 };
  t.deepEqual(await send(daemon, "PUT", "/v1/schedules/a", strange), [200, read], "whatever they contain");

  const [, list] = await send(daemon, "PUT", "/v1/schedules/managed/platform", {
    schedules: [{ id: "p", ...echo }],
  });
  const pushed = await send(daemon, "PUT", "/v1/schedules/managed/platform", {
    schedules: list["schedules"],
  });
  t.deepEqual(pushed, [200, list]);
});

for (const protocol of protocols) {
  test(`resources are written back as they were read over ${protocol}`, async (t) => {
    const daemon = await emptyDaemon();
    const dir = join(daemon.dir, "package");
    await writePackage(dir, await freePort());
    const schedules = daemon.client(ScheduleService, protocol);
    await schedules.upsertSchedule({ id: "a", ...echo });
    const {
      $typeName: _schedule,
      $unknown: _1,
      ...job
    } = await schedules.upsertSchedule({
      id: "a",
      ...echo,
      skips: [{ reason: "not one of svc's values", count: 1 }],
      lastRun: { status: "not one of svc's values" },
    });
    t.like(await schedules.upsertSchedule({ ...job, skips: [] }), {
      id: "a",
      skipped: 0,
      lastRun: undefined,
    });

    const apps = daemon.client(AppService, protocol);
    const { id } = await apps.installApp({ spec: dir });
    const { $typeName: _settings, $unknown: _2, values = {}, ...rest } = await apps.getAppSettings({ id });
    t.deepEqual((await apps.updateAppSettings({ id, values, ...rest })).values, values);

    const sources = daemon.client(SourceService, protocol);
    const {
      $typeName: _source,
      $unknown: _3,
      ...source
    } = await sources.upsertSource({ name: "mine", url: dir });
    t.like(await sources.upsertSource({ ...source, configured: true }), source);

    const credentials = daemon.client(CredentialService, protocol);
    const login = { name: "forge", kind: "git", host: "git.example.org", username: "me", secret: "s" };
    const { $typeName: _login, $unknown: _4, ...credential } = await credentials.upsertCredential(login);
    const { updatedAt: _at, ...kept } = credential;
    t.like(await credentials.upsertCredential(credential), kept);
  });

  test(`directory names are not valid IDs, over ${protocol}`, async (t) => {
    const daemon = await emptyDaemon();
    const schedules = daemon.client(ScheduleService, protocol);
    const credentials = daemon.client(CredentialService, protocol);
    const login = { kind: "git", host: "git.example.org", username: "me", secret: "s" };
    for (const id of [".", ".."]) {
      const pushed = { managedBy: "platform", schedules: [{ id, ...echo }] };
      for (const writing of [
        schedules.upsertSchedule({ id, ...echo }),
        schedules.replaceManagedSchedules(pushed),
        schedules.replaceManagedSchedules({ managedBy: id, schedules: [] }),
        credentials.upsertCredential({ name: id, ...login }),
      ]) {
        t.like(await errorOf(writing), { code: "InvalidArgument", reason: "invalid_request" }, id);
      }
    }
    for (const id of ["...", ".a", "a.", "..a", "a..b", "-", "_"])
      t.is((await schedules.upsertSchedule({ id, ...echo })).id, id);
  });

  test(`a job of a missing app is rejected, except a platform's, over ${protocol}`, async (t) => {
    const daemon = await emptyDaemon();
    const schedules = daemon.client(ScheduleService, protocol);
    const start = { trigger: yearly, action: { type: "app_start", app: "web" } };
    const refused = await errorOf(schedules.upsertSchedule({ id: "mine", ...start }));
    t.like(refused, { code: "InvalidArgument", message: 'action.app: no app "web"' });

    const jobs = [
      { id: "p", ...start },
      { id: "q", ...echo },
    ];
    const pushed = await schedules.replaceManagedSchedules({ managedBy: "platform", schedules: jobs });
    t.deepEqual(pushed.warnings, ['job "p": no app "web"']);
    t.deepEqual(
      pushed.schedules.map(({ id }) => id),
      ["p", "q"],
    );
    const changed = await schedules.upsertSchedule({ managedBy: "platform", ...jobs[0], comment: "changed" });
    t.deepEqual([changed.comment, changed.warnings], ["changed", ['no app "web"']]);

    const dir = join(daemon.dir, "package");
    await writePackage(dir, await freePort());
    const apps = daemon.client(AppService, protocol);
    await apps.installApp({ spec: dir });
    t.deepEqual((await schedules.upsertSchedule({ id: "mine", ...start })).warnings, []);
    t.deepEqual(
      (await schedules.replaceManagedSchedules({ managedBy: "platform", schedules: jobs })).warnings,
      [],
    );
    await apps.removeApp({ id: "web" });
    // A user must be able to change their job after its app was removed.
    const mine = await schedules.upsertSchedule({ id: "mine", ...start, comment: "later" });
    t.deepEqual([mine.comment, mine.warnings], ["later", ['no app "web"']]);
  });
}

test("a push without a job list removes none", async (t) => {
  const daemon = await emptyDaemon();
  const path = "/v1/schedules/managed/platform";
  await send(daemon, "PUT", path, { schedules: [{ id: "p", ...echo }] });
  for (const body of [{}, { schedules: null }, { managed_by: "platform" }, undefined]) {
    const [status, { error, reason }] = await send(daemon, "PUT", path, body);
    t.deepEqual(
      [status, reason, error],
      [400, "invalid_request", "schedules is required; it may be an empty list"],
    );
  }
  t.is(((await send(daemon, "GET", "/v1/schedules"))[1]["schedules"] as Json[]).length, 1);
  t.is((await send(daemon, "PUT", path, { schedules: [] }))[0], 200);
  t.deepEqual((await send(daemon, "GET", "/v1/schedules"))[1]["schedules"], []);
});

test("an error message starts with what is wrong", async (t) => {
  const daemon = await emptyDaemon();
  const put = async (body: string): Promise<unknown> => {
    const { text } = await sendRest({ socketPath: daemon.socketPath }, "PUT", "/v1/schedules/a", body);
    return (JSON.parse(text) as Json)["error"];
  };
  t.is(await put(JSON.stringify({ ...echo, retries: 11 })), "retries must be at most 10, not 11");
  t.is(await put(JSON.stringify({ trigger: yearly })), "action is required");
  t.is(await put(JSON.stringify({ ...echo, trigger: "61 * * * *" })), 'trigger: minute "61" must be 0 to 59');
  t.regex(String(await put("{")), /^the body is not JSON: /);
});

test("gRPC escapes its message as the protocol requires, and nothing more", async (t) => {
  const daemon = await emptyDaemon();
  const session = connectHttp2("http://localhost", {
    createConnection: () => connectSocket(daemon.socketPath),
  });
  const message = toBinary(GetScheduleRequestSchema, create(GetScheduleRequestSchema, { id: "50% :ü" }));
  const framed = (bytes: Uint8Array, flag: number): Buffer => {
    const head = Buffer.alloc(5, flag);
    head.writeUInt32BE(bytes.length, 1);
    return Buffer.concat([head, bytes]);
  };
  for (const [way, path, body, headers] of [
    ["on the fast path", "GetSchedule", framed(message, 0), {}],
    ["by Connect's", "GetSchedule", framed(gzipSync(message), 1), { "grpc-encoding": "gzip" }],
    ["of a stream", "FollowScheduleRuns", framed(message, 0), {}],
  ] as const) {
    const stream = session.request({
      ":method": "POST",
      ":path": `/svc.v1.ScheduleService/${path}`,
      "content-type": "application/grpc",
      ...headers,
    });
    const trailers = once(stream, "trailers");
    stream.end(body);
    stream.resume();
    const [{ "grpc-message": said }] = (await trailers) as [Record<string, string>];
    t.is(said, 'no job "50%25 :%C3%BC"', way);
  }
  session.destroy();
});

// An invalid page token is the caller's mistake, for every list with pages.

const paged = [...new Set(routes.map(({ method }) => method))].filter(
  ({ input }) => input.field["pageToken"] !== undefined,
);

test("every page token has a maximum length, and every list with one returns the next page's token", (t) => {
  t.true(paged.length >= 5);
  for (const method of paged) {
    const field = method.input.field["pageToken"];
    const length = field && hasOption(field, rules) ? getOption(field, rules).maxLen : undefined;
    t.true(length !== undefined && length > 0 && length <= 16_384, method.name);
    t.truthy(method.output.field["nextPageToken"], method.name);
  }
});

const damaged = ["nonsense", "-1", "0", "1e9", "9".repeat(40), "\u{0}", "é", "%", "x".repeat(64)];

test("a damaged page token is an invalid request that names the field", async (t) => {
  const daemon = await emptyDaemon();
  let answered = 0;
  for (const method of paged) {
    const service: DescService = method.parent;
    const client = daemon.client(service) as Record<string, (request: object) => Promise<unknown>>;
    for (const token of damaged) {
      const request = Object.assign(sampleMessage(method.input, { path: "/" }), { pageToken: token });
      const error = await errorOf(client[method.localName]!(request));
      if (error.reason === "not_implemented") continue;
      answered++;
      t.is(error.reason, "invalid_request", `${method.name}: ${JSON.stringify(token)}`);
      t.true(JSON.stringify(error).includes("page_token"), `${method.name}: ${JSON.stringify(token)}`);
    }
  }
  t.true(answered >= 2 * damaged.length);
});
