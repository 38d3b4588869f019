/**
 * Long operations as resources of the contract: detached, followed, canceled, visible to their owner, retained for a
 * day.
 */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { chmod, mkdir, mkdtemp, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { promisify } from "node:util";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { AuditService } from "../../../gen/svc/v1/audit_pb.ts";
import { BackupService } from "../../../gen/svc/v1/backup_pb.ts";
import { EventService } from "../../../gen/svc/v1/event_pb.ts";
import { FileService } from "../../../gen/svc/v1/file_pb.ts";
import { OperationService, type Operation } from "../../../gen/svc/v1/operation_pb.ts";
import {
  isRoot,
  needsRoot,
  protocols,
  startDaemon,
  type Protocol,
  type TestDaemon,
} from "../../support/daemon.ts";
import { sharedDaemon } from "../../support/daemon-test.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { writeGated } from "../../support/gated-package.ts";
import { addVersion, freePort, writePackage, writeRepository } from "../../support/packages.ts";
import { main } from "../../support/svc-main.ts";
import { asUserWithoutSvc } from "../../support/without-svc.ts";

const emptyDaemon = sharedDaemon();
const testAsRoot = isRoot ? test : test.skip;
/** `nobody` and `games`: every Debian has a passwd entry for both. */
const [alice, bob] = [65_534, 5];

function clientsOf(daemon: Pick<TestDaemon, "client">, protocol: Protocol = "connect") {
  return {
    apps: daemon.client(AppService, protocol),
    operations: daemon.client(OperationService, protocol),
    backups: daemon.client(BackupService, protocol),
  };
}

type Clients = ReturnType<typeof clientsOf>;

async function finished({ operations }: Clients, id: string): Promise<Operation> {
  let last: Operation | undefined;
  for await (const { event } of operations.streamOperation({ id })) {
    if (event.case === "operation") last = event.value;
  }
  assert.ok(last);
  return last;
}

/** Resolves when the build waits. */
async function untilBuilt({ operations }: Clients, id: string): Promise<void> {
  await eventually(async () => {
    const { log } = await operations.getOperation({ id });
    assert.ok(log.some(({ text: line }) => line === "one"));
  }, 20_000);
}

function idOf({ detached }: { detached?: Operation | undefined }): string {
  assert.ok(detached);
  return detached.id;
}

for (const protocol of protocols) {
  test(`a detached install returns its operation at once and continues without its client (${protocol})`, async (t) => {
    const daemon = await emptyDaemon();
    const clients = clientsOf(daemon, protocol);
    const { apps, operations } = clients;
    const { spec, open } = await writeGated(t, daemon);

    const { detached } = await apps.installApp({ spec, detach: true });
    t.like(detached, { kind: "install", state: "RUNNING", detached: true, owner: process.getuid?.() });
    const id = detached?.id ?? "";
    await untilBuilt(clients, id);
    t.like(await operations.getOperation({ id }), { appId: "web", phase: "build", message: "one" });
    await open();

    const last = await finished(clientsOf(daemon), id);
    t.like(last, { state: "SUCCEEDED", appId: "web", error: undefined });
    t.like(last.result, { id: "web", state: "STOPPED" });
    t.truthy(last.endedAt);
    t.is((await apps.getApp({ id: "web" })).state, "STOPPED");
  });
}

test("a detached streaming call has its operation as its only event", async (t) => {
  const daemon = await emptyDaemon();
  const clients = clientsOf(daemon);
  const { spec, open } = await writeGated(t, daemon);
  const events = await Array.fromAsync(clients.apps.installAppStream({ spec, detach: true }));
  t.is(events.length, 1);
  const event = events[0]?.event;
  assert.ok(event?.case === "detached");
  await open();
  t.is((await finished(clients, event.value.id)).state, "SUCCEEDED");
});

test("a follower that reconnects receives the log lines after its last one", async (t) => {
  const daemon = await emptyDaemon();
  const clients = clientsOf(daemon);
  const { spec, open } = await writeGated(t, daemon);
  const id = idOf(await clients.apps.installApp({ spec, detach: true }));
  await untilBuilt(clients, id);
  let seen = 0;
  for await (const { event } of clients.operations.streamOperation({ id })) {
    if (event.case === "line") seen = event.value.number;
    if (event.case === "line" && event.value.text === "one") break;
  }
  await open();
  const events = await Array.fromAsync(clients.operations.streamOperation({ id, after: seen }));
  const lines = events.flatMap(({ event }) => (event.case === "line" ? [event.value] : []));
  t.is(lines[0]?.number, seen + 1);
  t.is(lines[0]?.text, "two");
  t.is(events.at(-1)?.event.case, "operation");
});

test("an operation is followed over REST line by line", async (t) => {
  const daemon = await emptyDaemon();
  const clients = clientsOf(daemon, "rest");
  const { spec, open } = await writeGated(t, daemon);
  const id = idOf(await clients.apps.installApp({ spec, detach: true }));
  await open();
  const body = await new Promise<string>((resolve, reject) => {
    const { socketPath } = daemon;
    request({ socketPath, path: `/v1/operations/${id}/events` }, (answer) => {
      text(answer).then(resolve, reject);
    })
      .on("error", reject)
      .end();
  });
  const lines = body
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as Record<string, unknown>);
  t.true(lines.some((line) => (line["line"] as { text?: string } | undefined)?.text === "two"));
  t.like(lines.at(-1), { operation: { id, state: "SUCCEEDED", result: { id: "web" } } });
});

