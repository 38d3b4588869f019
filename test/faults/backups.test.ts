/** A daemon that is killed during backups: archives are complete or absent, and nothing stays paused. */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readdirSync, readlinkSync, statSync } from "node:fs";
import { readdir, readFile, writeFile, chmod, mkdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as wait } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { readProcess } from "../../src/sys/process-table.mjs";
import { composeTest, needsCompose } from "../runtimes/support/compose-test.ts";
import { hasAge, newAgeKey } from "../support/age.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { dockerTest, needsDocker, sharedEngine } from "../support/docker-test.ts";
import { whyNoDocker } from "../support/docker.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { processesIn, signal } from "../support/processes.ts";
import { hasS3Server, startS3Server } from "../support/s3-server.ts";
import { SystemdMachine, whyNoSystemd } from "../support/systemd.ts";

// A daemon that is killed at any point while it creates, rotates, restores and deletes plain and encrypted archives:
// each archive is absent or complete, the app is unchanged or restored, and the next daemon leaves no partial result.
// `SVC_LONG=1` kills 200 times.

const isLong = process.env["SVC_LONG"] === "1";
const kills = isLong ? 200 : 10;
const storages = ["disk", "far"];
const operations = ["create", "rotate", "restore", "delete"] as const;

interface Found {
  storage: string;
  name: string;
}

/** The store marks it as incomplete. */
function unsettled(daemon: TestDaemon): number {
  using store = new DatabaseSync(join(daemon.storeDir, "svc.db"), { readOnly: true });
  const row = store.prepare("SELECT count(*) AS n FROM backup_archives WHERE is_whole = 0").get();
  return Number(row?.["n"]);
}

test(`${kills} kills leave complete archives, and the app unchanged or restored`, async (t) => {
  t.timeout(isLong ? 3_600_000 : 300_000);
  await using stack = new AsyncDisposableStack();
  const server = hasS3Server ? stack.use(await startS3Server()) : undefined;
  await using daemon = await startDaemon();
  const backups = daemon.client(BackupService);
  const apps = daemon.client(AppService);
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort());
  const { directory } = await apps.installApp({ spec: dir });
  const notes = join(directory, "data/notes");
  await writeFile(join(directory, "data/bulk"), randomBytes(12 << 20));
  const local = (name: string) =>
    ({ name, location: { case: "local", value: { dir: join(daemon.dir, name) } } }) as const;
  await backups.upsertBackupStorage(local("disk"));
  const key = hasAge ? await newAgeKey(daemon.dir, "key.txt") : undefined;
  await backups.upsertBackupStorage({
    ...(server === undefined
      ? local("far")
      : {
          name: "far",
          location: {
            case: "s3",
            value: {
              ...{ endpoint: server.endpoint, bucket: server.bucket },
              ...{ accessKey: server.accessKey, secretKey: server.secretKey },
            },
          },
        }),
    ...(key && { recipients: [key.recipient] }),
  });
  const refOf = ({ storage, name }: Found) => ({
    ...{ appId: "web", storage, name },
    ...(key && name.endsWith(".age") && { identity: key.identity }),
  });
  /** The content of `notes` in an archive. */
  const contents = new Map<string, string>();
  let content = "0";
  const create = async (keep?: number) => {
    const { results } = await backups.createBackup({ appId: "web", storages, ...(keep && { keep }) });
    return results;
  };
  await writeFile(notes, content);
  const startMs = performance.now();
  const taken = await create();
  const tookMs = performance.now() - startMs;
  const [first] = taken;
  // The encrypted one has its own name.
  for (const { name } of taken) contents.set(name, content);
  const verifyFirst = () => backups.verifyBackup({ appId: "web", storage: "disk", name: first?.name ?? "" });
  await verifyFirst();
  const seed = randomBytes(4).readUInt32LE();
  t.log(`seed ${seed}; one backup takes ${tookMs.toFixed(0)} ms`);
  let state = seed;
  const random = (below: number): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  /** It is verified last in every round and never deleted, so rotation retains it. */
  const isFirst = ({ storage, name }: Found): boolean => storage === "disk" && name === first?.name;
  const list = async (): Promise<Found[]> => (await backups.listBackups({ appId: "web" })).backups;

  for (let kill = 0; kill < kills; kill++) {
    const operation = operations[kill % operations.length] ?? "create";
    const before = await list();
    const others = before.filter((each) => !isFirst(each));
    const chosen = others[random(others.length)];
    const ref = refOf(chosen ?? { storage: "", name: "" });
    const contentBefore = content;
    if (operation === "create" || operation === "rotate") {
      content = `${kill + 1}`;
      await writeFile(notes, content);
    }
    const doing = async (): Promise<unknown> => {
      switch (operation) {
        case "create":
          return create();
        case "rotate":
          return create(1);
        case "restore":
          return backups.restoreBackup(ref);
        case "delete":
          return backups.deleteBackup(ref);
      }
    };
    const done = doing().catch(() => undefined);
    await wait(random(operation === "delete" ? 50 : tookMs * 1.2));
    await daemon.kill();
    await done;
    await daemon.restart();

    const what = `kill ${kill} in ${operation}`;
    await eventually(async () => {
      assert.equal(unsettled(daemon), 0, what);
      assert.deepEqual(await readdir(join(daemon.storeDir, "spool")), [], what);
    }, 60_000);
    const app = await eventually(async () => {
      const found = await apps.getApp({ id: "web" });
      assert.equal(found.operation, undefined, what);
      return found;
    }, 60_000);
    t.is(app.state, "STOPPED", what);
    t.deepEqual((await readdir(directory)).toSorted(), ["data", "logs", "repo", "volumes"], what);
    const after = await list();
    t.true(after.some(isFirst), `${what}: the verified one exists`);
    for (const { storage, name } of after) {
      if (!contents.has(name)) contents.set(name, content);
      if (!before.some((each) => each.storage === storage && each.name === name) || name === ref.name)
        await t.notThrowsAsync(backups.verifyBackup(refOf({ storage, name })), what);
    }
    const gone = before.filter(
      (each) => !after.some(({ storage, name }) => storage === each.storage && name === each.name),
    );
    if (operation === "create" || operation === "restore") t.deepEqual(gone, [], what);
    if (operation === "rotate" && gone.length > 0) {
      for (const { storage } of gone)
        t.true(
          after.some((each) => each.storage === storage && contents.get(each.name) === content),
          `${what}: the new one exists before an old one is removed`,
        );
    }
    if (operation === "delete") t.true(gone.length <= 1, what);
    const now = await readFile(notes, "utf8");
    if (operation === "restore")
      t.true([contentBefore, contents.get(ref.name)].includes(now), `${what}: ${now}`);
    else t.is(now, content, what);
    content = now;
    // The next round needs something to lose.
    if (after.length < 3) {
      for (const { name } of await create()) contents.set(name, content);
    }
    await verifyFirst();
  }
});

