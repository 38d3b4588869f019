/** Upgrades: a version is prepared while the old one runs, starts on trial, and is rolled back if it fails. */
import assert from "node:assert/strict";
import { access, mkdir, readFile, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { sharedDaemon } from "../../support/daemon-test.ts";
import { type TestDaemon, protocolOf, startDaemon } from "../../support/daemon.ts";
import { dockerTest, needsDocker, sharedEngine } from "../../support/docker-test.ts";
import { whyNoDocker } from "../../support/docker.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { keepInMemory } from "../../support/in-memory.ts";
import { longestSilence } from "../../support/longest-silence.ts";
import { freePort, writePackage, addVersion, writeRepository } from "../../support/packages.ts";

// A new version is prepared while the old one runs: users notice only the switch.

/** The time that an upgrade may add to the app's own stop and start. */
const allowedMs = 2_000;

const engineNow = sharedEngine();
const emptyDaemon = sharedDaemon(() => (whyNoDocker === undefined ? { config: engineNow().config } : {}));

/** A web server whose build reports its start and waits for the file `go`. */
async function writeGated(dir: string, port: number, version: string, more = "true"): Promise<void> {
  const gate = `touch ${dir}.begun; until test -e ${dir}.go; do sleep 0.05; done; ${more}`;
  await writePackage(dir, port, { version, files: { "gate.sh": gate } });
  const manifest = await readFile(join(dir, "svc.yaml"), "utf8");
  const build = `  exec: [node, server.mjs]\n  build: [{ exec: [sh, gate.sh] }]\n`;
  await writeFile(join(dir, "svc.yaml"), manifest.replace("  exec: [node, server.mjs]\n", build));
}

interface Gated {
  readonly dir: string;
  readonly port: number;
  readonly url: string;
  readonly directory: string;
  /** Resolves when the build waits. */
  readonly waits: () => Promise<void>;
  /** Lets it continue. */
  readonly open: () => Promise<void>;
}

/** An app that runs at 1.0.0, and whose package is at 1.1.0 with a build that waits. */
async function gatedApp(daemon: TestDaemon, more?: string): Promise<Gated> {
  const apps = daemon.client(AppService);
  const [dir, port] = [join(daemon.dir, "package"), await freePort()];
  await writePackage(dir, port, { version: "1.0.0" });
  const { directory } = await apps.installApp({ spec: dir });
  await apps.startApp({ id: "web" });
  await writeGated(dir, port, "1.1.0", more);
  const url = `http://127.0.0.1:${port}/`;
  const waits = (): Promise<void> => eventually(() => access(`${dir}.begun`), 60_000);
  return { dir, port, url, directory, waits, open: () => writeFile(`${dir}.go`, "") };
}

async function versionAt(url: string): Promise<unknown> {
  return ((await (await fetch(url)).json()) as { version: unknown }).version;
}

test("a process keeps running while its new version is built, and is down only as long as for a restart", async (t) => {
  t.timeout(180_000);
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const { url, directory, waits, open } = await gatedApp(daemon, "sleep 3");
  await writeFile(join(directory, "data", "notes"), "ours");
  // As an upgrade leaves files that it could not remove because they are in use.
  for (const stale of ["repo.previous", "data.previous"]) {
    await mkdir(join(directory, stale));
    await writeFile(join(directory, stale, "notes"), "older");
  }
  const own = await longestSilence(url, () => apps.restartApp({ id: "web" }));

  const upgraded = await longestSilence(url, async () => {
    const upgrade = apps.upgradeApp({ id: "web", stopApp: true });
    await waits();
    t.is(await versionAt(url), "1.0.0");
    t.is((await apps.getApp({ id: "web" })).operation?.phase, "prepare");
    await open();
    t.like(await upgrade, { from: "1.0.0", to: "1.1.0", restarted: true });
  });

  t.is(await versionAt(url), "1.1.0");
  t.is(upgraded.answers.length, 2, "first one version, then the other");
  t.log(`restart ${own.silentMs.toFixed(0)} ms, upgrade ${upgraded.silentMs.toFixed(0)} ms`);
  t.true(upgraded.silentMs < own.silentMs + allowedMs);
  t.is(await readFile(join(directory, "data", "notes"), "utf8"), "ours");
  t.deepEqual((await readdir(directory)).toSorted(), ["data", "logs", "repo", "volumes"]);
});

for (const { ends, how } of [
  { ends: "fails", how: "exit 7" },
  { ends: "is canceled", how: "true" },
  { ends: "is interrupted by the daemon's exit", how: "true" },
]) {
  test(`an app is not interrupted by an upgrade whose build ${ends}`, async (t) => {
    t.timeout(180_000);
    const daemon = await emptyDaemon();
    const apps = daemon.client(AppService);
    const { url, directory, waits, open } = await gatedApp(daemon, how);
    const before = (await apps.getApp({ id: "web" })).startedAt;
    const left = new AbortController();
    const upgrade = errorOf(apps.upgradeApp({ id: "web", stopApp: true }, { signal: left.signal }));
    await waits();
    if (ends === "is canceled") left.abort();
    else if (ends === "fails") await open();
    else await daemon.kill();
    const error = await upgrade;
    if (ends === "fails") {
      t.is(error.reason, "build_failed");
      t.regex(error.message, /stays at 1\.0\.0$/);
    }
    t.is(await versionAt(url), "1.0.0");
    if (ends.includes("daemon")) await daemon.restart();
    await eventually(async () => {
      const app = await apps.getApp({ id: "web" });
      assert.deepEqual([app.state, app.version, app.operation], ["RUNNING", "1.0.0", undefined]);
      assert.deepEqual((await readdir(directory)).toSorted(), ["data", "logs", "repo", "volumes"]);
    }, 60_000);
    t.deepEqual((await apps.getApp({ id: "web" })).startedAt, before);
    await open();
    await writeGated(join(daemon.dir, "package"), Number(new URL(url).port), "1.2.0");
    t.is((await apps.upgradeApp({ id: "web", stopApp: true })).to, "1.2.0");
  });
}

/** As pip writes the programs it installs: with the environment's path in their first line. */
const venvProgram = (
  builtAt: string,
): string => `printf '#!%s/env/bin/python\\nimport sys, time\\nprint(sys.prefix, flush=True)\\ntime.sleep(3600)\\n' "$PWD" > env/bin/app
chmod +x env/bin/app
pwd > ${builtAt}`;

for (const { builds, more, step, isBeside } of [
  { builds: "a virtual environment", more: "", step: "true", isBeside: true },
  { builds: "uncopyable files", more: "clone: rebuild", step: "true", isBeside: false },
  { builds: "in a configured directory", more: "", step: "test -d ${repo}", isBeside: false },
  // Like a generated configuration; CMake rejects one that was generated in another directory.
  { builds: "files with their own path", more: "", step: "test ! -e place && pwd > place", isBeside: false },
  {
    builds: "a link to its own directory",
    more: "",
    step: 'test ! -e place && ln -s "$PWD/env" place',
    isBeside: false,
  },
]) {
  test(`a version that builds ${builds} runs in its final directory, and was built ${isBeside ? "beside" : "in"} it`, async (t) => {
    t.timeout(120_000);
    const daemon = await emptyDaemon();
    const apps = daemon.client(AppService);
    const dir = join(daemon.dir, "package");
    await mkdir(dir, { recursive: true });
    const write = async (version: string): Promise<void> => {
      const venv = { exec: ["python3", "-m", "venv", "--without-pip", "env"] };
      const build = [
        venv,
        { exec: ["sh", "-c", venvProgram(`${dir}.built-at`)] },
        { exec: ["sh", "-c", step] },
      ];
      const process = JSON.stringify({ exec: ["${repo}/env/bin/app"], build });
      const manifest = `id: snake\nname: Snake\nversion: "${version}"\nprocess: ${process}\n${more}\n`;
      await writeFile(join(dir, "svc.yaml"), manifest);
    };
    await write("1");
    const { directory } = await apps.installApp({ spec: dir });
    await apps.startApp({ id: "snake" });
    await write("2");

    t.is((await apps.upgradeApp({ id: "snake", stopApp: true })).to, "2");

    const repo = join(directory, "repo");
    t.is((await readFile(`${dir}.built-at`, "utf8")).trim(), isBeside ? `${repo}.next` : repo);
    t.regex(await readFile(join(repo, "env/bin/app"), "utf8"), new RegExp(`^#!${repo}/env/bin/python\n`));
    t.is((await apps.getApp({ id: "snake" })).state, "RUNNING");
  });
}

/** A server of one page, whose image takes longer to build than an upgrade may interrupt the app. */
const dockerfile = `FROM svc/page:1
COPY index.html /www/index.html
RUN sleep 4 && true
CMD ["httpd", "-f", "-p", "8080", "-h", "/www"]
`;

/** @param text of its page @param step the last step of the build */
async function writeContainer(
  dir: string,
  kind: "docker" | "compose",
  { version, port, text, step = "true" }: { version: string; port: number; text: string; step?: string },
): Promise<void> {
  const settings = `settings: { properties: { port: { type: integer, default: ${port}, env: PORT } } }`;
  const ports = `ports: [{ name: http, setting: port, container_port: 8080 }]`;
  const runtime = kind === "docker" ? `docker: { build: {} }\n${ports}` : "compose: { file: compose.yaml }";
  const compose = 'services: { web: { build: ., ports: ["127.0.0.1:${PORT}:8080"] } }\n';
  const files = {
    "svc.yaml": `id: page\nname: Page\nversion: "${version}"\nstop: { grace: 1s }\n${runtime}\n${settings}\n`,
    Dockerfile: dockerfile.replace("true", step),
    "index.html": text,
    ...(kind === "compose" && { "compose.yaml": compose }),
  };
  await mkdir(dir, { recursive: true });
  for (const [name, content] of Object.entries(files)) await writeFile(join(dir, name), content);
}

for (const kind of ["docker", "compose"] as const) {
  dockerTest(
    `${kind} keeps running while its new image is built, and keeps the old one if the build fails${needsDocker}`,
    async (t) => {
      t.timeout(300_000);
      await engineNow().images.build("svc/page:1");
      const daemon = await emptyDaemon();
      const apps = daemon.client(AppService);
      const [dir, port] = [join(daemon.dir, "package"), await freePort()];
      const url = `http://127.0.0.1:${port}/`;
      const answers = async (text: string): Promise<void> =>
        eventually(async () => assert.equal(await (await fetch(url)).text(), text), 30_000);
      await writeContainer(dir, kind, { version: "1", port, text: "one" });
      const lacks = await apps.installApp({ spec: dir }).then(() => "", String);
      if (/needs docker compose/.test(lacks)) {
        t.pass("this host has no compose");
        return;
      }
      t.is(lacks, "");
      await apps.startApp({ id: "page" });
      await answers("one");
      const own = await longestSilence(url, () => apps.restartApp({ id: "page" }));
      await writeContainer(dir, kind, { version: "2", port, text: "two" });

      const upgraded = await longestSilence(url, () => apps.upgradeApp({ id: "page", stopApp: true }));

      t.deepEqual(upgraded.answers, ["one", "two"]);
      t.log(`restart ${own.silentMs.toFixed(0)} ms, upgrade ${upgraded.silentMs.toFixed(0)} ms`);
      t.true(upgraded.silentMs < own.silentMs + allowedMs);

      // With the same version, so that its image would have the same name.
      await writeContainer(dir, kind, { version: "2", port, text: "spoiled", step: "false" });
      const broken = await longestSilence(url, async () => {
        t.is((await errorOf(apps.upgradeApp({ id: "page", stopApp: true }))).reason, "build_failed");
      });
      t.deepEqual(broken.answers, ["two"]);
      t.true(broken.silentMs < allowedMs, "nobody noticed");
      await apps.restartApp({ id: "page" });
      await answers("two");
      await apps.removeApp({ id: "page" });
    },
  );
}

// A new version starts on trial before the old one is removed, and asks for added licenses.

keepInMemory();

/** Changes the data that it finds, prints why it cannot continue, and exits. */
const broken = `
import { writeFileSync } from "node:fs";

writeFileSync(process.env.SVC_DATA_DIR + "/notes", "eaten by the new version");
console.error("the new version cannot read its notes");
process.exit(7);
`;

/** Does not respond on its port. */
const deaf = "console.log('I hear nothing'); setInterval(() => undefined, 1000);\n";
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
  const { payload } = error;
  t.true(payload.case === "commandFailed" && payload.value.lastLines.includes("I hear nothing"));

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

test("an upgrade stops the old version completely, and then starts the new one once", async (t) => {
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