test("a canceled operation leaves nothing of its install", async (t) => {
  const daemon = await emptyDaemon();
  const clients = clientsOf(daemon);
  const { spec } = await writeGated(t, daemon);
  const id = idOf(await clients.apps.installApp({ spec, detach: true }));
  await untilBuilt(clients, id);
  await clients.operations.cancelOperation({ id });
  const last = await finished(clients, id);
  t.like(last, { state: "CANCELED", error: { code: "canceled", detail: { reason: "canceled" } } });
  t.deepEqual((await clients.apps.listApps({})).apps, []);
  t.deepEqual(await readdir(join(daemon.storeDir, "apps")), []);
  t.like(await errorOf(clients.operations.cancelOperation({ id })), {
    code: "FailedPrecondition",
    reason: "not_possible",
  });
});

test("the operation of an attached call is canceled when its client leaves", async (t) => {
  const daemon = await emptyDaemon();
  const clients = clientsOf(daemon);
  const { spec } = await writeGated(t, daemon);
  const leave = new AbortController();
  const call = clients.apps.installApp({ spec }, { signal: leave.signal });
  call.catch(() => undefined);
  const found: { id?: string } = {};
  await eventually(async () => {
    const { operations } = await clients.operations.listOperations({ state: "RUNNING" });
    found.id = operations[0]?.id ?? "";
    assert.ok(found.id);
  });
  const id = found.id ?? "";
  t.false((await clients.operations.getOperation({ id })).detached);
  await untilBuilt(clients, id);
  leave.abort();
  await t.throwsAsync(call);
  t.is((await finished(clients, id)).state, "CANCELED");
  t.deepEqual((await clients.apps.listApps({})).apps, []);
});

test("a failed operation has the reason and the payload of its error", async (t) => {
  const daemon = await emptyDaemon();
  const clients = clientsOf(daemon);
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort(), { files: { "LICENSE.md": "Be kind.\n" } });
  const last = await finished(clients, idOf(await clients.apps.installApp({ spec: dir, detach: true })));
  t.like(last, {
    state: "FAILED",
    error: { code: "failed_precondition", detail: { reason: "license_required" } },
  });
  const payload = last.error?.detail?.payload;
  assert.ok(payload?.case === "licenseRequired");
  t.deepEqual(
    payload.value.licenses.map(({ name, text: license }) => [name, license]),
    [["LICENSE.md", "Be kind.\n"]],
  );
});

