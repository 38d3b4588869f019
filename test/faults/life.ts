/**
 * A soak test of a daemon: apps of root and of users, and jobs, through exits of the daemon and of all processes at
 * once, killed supervisors, upgrades, stops and starts, detached operations and reloaded pages, in an order that a seed
 * decides. At the end every app is in its desired state, every written file exists, and every job ran as often as was
 * acknowledged. `node test/faults/life.ts --minutes 120 --seed 1 --containers 5` adds containers on an engine that
 * stops, is killed and hangs; `--kinds compose --acts "lose power,hang the engine"` uses only these containers and
 * actions. The short form is in kill-daemon.test.ts.
 */
import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { parseArgs } from "node:util";
import type { Client } from "@connectrpc/connect";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { ScheduleService } from "../../gen/svc/v1/schedule_pb.ts";
import { makeBootId } from "../support/boot-id.ts";
import { isRoot, startDaemon, type TestDaemon, type UserConnection } from "../support/daemon.ts";
import { startEngine } from "../support/docker.ts";
import { eventually } from "../support/eventually.ts";
import { addVersion, freePort, writePackage, writeRepository } from "../support/packages.ts";
import { processesIn, signal } from "../support/processes.ts";
import {
  containerKinds,
  engineFaults,
  expectContainers,
  installContainers,
  type ContainerKind,
} from "./life-containers.ts";
import { evidenceOf, lastWords } from "./life-evidence.ts";
import { LifeOperations } from "./life-operations.ts";

export interface LifeOptions {
  readonly seed: number;
  readonly ms: number;
  /** The minimum number of actions, even if they take longer. Default: none. */
  readonly leastActs?: number;
  /** Apps of root; each user has one more. */
  readonly rootsApps: number;
  readonly jobs: number;
  /** Apps of each kind of containers; with any there is an engine with its faults. Default: none. */
  readonly containers?: number;
  /** Only these kinds, without other apps. Default: all, beside the others. */
  readonly kinds?: readonly ContainerKind[];
  /** Names of the actions. Default: all possible ones. */
  readonly acts?: readonly string[];
  readonly log: (line: string) => void;
}

/** The expected final state. */
export interface LivingApp {
  readonly id: string;
  readonly port: number;
  readonly client: Client<typeof AppService>;
  /** The connection of the app's owner. */
  readonly connection: Pick<UserConnection, "client">;
  /** Publishes a version, if there are further ones. */
  readonly release?: (version: number) => Promise<unknown>;
  /** The directory of the app's files. */
  readonly filesDir: string;
  /** The URL to write a file, without that file's name. */
  readonly writePath: string;
  version: number;
  shouldRun: boolean;
  readonly written: string[];
}

interface LivingJob {
  readonly id: string;
  readonly file: string;
  /** Runs that the daemon acknowledged as started, and calls that failed with its exit. */
  begun: number;
  unknown: number;
}

const userUids = [1, 2, 3, 4, 5];
/** Far above the usual duration, because the host may be busy. */
const settleMs = 90_000;

const server = `
import { createServer } from "node:http";
import { openSync, fsyncSync, closeSync } from "node:fs";
createServer((request, response) => {
  const name = new URL(request.url, "http://x").searchParams.get("write");
  if (name !== null) {
    const fd = openSync("../volumes/media/" + name, "w");
    fsyncSync(fd);
    closeSync(fd);
  }
  response.end("ok");
}).listen(Number(process.env.PORT), "127.0.0.1");
`;

