/** The promises of docs/platform.md to platforms, over TCP with a token. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createFileRegistry, fromBinary, toBinary, create } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import test from "ava";
import { AppService, InstallAppRequestSchema, ListAppsResponseSchema } from "../../gen/svc/v1/app_pb.ts";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import { EventService } from "../../gen/svc/v1/event_pb.ts";
import { ScheduleService } from "../../gen/svc/v1/schedule_pb.ts";
import { socketTransport, startDaemon, type TestDaemon } from "../support/daemon.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writeFiles, writePackage } from "../support/packages.ts";

const daemonOf = sharedDaemon();
const root = fileURLToPath(new URL("../..", import.meta.url));
const deadlineMs = 40_000;

/** A unary binary Connect call as bytes; returns status and bytes. */
async function callRaw(daemon: TestDaemon, method: string, request: Uint8Array) {
  const answer = await fetch(`http://127.0.0.1:${daemon.port}/svc.v1.${method}`, {
    method: "POST",
    headers: { "content-type": "application/proto", authorization: `Bearer ${daemon.token}` },
    body: Buffer.from(request),
  });
  return {
    status: answer.status,
    headers: answer.headers,
    bytes: new Uint8Array(await answer.arrayBuffer()),
  };
}

/** Over REST, or Connect in JSON. */
async function callJson(daemon: TestDaemon, path: string, body: object, method = "POST") {
  const answer = await fetch(`http://127.0.0.1:${daemon.port}/${path}`, {
    method,
    headers: { "content-type": "application/json", authorization: `Bearer ${daemon.token}` },
    body: JSON.stringify(body),
  });
  return { status: answer.status, json: (await answer.json()) as { code?: string } };
}

/** A package `web` in the daemon's directory. */
async function packageOf(daemon: TestDaemon): Promise<string> {
  const dir = join(daemon.dir, "web");
  await writePackage(dir, await freePort());
  return dir;
}

test.serial("capabilities are listed, and a missing one is unimplemented", async (t) => {
  const daemon = await daemonOf();
  const { capabilities, version } = await daemon.client(DaemonService, "grpc").getStatus({});
  t.true(capabilities.includes("schedules"));
  t.deepEqual(capabilities, capabilities.toSorted());
  t.regex(version, /^\d+\.\d+\.\d+/);
  t.is((await callRaw(daemon, "AppService/FoldApp", new Uint8Array())).status, 404);
  t.is((await callJson(daemon, "v1/apps/web/fold", {})).status, 404);
  const unknown = { ...AppService.method.listApps, name: "FoldApp" };
  const calling = socketTransport(daemon.socketPath, "grpc").unary(
    unknown,
    undefined,
    undefined,
    undefined,
    {},
  );
  t.like(await errorOf(calling), { code: "Unimplemented" });
});

test.serial("the status has the paths of the daemon and the condition of the container engine", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-engine-"));
  const socket = join(dir, "docker.sock");
  const engine = createServer().listen(socket);
  await once(engine, "listening");
  await using daemon = await startDaemon({ config: `[docker]\nsocket = "${socket}"` });
  t.like(await daemon.client(DaemonService).getStatus({}), {
    configFile: join(daemon.dir, "svc.toml"),
    storeDirectory: daemon.storeDir,
    // The log of a test's daemon goes to a pipe.
    log: "",
    engine: { socket, state: "AVAILABLE" },
  });
  engine.close();
  await once(engine, "close");
  await using other = await startDaemon({ config: `[docker]\nsocket = "${socket}"` });
  t.is((await other.client(DaemonService).getStatus({})).engine?.state, "MISSING");
  await writeFile(socket, "");
  await using third = await startDaemon({ config: `[docker]\nsocket = "${socket}"` });
  t.is((await third.client(DaemonService).getStatus({})).engine?.state, "UNAVAILABLE");
  await rm(dir, { recursive: true });
});