test("upgrade, clone, repull, backup, verify, restore and placement detach", async (t) => {
  const daemon = await emptyDaemon();
  const clients = clientsOf(daemon);
  const { apps, backups } = clients;
  const port = await freePort();
  const repository = join(daemon.dir, "web.git");
  const spec = await writeRepository(repository, port, [{ version: "1.0.0" }]);
  await apps.installApp({ spec });
  await addVersion(repository, port, { version: "1.1.0" });

  const ends = async (response: { detached?: Operation | undefined }): Promise<Operation> =>
    finished(clients, idOf(response));
  const upgraded = await ends(await apps.upgradeApp({ id: "web", detach: true }));
  t.like(upgraded, { kind: "upgrade", state: "SUCCEEDED", appId: "web" });
  t.like(upgraded.result, { from: "v1.0.0", to: "v1.1.0", up_to_date: false });

  const cloned = await ends(await apps.cloneApp({ id: "web", detach: true }));
  t.like(cloned.result, { id: "web-2" });

  const backedUp = await ends(await backups.createBackup({ appId: "web", detach: true }));
  const results = backedUp.result?.["results"] as { name: string; size_bytes: number }[];
  t.is(typeof results[0]?.size_bytes, "number");
  const archive = { appId: "web", storage: "local", name: results[0]?.name ?? "" };

  const verified = await ends(await backups.verifyBackup({ ...archive, detach: true }));
  t.like(verified, { kind: "verify", state: "SUCCEEDED" });
  const restored = await ends(await backups.restoreBackup({ ...archive, detach: true }));
  t.like(restored, { kind: "restore", state: "SUCCEEDED" });

  const repulled = await ends(await apps.repullApp({ id: "web", detach: true }));
  t.like(repulled, { kind: "repull", state: "FAILED", error: { detail: { reason: "pinned_image" } } });
  const placed = await ends(await apps.placeApp({ id: "web", placement: { on: "swarm" }, detach: true }));
  t.like(placed, { kind: "place", state: "FAILED" });
  t.like(await errorOf(apps.upgradeApp({ id: "nothing", detach: true })), { reason: "not_found" });
});

test("work on files is an operation only with detach", async (t) => {
  const daemon = await emptyDaemon();
  const clients = clientsOf(daemon);
  const files = daemon.client(FileService);
  const at = (name: string): string => join(daemon.dir, name);
  await writeFile(at("notes"), "first");
  await files.movePath({ from: at("notes"), to: at("moved") });
  // Other tests leave operations in a shared daemon.
  const { operations } = await clients.operations.listOperations({});
  t.false(operations.some(({ kind }) => kind === "move_files"));

  const detach = true;
  const works = {
    copy_files: () => files.copyPath({ from: at("moved"), to: at("copy"), detach }),
    move_files: () => files.movePath({ from: at("moved"), to: at("again"), detach }),
    create_archive: () => files.createArchive({ paths: [at("again")], target: at("all.zip"), detach }),
    extract_archive: () => files.extractArchive({ path: at("all.zip"), target: at("all"), detach }),
  };
  for (const [kind, work] of Object.entries(works)) {
    const response = await work();
    t.like(response.detached, { kind, appId: "", owner: process.getuid?.(), detached: true });
    const { state, error, result } = await finished(clients, idOf(response));
    t.is(state, "SUCCEEDED", `${kind}: ${error?.message ?? ""}`);
    t.truthy(result?.["path"] ?? result?.["entry"], kind);
    const { log } = await clients.operations.getOperation({ id: idOf(response) });
    t.regex(log[0]?.text ?? "", /^"\/[^"]+" to "\/[^"]+"$/);
    t.is(log.length, 1, "progress adds no line");
  }
  t.is(await readFile(at("copy"), "utf8"), "first");
  t.is(await readFile(at("all/again"), "utf8"), "first");
  await t.throwsAsync(readFile(at("moved")), { code: "ENOENT" });

  const events = await Array.fromAsync(
    files.movePathStream({ from: at("again"), to: at("last"), detach }),
    ({ event }) => event,
  );
  t.deepEqual(
    events.map(({ case: kind }) => kind),
    ["detached"],
  );
  const failed = await finished(
    clients,
    idOf(await files.copyPath({ from: at("gone"), to: at("x"), detach })),
  );
  t.like(failed, { state: "FAILED", error: { code: "not_found", detail: { reason: "not_found" } } });
});