// A daemon that is killed while an app is paused for its backup: nothing stays paused.

/** A part of what is read while the app is paused. */
const bulkBytes = 96 << 20;
const maxTries = 5;
const ticking = 'while :; do echo >> "$DIR/ticks"; sleep 0.02; done';
/** A project sets it for each service. */
const isPaused = /^(the app|the container|service "(web|beside)") is paused$/;
const engineNow = sharedEngine();

test.before(async () => {
  if (whyNoDocker === undefined) await engineNow().images.build("svc/shell:1");
});

/** Root's client of a daemon, on this host or in an emulated machine. */
type Connection = Pick<TestDaemon, "client">;

async function writeFiles(dir: string, runtime: string, files: Record<string, string> = {}): Promise<void> {
  await mkdir(dir, { recursive: true });
  await chmod(dir, 0o755);
  const manifest = `id: ticks\nname: Ticks\nversion: "1.0.0"\n${runtime}\n`;
  for (const [name, text] of Object.entries({ "svc.yaml": manifest, ...files }))
    await writeFile(join(dir, name), text);
}

async function install(
  daemon: TestDaemon,
  runtime: string,
  files: Record<string, string> = {},
): Promise<string> {
  const dir = join(daemon.dir, "package");
  await writeFiles(dir, runtime, files);
  const { directory } = await daemon.client(AppService).installApp({ spec: dir, licenseAck: true });
  await begin(daemon, directory);
  return directory;
}

/** @param directory the app's directory, as seen from here */
async function begin(daemon: Connection, directory: string): Promise<void> {
  await writeFile(join(directory, "data/bulk"), randomBytes(bulkBytes));
  await daemon.client(AppService).startApp({ id: "ticks" });
}

async function ticks(directory: string): Promise<number> {
  return (await stat(join(directory, "data/ticks"))).size;
}

async function requireThawed(daemon: Connection): Promise<void> {
  await eventually(async () => {
    const app = await daemon.client(AppService).getApp({ id: "ticks" });
    assert.equal(app.state, "RUNNING");
    assert.equal(app.stateReason, "");
  }, 60_000);
}

/** Stops the app when an interrupted backup has been cleaned up. */
async function stop(daemon: Connection): Promise<void> {
  await eventually(() => daemon.client(AppService).stopApp({ id: "ticks" }), 60_000);
}