test.serial("fields of a newer platform are ignored, and an older one reads today's responses", async (t) => {
  const daemon = await daemonOf();
  const spec = await packageOf(daemon);
  const request = toBinary(InstallAppRequestSchema, create(InstallAppRequestSchema, { spec }));
  // Field 1000, of bytes: three of them.
  const newer = Buffer.concat([request, Uint8Array.of(0xc2, 0x3e, 3, 1, 2, 3)]);
  const installed = await callRaw(daemon, "AppService/InstallApp", newer);
  t.is(installed.status, 200, Buffer.from(installed.bytes).toString());
  t.regex(installed.headers.get("x-request-id") ?? "", /./);

  const files = createFileRegistry(
    fromBinary(FileDescriptorSetSchema, await readFile(join(root, "proto/svc-0.1.0.binpb"))),
  );
  const older = files.getMessage("svc.v1.ListAppsResponse");
  assert.ok(older !== undefined);
  const { bytes } = await callRaw(daemon, "AppService/ListApps", new Uint8Array());
  const { apps } = fromBinary(older, bytes) as unknown as { apps: { id: string }[] };
  t.deepEqual(
    apps.map(({ id }) => id),
    ["web"],
  );

  // A current platform ignores fields of a newer daemon as well: field 1000 after the apps.
  const tomorrow = fromBinary(
    ListAppsResponseSchema,
    Buffer.concat([bytes, Uint8Array.of(0xc2, 0x3e, 1, 1)]),
  );
  t.deepEqual(
    tomorrow.apps.map(({ id }) => id),
    ["web"],
  );

  const mistyped = await callJson(daemon, "v1/apps", { spec, folded: true });
  t.like(mistyped, { status: 400, json: { code: "invalid_argument" } });
  t.regex(JSON.stringify(mistyped.json), /folded/);
  const passed = await callJson(daemon, "svc.v1.AppService/ListApps", { folded: true });
  t.is(passed.status, 200);
});

test.serial("a repeated push changes nothing", async (t) => {
  const daemon = await daemonOf();
  const schedules = daemon.client(ScheduleService, "grpc");
  const push = {
    managedBy: "platform",
    schedules: [{ id: "tidy", trigger: "0 4 1 1 *", action: { type: "shell", command: "true" } }],
  };
  const [first] = (await schedules.replaceManagedSchedules(push)).schedules;
  await schedules.runSchedule({ id: "tidy" });
  await eventually(async () => {
    const { runs } = await schedules.listScheduleRuns({ id: "tidy" });
    assert.equal(runs[0]?.status, "SUCCEEDED");
  }, deadlineMs);
  const [again] = (await schedules.replaceManagedSchedules(push)).schedules;
  t.is(again?.revision, first?.revision);
  t.is((await schedules.listScheduleRuns({ id: "tidy" })).runs.length, 1);

  const job = { id: "own", trigger: "0 4 1 1 *", action: { type: "shell", command: "true" } };
  const { revision } = await schedules.upsertSchedule(job);
  t.like(await errorOf(schedules.upsertSchedule({ ...job, createOnly: true })), { code: "AlreadyExists" });
  await schedules.upsertSchedule({ ...job, trigger: "0 5 1 1 *" });
  const stale = schedules.upsertSchedule({ ...job, revision });
  t.like(await errorOf(stale), { code: "Aborted" });
  const none = await schedules.replaceManagedSchedules({ managedBy: "platform", schedules: [] });
  t.deepEqual(none.schedules, []);
});

test.serial(
  "a push is stored completely or not at all, and one without a list is rejected over REST",
  async (t) => {
    const daemon = await daemonOf();
    const schedules = daemon.client(ScheduleService, "grpc");
    const job = (id: string, trigger: string) => ({
      id,
      trigger,
      action: { type: "shell", command: "true" },
    });
    const managedBy = "platform";
    await schedules.replaceManagedSchedules({ managedBy, schedules: [job("old", "0 4 1 1 *")] });
    const bad = [job("new", "0 4 1 1 *"), job("bad", "no time at all")];
    t.like(await errorOf(schedules.replaceManagedSchedules({ managedBy, schedules: bad })), {
      code: "InvalidArgument",
    });
    const ids = async (): Promise<string[]> =>
      (await schedules.listSchedules({})).schedules.map(({ id }) => id);
    t.deepEqual(await ids(), ["old"]);
    t.is((await callJson(daemon, "v1/schedules/managed/platform", {}, "PUT")).status, 400);
    t.deepEqual(await ids(), ["old"]);
  },
);

