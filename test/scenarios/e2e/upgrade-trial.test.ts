/** A new version starts on trial before the old one is removed, and asks for added licenses. */
import assert from "node:assert/strict";
import { mkdir, readFile, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { sharedDaemon } from "../../support/daemon-test.ts";
import { protocolOf, startDaemon } from "../../support/daemon.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { keepInMemory } from "../../support/in-memory.ts";
import { addVersion, freePort, writeRepository } from "../../support/packages.ts";

keepInMemory();

const emptyDaemon = sharedDaemon();

/** Changes the data that it finds, prints why it cannot continue, and exits. */
const broken = `
import { writeFileSync } from "node:fs";

writeFileSync(process.env.SVC_DATA_DIR + "/notes", "eaten by the new version");
console.error("the new version cannot read its notes");
process.exit(7);
`;

/** Does not respond on its port. */
const deaf = "setInterval(() => undefined, 1000);\n";
const healthCheck =
  "health: { tcp: { port: http }, interval: 200ms, timeout: 200ms, retries: 2, start_period: 500ms }";

test("a version that exits at once is rolled back with its last log lines, including data", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService, protocolOf(import.meta.url));
  const [repository, port] = [join(daemon.dir, "web.git"), await freePort()];
  const spec = await writeRepository(repository, port, [{ version: "1.0.0" }]);
  const { id, directory } = await apps.installApp({ spec });
  await apps.startApp({ id });
  await writeFile(join(directory, "data", "notes"), "ours");
  await apps.stopApp({ id });
  await addVersion(repository, port, { version: "1.1.0", files: { "server.mjs": broken } });

  const error = await errorOf(apps.upgradeApp({ id }));

  t.like(error, { code: "FailedPrecondition", reason: "start_failed" });
  const { payload } = error;
  t.true(payload.case === "commandFailed" && payload.value.exitCode === 7);
  t.true(
    payload.case === "commandFailed" &&
      payload.value.lastLines.includes("the new version cannot read its notes"),
  );
  t.like(await apps.getApp({ id }), { version: "v1.0.0", state: "STOPPED" });
  t.is(await readFile(join(directory, "data", "notes"), "utf8"), "ours");
  t.deepEqual((await readdir(directory)).toSorted(), ["data", "logs", "repo", "volumes"]);
  t.is((await apps.startApp({ id })).state, "RUNNING");
});

test("a version whose health check never passes is rolled back", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const [repository, port] = [join(daemon.dir, "web.git"), await freePort()];
  const spec = await writeRepository(repository, port, [{ version: "1.0.0", manifest: healthCheck }]);
  const { id } = await apps.installApp({ spec });
  await apps.startApp({ id });
  await apps.stopApp({ id });
  await addVersion(repository, port, {
    version: "1.1.0",
    manifest: healthCheck,
    files: { "server.mjs": deaf },
  });

  const error = await errorOf(apps.upgradeApp({ id }));
  t.like(error, { code: "FailedPrecondition", reason: "start_failed" });
  t.regex(error.message, new RegExp(`^app "${id}" did not start: .*; app "${id}" stays at v1\\.0\\.0$`));

  t.like(await apps.getApp({ id }), { version: "v1.0.0", state: "STOPPED" });
});

test("an app that was never started is upgraded without a trial", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const [repository, port] = [join(daemon.dir, "web.git"), await freePort()];
  const spec = await writeRepository(repository, port, [{ version: "1.0.0" }]);
  const { id } = await apps.installApp({ spec });
  await addVersion(repository, port, { version: "1.1.0", files: { "server.mjs": broken } });

  t.is((await apps.upgradeApp({ id })).to, "v1.1.0");
});

test("an upgrade asks only for the licenses that the new version adds", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const [repository, port] = [join(daemon.dir, "web.git"), await freePort()];
  await mkdir(repository, { recursive: true });
  const files = { COPYING: "Share.\n" };
  const spec = await writeRepository(repository, port, [{ version: "1.0.0", files }]);
  const { id } = await apps.installApp({ spec, licenseAck: true });
  await addVersion(repository, port, { version: "1.1.0", files });
  t.is((await apps.upgradeApp({ id })).to, "v1.1.0", "accepted licenses are not asked for again");
  await addVersion(repository, port, { version: "1.2.0", files: { ...files, EULA: "Obey.\n" } });

  const error = await errorOf(apps.upgradeApp({ id }));

  t.like(error, { code: "FailedPrecondition", reason: "license_required" });
  t.deepEqual(
    error.payload.case === "licenseRequired" && error.payload.value.licenses.map(({ name }) => name),
    ["EULA"],
  );
  t.is((await apps.getApp({ id })).version, "v1.1.0");
  t.is((await apps.upgradeApp({ id, licenseAck: true })).to, "v1.2.0");
  await addVersion(repository, port, { version: "1.3.0", files: { ...files, EULA: "Obey.\n" } });
  t.is((await apps.upgradeApp({ id })).to, "v1.3.0");
});