/** Whether each container of the app is paused; a container for a backup of volumes is never started. */
async function pausedContainers(): Promise<boolean[]> {
  const all = (await engineNow().request("GET", "/containers/json?all=1")).expect(200) as {
    State: string;
    Labels: Record<string, string>;
  }[];
  return all
    .filter(({ Labels, State }) => Labels["svc.app"] === "ticks" && State !== "created")
    .map(({ State }) => State === "paused");
}

/** Stops the process that reads the app's bulk file. @returns its PID @throws AssertionError if there is none */
function stopReader(directory: string): number {
  const bulk = statSync(join(directory, "data/bulk"));
  for (const pid of readdirSync("/proc").map(Number)) {
    if (!(pid > 0)) continue;
    try {
      for (const fd of readdirSync(`/proc/${pid}/fd`)) {
        const link = `/proc/${pid}/fd/${fd}`;
        if (!readlinkSync(link).endsWith("/bulk") || statSync(link).ino !== bulk.ino) continue;
        process.kill(pid, "SIGSTOP");
        return pid;
      }
    } catch {
      // The archive or its file is gone.
    }
  }
  throw new assert.AssertionError({ message: "no process reads the app" });
}

/** A backup that stops while it reads the paused app, until it may continue. */
async function pausedBackup(daemon: Connection, directory: string, options: { signal?: AbortSignal } = {}) {
  for (let tries = 1; ; tries++) {
    const backup = daemon
      .client(BackupService)
      .createBackup({ appId: "ticks", mode: "pause" }, { ...options, timeoutMs: 120_000 });
    let isOver = false;
    const settled = backup.catch(() => undefined).finally(() => (isOver = true));
    const reader = await eventually(() => (isOver ? undefined : stopReader(directory)), 60_000);
    if (reader !== undefined) {
      await eventually(async () => {
        const app = await daemon.client(AppService).getApp({ id: "ticks" });
        assert.match(app.stateReason, isPaused);
        assert.equal(app.state, "RUNNING");
        assert.notEqual(app.health, "unhealthy");
      }, 30_000);
      return { backup, settled, goOn: () => signal(reader, "SIGCONT") };
    }
    assert.ok(tries < maxTries, "each backup was over before it was seen to read");
    await backup;
  }
}

async function requireGoesOn(directory: string): Promise<void> {
  const before = await ticks(directory);
  await eventually(async () => assert.ok((await ticks(directory)) > before), 30_000);
}

/** A backup that pauses the app, one that is rejected during it, and one that fails. */
async function live(t: ExecutionContext, daemon: Connection, directory: string): Promise<void> {
  const apps = daemon.client(AppService);
  const backups = daemon.client(BackupService);
  const { backup, goOn } = await pausedBackup(daemon, directory);
  const frozenAt = await ticks(directory);
  t.like(await errorOf(apps.stopApp({ id: "ticks" })), { reason: "app_busy" });
  t.is(await ticks(directory), frozenAt);
  t.not((await apps.getApp({ id: "ticks" })).health, "unhealthy");
  goOn();
  const { results, warnings } = await backup;
  t.deepEqual(warnings, []);
  const ref = { appId: "ticks", storage: "local", name: results[0]?.name ?? "" };
  t.is((await backups.getBackup(ref)).mode, "pause");
  const listed = await backups.browseBackup({ ...ref, path: "data" });
  t.is(Number(listed.entries.find(({ path }) => path === "data/ticks")?.sizeBytes), frozenAt);
  t.like(await apps.getApp({ id: "ticks" }), { state: "RUNNING", stateReason: "" });
  await requireGoesOn(directory);

  const canceled = new AbortController();
  const doomed = await pausedBackup(daemon, directory, { signal: canceled.signal });
  canceled.abort();
  await errorOf(doomed.backup);
  doomed.goOn();
  await requireGoesOn(directory);
  await eventually(async () => {
    const { stateReason, operation } = await apps.getApp({ id: "ticks" });
    assert.deepEqual({ stateReason, operation }, { stateReason: "", operation: undefined });
  }, 30_000);
}

test("processes are paused during a backup, and resume when the daemon is killed", async (t) => {
  await using daemon = await startDaemon();
  const script = JSON.stringify(`(setsid sh -c 'while :; do sleep 0.02; done' &) ; ${ticking}`);
  const directory = await install(daemon, `process: { exec: [sh, -c, ${script}], env: { DIR: "\${data}" } }`);
  await live(t, daemon, directory);

  const { settled, goOn } = await pausedBackup(daemon, directory);
  await daemon.kill();
  goOn();
  await settled;
  await requireGoesOn(directory);
  const states = processesIn(directory).flatMap((pid) => readProcess(pid)?.state ?? []);
  t.true(states.length >= 2 && !states.includes("T"), states.join());
  await daemon.restart();
  const apps = daemon.client(AppService);
  await eventually(async () => assert.equal((await apps.getApp({ id: "ticks" })).state, "RUNNING"));
  t.is((await apps.getApp({ id: "ticks" })).stateReason, "");
  await stop(daemon);
});