test("a canceled copy of files leaves nothing, and svc file cp detaches", async (t) => {
  const daemon = await emptyDaemon();
  const clients = clientsOf(daemon);
  const [from, to] = [join(daemon.dir, "big"), join(daemon.dir, "copy")];
  await mkdir(from);
  for (let n = 0; n < 2_000; n++) await writeFile(join(from, String(n)), "");
  const id = (await svcAt(daemon)("file", "cp", from, to, "--detach")).stdout.trim();
  t.like(await clients.operations.getOperation({ id }), { kind: "copy_files" });
  t.is((await finished(clients, id)).state, "SUCCEEDED");
  t.is((await readdir(to)).length, 2_000);

  const second = idOf(await daemon.client(FileService).copyPath({ from, to: `${to}-2`, detach: true }));
  await clients.operations.cancelOperation({ id: second });
  t.is((await finished(clients, second)).state, "CANCELED");
  t.deepEqual(
    (await readdir(daemon.dir)).filter((name) => name.includes("copy")),
    ["copy"],
  );
});

test("operations are listed newest first, by app and state, page by page", async (t) => {
  const daemon = await emptyDaemon();
  const clients = clientsOf(daemon);
  const { apps, operations } = clients;
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort(), { id: "listed" });
  await apps.installApp({ spec: dir });
  for (const name of ["one", "two"]) await apps.cloneApp({ id: "listed", name });
  await t.throwsAsync(apps.upgradeApp({ id: "listed", version: "v9" }));

  const kinds = async (filter: { state?: string; limit?: number }) => {
    const found: string[] = [];
    let pageToken = "";
    do {
      const page = await operations.listOperations({ appId: "listed", ...filter, pageToken });
      found.push(...page.operations.map(({ kind }) => kind));
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
    return found;
  };
  t.deepEqual(await kinds({}), ["upgrade", "clone", "clone", "install"]);
  t.deepEqual(await kinds({ limit: 1 }), ["upgrade", "clone", "clone", "install"]);
  t.deepEqual(await kinds({ state: "FAILED" }), ["upgrade"]);
  t.deepEqual(await kinds({ state: "RUNNING" }), []);
  t.like(await errorOf(operations.listOperations({ pageToken: "nonsense" })), { reason: "invalid_request" });
});

testAsRoot(`another user's operation is not found${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  await using asAlice = await daemon.as(alice);
  await using asBob = await daemon.as(bob);
  const [ofAlice, ofBob, ofRoot] = [clientsOf(asAlice), clientsOf(asBob), clientsOf(daemon)];
  const { spec, open } = await writeGated(t, daemon);
  const id = idOf(await ofAlice.apps.installApp({ spec, detach: true }));
  t.like(await errorOf(ofBob.operations.getOperation({ id })), { reason: "not_found" });
  t.like(await errorOf(ofBob.operations.streamOperation({ id })), { reason: "not_found" });
  t.like(await errorOf(ofBob.operations.cancelOperation({ id })), { reason: "not_found" });
  t.deepEqual((await ofBob.operations.listOperations({})).operations, []);
  const seen = await ofRoot.operations.getOperation({ id });
  t.like(seen, { owner: alice, caller: alice });
  await open();
  t.is((await finished(ofAlice, id)).state, "SUCCEEDED");
  t.is((await ofBob.operations.listOperations({})).operations.length, 0);
});

testAsRoot(`an owner sees and cancels root's operations on their app${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  await using asAlice = await daemon.as(alice);
  const [ofAlice, ofRoot] = [clientsOf(asAlice), clientsOf(daemon)];
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort());
  await ofAlice.apps.installApp({ spec: dir });
  const manifest = 'backup: { dump: { exec: [sleep, "3600"] } }';
  await writePackage(dir, await freePort(), { version: "1.1.0", manifest });
  await ofAlice.apps.upgradeApp({ id: "web" });
  await ofAlice.apps.startApp({ id: "web" });
  const id = idOf(await ofRoot.backups.createBackup({ appId: "web", detach: true }));
  t.like(await ofAlice.operations.getOperation({ id }), { owner: alice, caller: 0, state: "RUNNING" });
  await ofAlice.operations.cancelOperation({ id });
  t.is((await finished(ofRoot, id)).state, "CANCELED");
});