test("a running app is stopped for its upgrade if requested, and runs again afterwards in any case", async (t) => {
  t.timeout(180_000);
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const [repository, port] = [join(daemon.dir, "web.git"), await freePort()];
  const spec = await writeRepository(repository, port, [{ version: "1.0.0" }]);
  const { id } = await apps.installApp({ spec });
  await apps.startApp({ id });
  t.like(await apps.upgradeApp({ id, stopApp: true }), { upToDate: true, restarted: false });
  t.like(
    await apps.upgradeApp({ id }),
    { upToDate: true, from: "v1.0.0", to: "v1.0.0", restarted: false },
    "an unavailable update is reported before a stop is required",
  );
  const nowhere = await errorOf(apps.upgradeApp({ id, version: "v9" }));
  t.like(nowhere, { code: "NotFound" }, "an unknown version is reported before a stop is required");
  t.regex(nowhere.message, /v9/);
  t.is((await apps.getApp({ id })).state, "RUNNING");

  await addVersion(repository, port, { version: "1.1.0", files: { COPYING: "Share.\n" } });
  t.is((await errorOf(apps.upgradeApp({ id }))).reason, "app_running");
  const before = (await apps.getApp({ id })).startedAt;
  t.is((await errorOf(apps.upgradeApp({ id, stopApp: true }))).reason, "license_required");
  t.deepEqual(
    (await apps.getApp({ id })).startedAt,
    before,
    "nothing is stopped before the licenses are accepted",
  );
  const upgraded = await apps.upgradeApp({ id, stopApp: true, licenseAck: true });
  t.like(upgraded, { from: "v1.0.0", to: "v1.1.0", restarted: true });
  t.like(await apps.getApp({ id }), { version: "v1.1.0", state: "RUNNING", enabled: true });
  t.like(await (await fetch(`http://127.0.0.1:${port}/`)).json(), { version: "1.1.0" });

  await addVersion(repository, port, {
    version: "1.2.0",
    files: { COPYING: "Share.\n", "server.mjs": broken },
  });
  const error = await errorOf(apps.upgradeApp({ id, stopApp: true }));
  t.is(error.reason, "start_failed");
  t.regex(error.message, /stays at v1\.1\.0$/);
  t.like(await apps.getApp({ id }), { version: "v1.1.0", state: "RUNNING" });
  await apps.stopApp({ id });
  await addVersion(repository, port, { version: "1.3.0", files: { COPYING: "Share.\n" } });
  t.like(await apps.upgradeApp({ id, stopApp: true }), { to: "v1.3.0", restarted: false });
  t.is((await apps.getApp({ id })).state, "STOPPED", "a stopped app is not started");
});

test("nothing of the old version runs when the new one starts, which is started once", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const dir = join(daemon.dir, "package");
  await mkdir(dir);
  const write = (version: string, more = "") => {
    const run = `cd $SVC_DATA_DIR; echo $$ > pid; echo ${version} >> starts; exec sleep 600`;
    const manifest = `id: once\nname: Once\nversion: "${version}"\nprocess: { exec: [sh, -c, "${run}"] }\n${more}`;
    return writeFile(join(dir, "svc.yaml"), manifest);
  };
  await write("1.0.0");
  const { id, directory } = await apps.installApp({ spec: dir });
  await apps.startApp({ id });
  const starts = join(directory, "data/starts");
  await eventually(async () => assert.equal(await readFile(starts, "utf8"), "1.0.0\n"));
  await write("2.0.0", `migrate: { exec: [sh, -c, "! kill -0 $(cat $SVC_DATA_DIR/pid)"] }\n`);
  t.like(await apps.upgradeApp({ id, stopApp: true }), { to: "2.0.0", restarted: true });
  t.is((await apps.getApp({ id })).state, "RUNNING");
  await eventually(async () => assert.equal(await readFile(starts, "utf8"), "1.0.0\n2.0.0\n"));
  await apps.stopApp({ id });
  t.is(await readFile(starts, "utf8"), "1.0.0\n2.0.0\n");
});

test("a partial copy of the data from a killed daemon is removed with its upgrade", async (t) => {
  await using daemon = await startDaemon();
  const apps = daemon.client(AppService);
  const [repository, port] = [join(daemon.dir, "web.git"), await freePort()];
  const { id, directory } = await apps.installApp({
    spec: await writeRepository(repository, port, [{ version: "1.0.0" }]),
  });
  await daemon.stop();
  await mkdir(join(directory, "data.previous.copying"));
  const store = new DatabaseSync(join(daemon.storeDir, "svc.db"));
  store
    .prepare(
      `INSERT INTO operations (app_id, kind, phase, detail, boot_id, pid, start_ticks, started_at)
       VALUES (?, 'upgrade', 'switch', '{}', 'of before', 1, 0, 0)`,
    )
    .run(id);
  store.close();
  await daemon.restart();
  await eventually(async () => assert.equal((await apps.getApp({ id })).operation, undefined), 30_000);
  t.deepEqual((await readdir(directory)).toSorted(), ["data", "logs", "repo", "volumes"]);
});