dockerTest(
  `a container is paused during a backup, and resumes with the next daemon${needsDocker}`,
  async (t) => {
    const engine = engineNow();
    await using daemon = await startDaemon({ config: engine.config });
    const port = await freePort();
    const script = `echo ok > /tmp/ok; httpd -p 8080 -h /tmp; ${ticking}`;
    const directory = await install(
      daemon,
      `docker: { image: "svc/shell:1", entrypoint: [/bin/sh, -c], command: [${JSON.stringify(script)}], env: { DIR: "\${data}" } }
ports: [{ name: http, default: ${port}, container_port: 8080 }]
health: { http: { port: http, path: /ok }, interval: 100ms, timeout: 100ms, retries: 1, start_period: 1m }`,
    );
    await live(t, daemon, directory);
    const { settled, goOn } = await pausedBackup(daemon, directory);
    await daemon.kill();
    goOn();
    await settled;
    t.deepEqual(await pausedContainers(), [true], "the engine has no such container");
    await daemon.restart();
    await eventually(async () => assert.deepEqual(await pausedContainers(), [false]), 30_000);
    await requireGoesOn(directory);
    await requireThawed(daemon);
    await stop(daemon);
    await daemon.client(AppService).removeApp({ id: "ticks" });
  },
);

composeTest(
  `all containers of a project are paused during a backup, and resume with the next daemon${needsCompose}`,
  async (t) => {
    const engine = engineNow();
    await using daemon = await startDaemon({ config: engine.config });
    // One container that writes, and one that only shows whether the app is paused.
    const service = (command: string) => ({
      image: "svc/shell:1",
      command: ["/bin/sh", "-c", command.replaceAll("$", "$$$$")],
      volumes: ["${SVC_DATA_DIR}:/state", "kept:/kept"],
      environment: { DIR: "/state" },
    });
    const services = { web: service(ticking), beside: service("while :; do sleep 1; done") };
    const directory = await install(daemon, "compose: { file: compose.yaml }", {
      "compose.yaml": JSON.stringify({ services, volumes: { kept: {} } }),
    });
    await live(t, daemon, directory);
    const { settled, goOn } = await pausedBackup(daemon, directory);
    await daemon.kill();
    goOn();
    await settled;
    t.deepEqual(await pausedContainers(), [true, true], "the engine has no such container");
    await daemon.restart();
    await eventually(async () => assert.deepEqual(await pausedContainers(), [false, false]), 30_000);
    await requireGoesOn(directory);
    await requireThawed(daemon);
    await stop(daemon);
    await daemon.client(AppService).removeApp({ id: "ticks" });
  },
);

(whyNoSystemd === undefined ? test : test.skip)(
  `a service stands still while it is backed up, and goes on with the next daemon${
    whyNoSystemd === undefined ? "" : ` (skipped: ${whyNoSystemd})`
  }`,
  async (t) => {
    t.timeout(5 * 60_000);
    await using machine = await SystemdMachine.withSvc();
    await writeFiles(
      join(machine.dir, "etc", "ticks"),
      `service: { exec: [sh, -c, ${JSON.stringify(ticking)}], env: { DIR: "\${data}" } }`,
    );
    await machine.boot();
    const apps = machine.client(AppService);
    await eventually(() => apps.listApps({}), 60_000);
    const { directory: inside } = await apps.installApp({ spec: "/etc/svc/ticks", licenseAck: true });
    const directory = inside.replace("/var/lib/svc", join(machine.dir, "store"));
    await begin(machine, directory);
    await live(t, machine, directory);

    const { settled, goOn } = await pausedBackup(machine, directory);
    const frozen = async (): Promise<string> =>
      (await machine.systemctl("show", "--property=FreezerState", "svc-ticks.service")).trim();
    t.is(await frozen(), "FreezerState=frozen");
    const before = await machine.systemctl("show", "--property=MainPID", "svc");
    await machine.systemctl("kill", "--signal=SIGKILL", "--kill-who=main", "svc");
    goOn();
    await settled;
    await eventually(async () => {
      assert.notEqual(await machine.systemctl("show", "--property=MainPID", "svc"), before);
      assert.equal(await frozen(), "FreezerState=running");
    }, 60_000);
    await requireGoesOn(directory);
    await requireThawed(machine);
  },
);