testAsRoot(`a user has a limit of concurrent detached operations${needsRoot}`, async (t) => {
  await using daemon = await startDaemon({
    config: "[api.limits]\nmax_calls_per_user = 2\n[limits]\nmax_installs_per_user = 8\n",
  });
  await using connection = await daemon.as(alice);
  const clients = clientsOf(connection);
  const ids: string[] = [];
  for (const name of ["one", "two"]) {
    const { spec } = await writeGated(t, daemon, name);
    ids.push(idOf(await clients.apps.installApp({ spec, detach: true })));
  }
  const { spec } = await writeGated(t, daemon, "three");
  t.like(await errorOf(clients.apps.installApp({ spec, detach: true })), { reason: "too_many" });
  for (const id of ids) await clients.operations.cancelOperation({ id });
  for (const id of ids) t.is((await finished(clients, id)).state, "CANCELED");
});

test("events report the start and the end of an operation", async (t) => {
  const daemon = await emptyDaemon();
  const clients = clientsOf(daemon);
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort());
  const id = idOf(await clients.apps.installApp({ spec: dir, detach: true }));
  await finished(clients, id);
  const events = await Array.fromAsync(
    daemon.client(EventService).streamEvents({
      past: true,
      untilNow: true,
      kinds: ["operation.started", "operation.finished"],
    }),
  );
  t.deepEqual(
    events
      .filter(({ subject }) => subject === id)
      .map(({ kind, state, message, appId }) => [kind, state, message, appId]),
    [
      ["operation.started", "RUNNING", "install", ""],
      ["operation.finished", "SUCCEEDED", "install", "web"],
    ],
  );
});

test("the audit log records how a detached operation finished", async (t) => {
  const daemon = await emptyDaemon();
  const clients = clientsOf(daemon);
  const id = idOf(await clients.apps.installApp({ spec: join(daemon.dir, "nothing"), detach: true }));
  t.is((await finished(clients, id)).state, "FAILED");
  await eventually(async () => {
    const { records } = await daemon.client(AuditService).listAudit({});
    const results = records
      .filter(({ target }) => target === join(daemon.dir, "nothing"))
      .map(({ result }) => result);
    assert.deepEqual(results.toSorted(), ["invalid_argument", "ok"]);
  });
});

test("finished operations survive a restart of the daemon", async (t) => {
  const daemon = await emptyDaemon();
  const clients = clientsOf(daemon);
  const { spec, open } = await writeGated(t, daemon);
  const id = idOf(await clients.apps.installApp({ spec, detach: true }));
  await open();
  await finished(clients, id);
  const before = await clients.operations.getOperation({ id });
  await daemon.restart();
  t.deepEqual(await clients.operations.getOperation({ id }), before);
  t.is((await finished(clients, id)).state, "SUCCEEDED");
});

test("a daemon that stops rolls back operations in progress and says so", async (t) => {
  const daemon = await emptyDaemon();
  const clients = clientsOf(daemon);
  const { spec } = await writeGated(t, daemon);
  const id = idOf(await clients.apps.installApp({ spec, detach: true }));
  await untilBuilt(clients, id);
  await daemon.restart();
  t.deepEqual((await clients.apps.listApps({})).apps, []);
  t.like(await clients.operations.getOperation({ id }), {
    state: "INTERRUPTED",
    error: {
      code: "unavailable",
      message: "the daemon was stopped before this finished; its changes were undone",
    },
  });
});

test("an operation of a killed daemon is INTERRUPTED and states what recovery did", async (t) => {
  const daemon = await emptyDaemon();
  const clients = clientsOf(daemon);
  const { spec } = await writeGated(t, daemon);
  const id = idOf(await clients.apps.installApp({ spec, detach: true }));
  await untilBuilt(clients, id);
  await daemon.kill();
  await daemon.restart();
  await eventually(async () => {
    const operation = await clients.operations.getOperation({ id });
    assert.equal(operation.state, "INTERRUPTED");
    assert.match(operation.error?.message ?? "", /died before this finished; the daemon undid it/);
  });
  t.deepEqual((await clients.apps.listApps({})).apps, []);
});

/** The CLI with a test's daemon. */
function svcAt({ socketPath }: TestDaemon) {
  return async (...args: string[]): Promise<{ code: number; stdout: string; stderr: string }> =>
    new Promise((resolve) => {
      const argv = [main, ...args, "--socket", socketPath];
      execFile(process.execPath, argv, (error, stdout, stderr) => {
        resolve({ code: error === null ? 0 : Number(error.code), stdout, stderr });
      });
    });
}