test.serial(
  "an operation continues when its caller disconnects, and a second one fails as busy",
  async (t) => {
    const daemon = await daemonOf();
    const apps = daemon.client(AppService, "grpc");
    const spec = join(daemon.dir, "slow");
    await writeFiles(spec, {
      "svc.yaml": `id: slow
name: slow
version: "1"
process: { exec: [node, app.mjs] }
stop: { grace: 3s }
`,
      // The app must be able to reject the stop signal first.
      "app.mjs": `process.on("SIGTERM", () => undefined); setInterval(() => undefined, 1000); console.log("deaf");`,
    });
    await apps.installApp({ spec });
    await apps.startApp({ id: "slow" });
    await eventually(async () => {
      const { lines } = await apps.getAppLogs({ id: "slow" });
      assert.ok(lines.some(({ text }) => text === "deaf"));
    }, deadlineMs);
    t.like(await errorOf(apps.stopApp({ id: "slow" }, { timeoutMs: 500 })), { code: "DeadlineExceeded" });
    t.truthy((await apps.getApp({ id: "slow" })).operation);
    const second = await errorOf(apps.startApp({ id: "slow" }));
    t.like(second, { code: "FailedPrecondition", reason: "app_busy" });
    await eventually(
      async () => assert.equal((await apps.getApp({ id: "slow" })).state, "STOPPED"),
      deadlineMs,
    );
  },
);

test.serial(
  "a caller that guesses tokens is throttled, and a caller with a valid token is not",
  async (t) => {
    await using daemon = await startDaemon();
    const guess = daemon.tokenClient(DaemonService, "connect", "not-a-token");
    t.like(await errorOf(guess.getStatus({})), { code: "Unauthenticated" });
    const codes: string[] = [];
    // One more attempt is allowed per second.
    for (let at = 0; at < 200 && codes.at(-1) !== "ResourceExhausted"; at += 1)
      codes.push((await errorOf(guess.getStatus({}))).code);
    t.is(codes.at(-1), "ResourceExhausted");
    t.true(codes.length >= 19, String(codes.length));
    t.regex((await daemon.client(DaemonService, "grpc").getStatus({})).version, /^\d/);
  },
);

test.serial("requesting the current state is not an error", async (t) => {
  const daemon = await daemonOf();
  const apps = daemon.client(AppService, "grpc");
  const spec = await packageOf(daemon);
  const [one, two] = [await apps.installApp({ spec }), await apps.installApp({ spec })];
  t.not(one.id, two.id);
  await apps.stopApp({ id: one.id });
  await apps.startApp({ id: one.id });
  t.is((await apps.startApp({ id: one.id })).state, "RUNNING");
  await apps.stopApp({ id: one.id });
  t.is((await apps.stopApp({ id: one.id })).state, "STOPPED");
});

test.serial("events continue after a cursor, or report that they cannot", async (t) => {
  const daemon = await daemonOf();
  const spec = await packageOf(daemon);
  await daemon.client(AppService).installApp({ spec });
  const events = daemon.client(EventService, "grpc");
  const held = await Array.fromAsync(events.streamEvents({ past: true, untilNow: true }));
  const cursor = held.at(-2)?.cursor ?? "";
  const rest = await Array.fromAsync(events.streamEvents({ after: cursor, untilNow: true }));
  t.deepEqual(
    rest.map((event) => event.kind),
    ["begin", held.at(-1)?.kind],
  );
  const forgotten = await Array.fromAsync(events.streamEvents({ after: "000000000000-1", untilNow: true }));
  t.deepEqual(
    forgotten.map((event) => event.kind),
    ["reset"],
  );
});