/** Numbers from 0 up to 1 that a seed decides (mulberry32). */
function randomBy(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** @returns a description of the action. @throws AssertionError for a violated expectation */
export async function live(options: LifeOptions): Promise<string> {
  const { seed, ms, leastActs = 0, rootsApps, jobs: jobCount, containers = 0, log } = options;
  await using resources = new AsyncDisposableStack();
  const engine = containers > 0 ? resources.use(await startEngine()) : undefined;
  // Only root may set the boot ID.
  const bootId = isRoot ? resources.use(await makeBootId()) : undefined;
  const launcher = bootId?.launcher ?? [];
  const daemon = resources.use(await startDaemon({ config: engine?.config ?? "", launcher }));
  const random = randomBy(seed);
  const pick = <T>(items: readonly T[]): T => {
    const item = items[Math.floor(random() * items.length)];
    if (item === undefined) throw new Error("there is nothing to choose from");
    return item;
  };
  const { kinds } = options;
  const apps = kinds === undefined ? await installApps(daemon, rootsApps, resources) : [];
  if (engine !== undefined)
    apps.push(...(await installContainers(daemon, engine, kinds ?? containerKinds, containers)));
  const schedules = daemon.client(ScheduleService);
  const jobs = await addJobs(daemon, jobCount);
  const counts = new Map<string, number>();
  const operations = resources.use(new LifeOperations({ daemon, apps, random, settleMs }));

  const acts: Record<string, () => Promise<void>> = {
    "stop or start": async () => {
      const app = pick(apps);
      app.shouldRun = !app.shouldRun;
      await retryWhileSettling(() =>
        app.shouldRun ? app.client.startApp({ id: app.id }) : app.client.stopApp({ id: app.id }),
      );
    },
    write: async () => {
      const app = pick(apps);
      const name = `file-${app.written.length}`;
      const answer = await fetch(`http://127.0.0.1:${app.port}${app.writePath}${name}`).catch(
        () => undefined,
      );
      if (answer?.ok === true) app.written.push(name);
    },
    "run a job": async () => {
      const job = pick(jobs);
      const { started } = await schedules.runSchedule({ id: job.id });
      if (started) job.begun += 1;
    },
    "run a job, and kill the daemon": async () => {
      const job = pick(jobs);
      const call = schedules.runSchedule({ id: job.id }).then(
        ({ started }) => (job.begun += started ? 1 : 0),
        () => (job.unknown += 1),
      );
      await daemon.kill();
      await call;
      await daemon.restart();
    },
    "end the daemon": async () => daemon.restart(),
    "lose power": async () => {
      await daemon.kill();
      await engine?.kill();
      await eventually(async () => {
        const left = processesIn(daemon.storeDir);
        for (const pid of left) signal(pid, "SIGKILL");
        assert.deepEqual(left, []);
      }, settleMs);
      await bootId?.renew();
      // Some hosts start one before the other.
      const starts = [() => daemon.restart(), async () => engine?.start()];
      for (const start of random() < 0.5 ? starts : starts.toReversed()) await start();
    },
    "kill a supervisor": async () => {
      const app = pick(apps);
      const text = await readFile(join(daemon.storeDir, "run", app.id, "state.json"), "utf8").catch(
        () => "{}",
      );
      const { supervisor } = JSON.parse(text) as { supervisor?: { pid: number } };
      // A stopped app's process exited long ago, and its PID may have been reused.
      const pids = processesIn(daemon.storeDir);
      if (supervisor !== undefined && pids.includes(supervisor.pid)) signal(supervisor.pid, "SIGKILL");
    },
    upgrade: async () => {
      const app = pick(apps.filter(({ release }) => release !== undefined));
      app.version += 1;
      await app.release?.(app.version);
      await retryWhileSettling(() => app.client.stopApp({ id: app.id }));
      await retryWhileSettling(() => app.client.upgradeApp({ id: app.id }));
      if (app.shouldRun) await retryWhileSettling(() => app.client.startApp({ id: app.id }));
    },
    ...operations.acts(),
    ...(engine && engineFaults(engine, random)),
  };

  const { acts: names = Object.keys(acts) } = options;
  /** Each action once, in an order that the seed decides; then at random. */
  const once = names
    .map((name) => ({ name, at: random() }))
    .toSorted((one, other) => one.at - other.at)
    .map(({ name }) => name);
  const endMs = performance.now() + ms;
  for (let done = 0; done < leastActs || performance.now() < endMs; done += 1) {
    const name = once.pop() ?? pick(names);
    counts.set(name, (counts.get(name) ?? 0) + 1);
    log(name);
    const act = acts[name];
    if (act === undefined) throw new Error(`there is no action "${name}": ${Object.keys(acts).join(", ")}`);
    await act().catch(async (error: unknown) => {
      throw new Error(`${name}: ${String(error)}\n${await lastWords(daemon, engine)}`, { cause: error });
    });
  }
  await settle(apps, (app) => evidenceOf(app, daemon, engine));
  if (engine !== undefined) await eventually(() => expectContainers(engine, apps), settleMs);
  await checkFiles(apps);
  await checkJobs(daemon, jobs);
  const did = [...counts, ...operations.counts].map(([name, count]) => `${count} × ${name}`).join(", ");
  return `seed ${seed}: ${apps.length} apps, ${jobs.length} jobs, ${apps.flatMap(({ written }) => written).length} files; ${did}`;
}

/** Repeats a call that meets an app whose supervisor is being replaced. */
async function retryWhileSettling(call: () => Promise<unknown>): Promise<void> {
  await eventually(async () => {
    await call();
  }, settleMs);
}

async function installApps(
  daemon: TestDaemon,
  rootsApps: number,
  resources: AsyncDisposableStack,
): Promise<LivingApp[]> {
  const apps: LivingApp[] = [];
  const files = { "server.mjs": server };
  const add = async (app: LivingApp, spec: string): Promise<void> => {
    await app.client.installApp({ spec });
    await app.client.startApp({ id: app.id });
    apps.push(app);
  };
  const common = { version: 0, shouldRun: true, writePath: "/?write=" };
  const filesDir = (id: string): string => join(daemon.storeDir, "apps", id, "volumes/media");
  for (let index = 0; index < rootsApps; index += 1) {
    const [id, port] = [`root-${index}`, await freePort()];
    const repository = join(daemon.dir, id);
    const spec = await writeRepository(repository, port, [{ id, version: "1.0.0", files }]);
    const release = (version: number): Promise<unknown> =>
      addVersion(repository, port, { id, version: `1.0.${version}`, files });
    const client = daemon.client(AppService);
    await add(
      { ...common, id, port, client, connection: daemon, release, filesDir: filesDir(id), written: [] },
      spec,
    );
  }
  for (const uid of isRoot ? userUids : []) {
    const [id, port] = [`user-${uid}`, await freePort()];
    const connection = resources.use(await daemon.as(uid));
    const directory = join(daemon.dir, id);
    const release = (version: number): Promise<void> =>
      writePackage(directory, port, { id, version: `1.0.${version}`, files });
    await release(0);
    const client = connection.client(AppService);
    await add(
      { ...common, id, port, client, connection, release, filesDir: filesDir(id), written: [] },
      directory,
    );
  }
  return apps;
}

async function addJobs(daemon: TestDaemon, count: number): Promise<LivingJob[]> {
  const jobs: LivingJob[] = [];
  for (let index = 0; index < count; index += 1) {
    const id = `job-${index}`;
    const file = join(daemon.dir, `${id}.ran`);
    await daemon.client(ScheduleService).upsertSchedule({
      id,
      trigger: "0 0 1 1 *",
      action: { type: "shell", command: `echo "$SVC_RUN_ID" >> ${file}` },
    });
    jobs.push({ id, file, begun: 0, unknown: 0 });
  }
  return jobs;
}

/** Every app is in its desired state, and responds only if it should run. */
async function settle(
  apps: readonly LivingApp[],
  evidence: (app: LivingApp) => Promise<string>,
): Promise<void> {
  for (const app of apps) {
    const { id, client, shouldRun, port } = app;
    await eventually(async () => {
      const { state, stateReason } = await client.getApp({ id });
      const expected = shouldRun ? "RUNNING" : "STOPPED";
      const serves = await fetch(`http://127.0.0.1:${port}`).then(
        ({ ok }) => ok,
        () => false,
      );
      assert.deepEqual(
        { id, state, why: state === expected && serves === shouldRun ? "" : stateReason, serves },
        { id, state: expected, why: "", serves: shouldRun },
      );
    }, settleMs).catch(async (error: unknown) => {
      throw new Error(`${String(error)}\n${await evidence(app)}`, { cause: error });
    });
  }
}

async function checkFiles(apps: readonly LivingApp[]): Promise<void> {
  for (const { id, written, filesDir } of apps) {
    const found = await readdir(filesDir);
    const lost = written.filter((name) => !found.includes(name));
    assert.deepEqual(lost, [], `files of ${id} are lost`);
  }
}

/** Each run that was acknowledged as started is recorded; a successful one ran once, and none ran twice. */
async function checkJobs(daemon: TestDaemon, jobs: readonly LivingJob[]): Promise<void> {
  const schedules = daemon.client(ScheduleService);
  for (const { id, file, begun, unknown } of jobs) {
    await eventually(async () => {
      const { runs } = await schedules.listScheduleRuns({ id, limit: 50 });
      assert.ok(runs.every(({ status }) => status !== "RUNNING"));
      const succeeded = runs.filter(({ status }) => status === "SUCCEEDED").length;
      const text = await readFile(file, "utf8").catch(() => "");
      const lines = text.split("\n").filter((line) => line !== "");
      assert.equal(new Set(lines).size, lines.length, `a run of ${id} ran twice`);
      if (runs.length === 50) return;
      assert.ok(
        runs.length >= begun && runs.length <= begun + unknown,
        `${id}: ${runs.length} runs, ${begun} begun`,
      );
      assert.ok(lines.length >= succeeded && lines.length <= runs.length, `${id} ran ${lines.length} times`);
    }, settleMs);
  }
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      minutes: { type: "string", default: "1" },
      seed: { type: "string", default: "1" },
      containers: { type: "string", default: "0" },
      kinds: { type: "string" },
      acts: { type: "string" },
    },
  });
  const { kinds, acts } = values;
  const did = await live({
    seed: Number(values.seed),
    ms: Number(values.minutes) * 60_000,
    rootsApps: 5,
    jobs: 50,
    containers: Number(values.containers),
    ...(kinds !== undefined && {
      kinds: containerKinds.filter((kind) => kinds.split(",").includes(kind)),
    }),
    ...(acts !== undefined && { acts: acts.split(",") }),
    log: (line) => console.log(new Date().toISOString(), line),
  }).catch((error: unknown) => {
    for (const each of allOf(error)) console.error(each);
    process.exit(1);
  });
  console.log(did);
}

/** The failure and the errors of its cleanup, because Node prints neither. */
function allOf(error: unknown): unknown[] {
  return error instanceof SuppressedError ? [...allOf(error.suppressed), ...allOf(error.error)] : [error];
}