test("the CLI detaches, lists, follows, waits for and cancels operations", async (t) => {
  t.timeout(120_000);
  const daemon = await emptyDaemon();
  const svc = svcAt(daemon);
  const { spec, open } = await writeGated(t, daemon);
  const started = await svc("install", spec, "--detach");
  const id = started.stdout.trim();
  t.regex(id, /^[0-9a-f]{12}$/);
  t.regex(started.stderr, new RegExp(`svc operations logs -f ${id}`));
  await untilBuilt(clientsOf(daemon), id);
  t.regex(
    (await svc("operations", "ls", "--state", "running")).stdout,
    new RegExp(`${id} +install +web +RUNNING`),
  );
  const following = svc("operations", "logs", "-f", id);
  const waiting = svc("operations", "wait", id);
  await open();
  t.regex((await following).stdout, /^one\ntwo$/m);
  t.like(await waiting, { code: 0, stdout: `Operation ${id} (install web) has finished\n` });

  const { spec: other } = await writeGated(t, daemon, "other");
  const second = (await svc("install", other, "--detach")).stdout.trim();
  await untilBuilt(clientsOf(daemon), second);
  t.is((await svc("operations", "cancel", second)).stdout, `Canceling operation ${second}\n`);
  const canceled = await svc("operations", "wait", second);
  t.not(canceled.code, 0);
  t.regex(canceled.stderr, /ended as CANCELED/);
  const unknown = await svc("operations", "logs", "nothing");
  t.like(unknown, { code: 3, stderr: 'svc: no operation "nothing"; list them with: svc operations ls\n' });
  const words = ["__complete", "operations", "--socket", daemon.socketPath, "logs", ""];
  const completed = await promisify(execFile)(process.execPath, [main, ...words]);
  t.regex(completed.stdout, new RegExp(second));
});

test("operations without a daemon cannot detach, with a reason", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-home-"));
  await chmod(dir, 0o777);
  t.teardown(() => rm(dir, { recursive: true, force: true, maxRetries: 3 }));
  const env = {
    ...{ PATH: process.env["PATH"] ?? "", HOME: dir, XDG_STATE_HOME: join(dir, "state") },
    ...{ XDG_CONFIG_HOME: join(dir, "config"), XDG_RUNTIME_DIR: join(dir, "runtime") },
    XDG_CACHE_HOME: join(dir, "cache"),
  };
  await writePackage(join(dir, "package"), await freePort());
  const [command, ...rest] = [...asUserWithoutSvc, process.execPath, main];
  const args = [...rest, "install", join(dir, "package"), "--detach"];
  const stderr = await new Promise<string>((resolve) => {
    execFile(command, args, { env }, (_error, _stdout, errors) => resolve(errors));
  });
  t.regex(stderr, /cannot detach: no daemon is running/);
});

testAsRoot(
  `the owner of an app sees nothing of a clone that root creates for another user${needsRoot}`,
  async (t) => {
    t.timeout(120_000);
    await using daemon = await startDaemon();
    await using asAlice = await daemon.as(alice);
    await using asBob = await daemon.as(bob);
    const package_ = join(daemon.dir, "package");
    await writePackage(package_, await freePort());
    const [ofAlice, ofBob] = [clientsOf(asAlice), clientsOf(asBob)];
    await ofAlice.apps.installApp({ spec: package_ });
    const asRootFor = { headers: { "x-svc-sudo-uid": String(bob) } };
    await clientsOf(daemon).apps.cloneApp({ id: "web", name: "secret" }, asRootFor);
    const clones = async ({ operations }: Clients) =>
      (await operations.listOperations({})).operations.filter(({ kind }) => kind === "clone");
    t.deepEqual(await clones(ofAlice), []);
    const [seen] = await clones(ofBob);
    t.is(seen?.owner, bob);
    t.is(
      await errorOf(ofAlice.operations.getOperation({ id: seen?.id ?? "" })).then(({ reason }) => reason),
      "not_found",
    );
  },
);
