/**
 * The daemon is killed (-9) repeatedly at random points of its work. Afterwards nothing acknowledged is lost, no
 * partial result remains, and running apps still run. With SVC_LONG=1 200 times.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFile, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import type { Client } from "@connectrpc/connect";
import test, { type ExecutionContext } from "ava";
import { type App, AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { DockerService } from "../../gen/svc/v1/docker_pb.ts";
import { type TestDaemon, startDaemon } from "../support/daemon.ts";
import { dockerTest, needsDocker, sharedEngine } from "../support/docker-test.ts";
import { eventually } from "../support/eventually.ts";
import { addVersion, freePort, writeFiles, writeRepository } from "../support/packages.ts";
import { findSwarmObstacle, startSwarm } from "../support/swarm.ts";
import { type PhasedWork, killInPhases } from "./kill-in-phases.ts";
import { live } from "./life.ts";

// AVA looks for tests as soon as it finds the first hook.
const whyNoSwarm = await findSwarmObstacle();

const isLong = process.env["SVC_LONG"] !== undefined;
const workers = isLong ? 4 : 2;
const killsEach = isLong ? 50 : 24;
/**
 * Kills fall within this multiple of the operation's last duration: some before it finishes, some after it was
 * acknowledged.
 */
const killWindow = 1.4;

/** The allowed state of one app: each field has the values that are possible after the responses so far. */
interface Expectation {
  version: string[];
  greeting: string[];
  running: boolean[];
}

type Apps = Client<typeof AppService>;
type Outcome = "acknowledged" | "refused" | "cut short";

test(`${workers} × ${killsEach} kills lose nothing that was acknowledged`, async (t) => {
  t.timeout(20 * 60_000);
  const durations = new Map<string, number>();
  // Two at a time, because a starting daemon keeps a core busy.
  const seeds = Array.from({ length: workers }, (_, at) => at + 1).values();
  const runs: KillRun[] = [];
  const work = async (): Promise<void> => {
    for (const seed of seeds) {
      await using daemon = await startDaemon();
      const run = new KillRun(t, daemon, await freePort(), seededRandom(seed), durations);
      runs.push(run);
      await run.prepare();
      for (let kill = 0; kill < killsEach; kill++) await run.runRound();
      t.log(`seed ${seed}: ${run.summary()}`);
      await run.cleanUp();
    }
  };
  await Promise.all([work(), work()]);
  const total = (how: Outcome): number => runs.reduce((sum, run) => sum + run.count(how), 0);
  // About half of them.
  t.true(total("cut short") >= (workers * killsEach) / 5, `${total("cut short")} were interrupted`);
  t.true(total("refused") <= (workers * killsEach) / 4, `${total("refused")} were rejected`);
});

class KillRun {
  readonly #t: ExecutionContext;
  readonly #daemon: TestDaemon;
  readonly #port: number;
  readonly #random: () => number;
  readonly #expected = new Map<string, Expectation>();
  readonly #counts = new Map<string, number>();
  #spec = "";
  #versions = 1;
  /** The last duration of each operation, in milliseconds. */
  readonly #durations: Map<string, number>;

  constructor(
    t: ExecutionContext,
    daemon: TestDaemon,
    port: number,
    random: () => number,
    durations: Map<string, number>,
  ) {
    this.#t = t;
    this.#daemon = daemon;
    this.#port = port;
    this.#random = random;
    this.#durations = durations;
  }

  get #apps(): Apps {
    return this.#daemon.client(AppService);
  }

  async prepare(): Promise<void> {
    this.#spec = await writeRepository(join(this.#daemon.dir, "web.git"), this.#port, [{ version: "1.0.0" }]);
    await this.#apps.installApp({ spec: this.#spec });
    await this.#check("a first install");
  }

  summary(): string {
    return [...this.#counts].map(([what, count]) => `${what} ${count}`).join(", ");
  }

  count(how: Outcome): number {
    return [...this.#counts].reduce((sum, [what, count]) => sum + (what.endsWith(` ${how}`) ? count : 0), 0);
  }

  /** One operation, one kill somewhere in it, one check of the result. */
  async runRound(): Promise<void> {
    const before = await this.#apps.listApps({});
    const survivors = await this.#pids(before.apps);
    const { name, id, expect, call } = await this.#pick(before.apps);
    const outcome = { isAcknowledged: false, isRefused: false };
    const begunMs = performance.now();
    const answered = call(this.#apps).then(
      () => {
        outcome.isAcknowledged = true;
        this.#durations.set(name, performance.now() - begunMs);
      },
      () => {
        outcome.isRefused = true;
      },
    );
    // An operation without a known duration runs to its end.
    const windowMs = (this.#durations.get(name) ?? 60_000) * killWindow;
    await Promise.race([answered, wait(this.#random() * windowMs)]);
    // If the window allows it, the kill comes some time after the response.
    if (outcome.isAcknowledged) await wait(this.#random() * 20);
    const { isRefused } = outcome;
    await this.#daemon.kill();
    const how: Outcome = outcome.isAcknowledged ? "acknowledged" : isRefused ? "refused" : "cut short";
    const count = (this.#counts.get(`${name} ${how}`) ?? 0) + 1;
    this.#counts.set(`${name} ${how}`, count);
    // An operation that has become slower would be interrupted each time.
    if (how === "cut short" && count % 2 === 0) this.#durations.delete(name);
    expect(outcome.isAcknowledged);
    await this.#daemon.restart();
    await this.#check(`${name} of ${id}, ${how}`);
    await this.#checkSurvivors(survivors, id, `${name} of ${id}, ${how}`);
  }

  async cleanUp(): Promise<void> {
    for (const { id } of (await this.#apps.listApps({})).apps) await this.#apps.removeApp({ id });
    this.#t.deepEqual(await readdir(join(this.#daemon.storeDir, "apps")), []);
    this.#t.deepEqual(await readdir(join(this.#daemon.storeDir, "run")), []);
  }

  async #pick(apps: readonly App[]): Promise<{
    name: string;
    id: string;
    expect: (acknowledged: boolean) => void;
    call: (client: Apps) => Promise<unknown>;
  }> {
    const app = apps[Math.floor(this.#random() * apps.length)];
    const roll = this.#random();
    if (app === undefined || (roll < 0.12 && apps.length < 3)) {
      return {
        name: "install",
        id: "a new app",
        expect: (acknowledged) => this.#mayHaveNew(apps, acknowledged),
        call: (client) => client.installApp({ spec: this.#spec }),
      };
    }
    const { id } = app;
    const known = this.#expected.get(id);
    if (known === undefined) throw new Error(`${id} has no expected state`);
    const isRunning = app.state === "RUNNING";
    if (roll < 0.24 && apps.length < 4) {
      return {
        name: "clone",
        id,
        expect: (acknowledged) => this.#mayHaveNew(apps, acknowledged),
        call: (client) => client.cloneApp({ id }),
      };
    }
    if (roll < 0.36) {
      const greeting = `greeting ${Math.floor(this.#random() * 1e9)}`;
      // A copy has its own.
      const port = app.ports[0]?.port ?? this.#port;
      return {
        name: "settings",
        id,
        expect: (acknowledged) => {
          known.greeting = acknowledged
            ? [JSON.stringify(greeting)]
            : [...known.greeting, JSON.stringify(greeting)];
        },
        call: (client) => client.updateAppSettings({ id, values: { greeting, port } }),
      };
    }
    if (roll < 0.64 && !isRunning) {
      const version = `1.${this.#versions++}.0`;
      await addVersion(join(this.#daemon.dir, "web.git"), this.#port, { version });
      return {
        name: "upgrade",
        id,
        expect: (acknowledged) => {
          known.version = acknowledged ? [`v${version}`] : [...known.version, `v${version}`];
        },
        call: (client) => client.upgradeApp({ id }),
      };
    }
    if (roll < 0.74) {
      return {
        name: "remove",
        id,
        // A removal that has started continues, unless the kill came before it started.
        expect: (acknowledged) => {
          if (acknowledged) this.#expected.delete(id);
        },
        call: (client) => client.removeApp({ id }),
      };
    }
    const start = !isRunning;
    return {
      name: start ? "start" : "stop",
      id,
      expect: (acknowledged) => {
        known.running = acknowledged ? [start] : [true, false];
      },
      call: (client) => (start ? client.startApp({ id }) : client.stopApp({ id })),
    };
  }

  /** An install or a clone was acknowledged, or may have finished. */
  #mayHaveNew(before: readonly App[], acknowledged: boolean): void {
    this.#pendingNew = { ids: new Set(before.map(({ id }) => id)), mustBe: acknowledged };
  }
  #pendingNew: { ids: ReadonlySet<string>; mustBe: boolean } | undefined;

  async #check(what: string): Promise<void> {
    const t = this.#t;
    const apps = await eventually(async () => {
      const { apps: listed } = await this.#apps.listApps({});
      for (const { id, state, operation, enabled } of listed) {
        if (operation !== undefined) throw new Error(`${what}: ${id} is still in ${operation.kind}`);
        if (!["STOPPED", "RUNNING", "FAILED"].includes(state)) throw new Error(`${what}: ${id} is ${state}`);
        // An app that should start or stop is about to do so.
        if (enabled !== (state === "RUNNING") && state !== "FAILED") {
          throw new Error(`${what}: ${id} is ${state}, which is not the desired state`);
        }
      }
      return listed;
    }, 20_000);
    const ids = apps.map(({ id }) => id);
    const fresh = this.#pendingNew === undefined ? [] : ids.filter((id) => !this.#pendingNew?.ids.has(id));
    if (this.#pendingNew?.mustBe === true) t.is(fresh.length, 1, `${what}: the new app exists`);
    this.#pendingNew = undefined;
    for (const app of apps) {
      const known = this.#expected.get(app.id);
      const settings = await this.#apps.getAppSettings({ id: app.id });
      const greeting = JSON.stringify(settings.values?.["greeting"]);
      if (known !== undefined) {
        t.true(
          known.version.includes(app.version),
          `${what}: ${app.id} is ${app.version}, not ${String(known.version)}`,
        );
        t.true(known.greeting.includes(greeting), `${what}: ${app.id} greets "${greeting}"`);
        t.true(known.running.includes(app.state === "RUNNING"), `${what}: ${app.id} is ${app.state}`);
      }
      this.#expected.set(app.id, {
        version: [app.version],
        greeting: [greeting],
        // A failed app whose desired state is running is retried.
        running: app.state === "FAILED" ? [true, false] : [app.state === "RUNNING"],
      });
      const manifest = await readFile(
        join(this.#daemon.storeDir, "apps", app.id, "repo", "svc.yaml"),
        "utf8",
      );
      t.true(
        manifest.includes(`version: "${app.version.slice(1)}"`),
        `${what}: the checkout of ${app.id} is its version`,
      );
      const tree = (await readdir(join(this.#daemon.storeDir, "apps", app.id))).toSorted();
      t.deepEqual(tree, ["data", "logs", "repo", "volumes"], `${what}: ${app.id} has a partial result`);
    }
    for (const id of this.#expected.keys()) {
      if (!ids.includes(id)) {
        t.true(what.startsWith("remove"), `${what}: ${id} is missing`);
        this.#expected.delete(id);
      }
    }
    t.deepEqual(
      (await readdir(join(this.#daemon.storeDir, "apps"))).toSorted(),
      ids,
      `${what}: there are orphaned directories`,
    );
  }

  /** The PIDs of running apps, by ID: an app that the operation does not affect keeps its process. */
  async #pids(apps: readonly App[]): Promise<Map<string, string>> {
    const pids = new Map<string, string>();
    for (const { id, state } of apps) {
      if (state === "RUNNING") pids.set(id, await this.#startedAt(id));
    }
    return pids;
  }

  async #startedAt(id: string): Promise<string> {
    const { startedAt } = await this.#apps.getApp({ id });
    return `${String(startedAt?.seconds)}.${String(startedAt?.nanos)}`;
  }

  async #checkSurvivors(before: ReadonlyMap<string, string>, concerned: string, what: string): Promise<void> {
    for (const [id, startedAt] of before) {
      if (id === concerned) continue;
      this.#t.is(await this.#startedAt(id), startedAt, `${what}: ${id} went on`);
    }
  }
}

/** The same numbers in every run, so that a failure can be reproduced (mulberry32). */
function seededRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

// The daemon is killed in each phase that detached operations report. Afterwards each operation has finished and
// states
// why, its app is unchanged or finished, and nothing is left behind.

const swarmTest = whyNoSwarm === undefined ? test : test.skip;
const needsSwarm = whyNoSwarm === undefined ? "" : ` (skipped: ${whyNoSwarm})`;
const engineNow = sharedEngine();

/** Kills in each phase of each kind of operation; at least one kill of each must have interrupted it. */
async function killAll(
  t: ExecutionContext,
  daemon: TestDaemon,
  kinds: Readonly<Record<string, PhasedWork>>,
  stays: readonly string[],
): Promise<void> {
  for (const [kind, work] of Object.entries(kinds)) {
    const kills = await killInPhases(daemon, kind, work, stays);
    t.log(`${kind}: ${kills.map(({ phase, state }) => `${phase || "start"} ${state}`).join(", ")}`);
    t.true(
      kills.some(({ state }) => state === "INTERRUPTED"),
      kind,
    );
  }
}

test("a daemon that is killed in any phase of a detached operation leaves consistent apps and finished operations", async (t) => {
  t.timeout(15 * 60_000);
  await using daemon = await startDaemon();
  const [apps, backups] = [daemon.client(AppService), daemon.client(BackupService)];
  const step = (seconds: number): string => `{ exec: [sleep, "${seconds}"] }`;
  const manifest = `migrate: ${step(0.3)}\nbackup: { dump: ${step(0.3)}, after: ${step(0.1)} }\n`;
  const repository = join(daemon.dir, "web.git");
  const versions = ["1.0.0", "1.1.0"].map((version) => ({ version, manifest }));
  const { directory } = await apps.installApp({
    spec: await writeRepository(repository, await freePort(), versions),
    tag: "v1.0.0",
  });
  await writeFile(join(directory, "data/bulk"), randomBytes(8 << 20));
  const notes = join(directory, "data/notes");
  await writeFile(notes, "first");
  await apps.startApp({ id: "web" });
  await backups.createBackup({ appId: "web" });
  const slow = join(daemon.dir, "slow");
  await writeFiles(slow, {
    "svc.yaml": `id: slow\nname: Slow\nversion: "1"\nprocess: { exec: [sleep, "9"], build: [${step(0.5)}] }\nmigrate: ${step(0.3)}\n`,
  });
  /** The newest archives only: each kill may add one. */
  const prune = async () => {
    const { backups: all } = await backups.listBackups({ appId: "web" });
    for (const { appId, storage, name } of all.slice(2)) await backups.deleteBackup({ appId, storage, name });
  };
  const archive = async () => {
    const [newest] = (await backups.listBackups({ appId: "web" })).backups;
    assert.ok(newest);
    const { appId, storage, name } = newest;
    return { appId, storage, name };
  };
  const versionNow = async () => (await apps.getApp({ id: "web" })).version;
  const request = { appId: "web", detach: true };
  const kinds: Record<string, PhasedWork> = {
    install: { start: () => apps.installApp({ spec: slow, detach: true }) },
    upgrade: {
      start: async () => {
        const version = (await versionNow()) === "v1.0.0" ? "v1.1.0" : "v1.0.0";
        return apps.upgradeApp({ id: "web", version, stopApp: true, backup: true, detach: true });
      },
      check: prune,
    },
    clone: { start: () => apps.cloneApp({ id: "web", detach: true }) },
    backup: { start: () => backups.createBackup(request), check: prune },
    verify: { start: async () => backups.verifyBackup({ ...(await archive()), deep: true, detach: true }) },
    restore: {
      start: async () => backups.restoreBackup({ ...(await archive()), stopApp: true, detach: true }),
    },
    "restore as new": {
      start: async () =>
        backups.restoreBackup({ ...(await archive()), asNew: true, newName: "second", detach: true }),
    },
  };
  await killAll(t, daemon, kinds, ["web"]);
});

dockerTest(
  `a daemon that is killed in any phase of a repull or a prune leaves consistent apps and finished operations${needsDocker}`,
  async (t) => {
    t.timeout(10 * 60_000);
    const engine = engineNow();
    const registry = await engine.registry();
    const tag = `${registry.host}/phases:latest`;
    const builds = { n: 0 };
    const publish = async (): Promise<void> => {
      builds.n += 1;
      await engine.images.build(tag, { labels: { n: String(builds.n) } });
      await engine.images.push(tag);
    };
    await publish();
    await using daemon = await startDaemon({ config: engine.config });
    const [apps, docker] = [daemon.client(AppService), daemon.client(DockerService)];
    const spec = join(daemon.dir, "web");
    await writeFiles(spec, {
      "svc.yaml": `id: web\nname: Web\nversion: "1"\ndocker: { image: "${tag}" }\n`,
    });
    await apps.installApp({ spec });
    await apps.startApp({ id: "web" });
    const names = Array.from({ length: 20 }, (_, n) => `unused-${n}`);
    const kinds: Record<string, PhasedWork> = {
      repull: { prepare: publish, start: () => apps.repullApp({ id: "web", detach: true }) },
      prune: {
        prepare: () => Promise.all(names.map((Name) => engine.request("POST", "/volumes/create", { Name }))),
        start: () => docker.pruneDocker({ target: "volumes", danglingOnly: false, ids: names, detach: true }),
      },
    };
    await killAll(t, daemon, kinds, ["web"]);
  },
);

swarmTest(
  `a daemon that is killed in any phase of a placement leaves a consistent app and finished operations${needsSwarm}`,
  async (t) => {
    t.timeout(10 * 60_000);
    await using swarm = await startSwarm(1);
    const tag = `${swarm.registry}/web:1`;
    await swarm.manager.images.build(tag);
    await swarm.manager.images.push(tag);
    await using daemon = await startDaemon({
      config: `[docker]\nsocket = "${swarm.manager.socket}"\npublish_address = "0.0.0.0"`,
    });
    const apps = daemon.client(AppService);
    const spec = join(daemon.dir, "web");
    await writeFiles(spec, { "svc.yaml": `id: web\nname: Web\nversion: "1"\ndocker: { image: "${tag}" }\n` });
    await apps.installApp({ spec });
    const isPlaced = async () => (await apps.getApp({ id: "web" })).placement !== undefined;
    await killAll(
      t,
      daemon,
      {
        place: {
          prepare: () => swarm.manager.images.remove(tag).catch(() => undefined),
          start: async () =>
            apps.placeApp({
              id: "web",
              placement: { on: (await isPlaced()) ? "machine" : "swarm" },
              detach: true,
            }),
          check: async () => {
            await apps.startApp({ id: "web" });
            await apps.stopApp({ id: "web" });
          },
        },
      },
      ["web"],
    );
  },
);

// A short soak test; the long one is `node test/faults/life.ts --minutes 120 --seed 1`.

/** Each action once, however slow the host is. */
const leastActs = 12;
const ends = [
  "detach work",
  "detach work and end the daemon",
  "detach work and kill the daemon",
  "end the daemon",
  "kill a supervisor",
  "lose power",
  "reload a page",
  "run a job, and kill the daemon",
  "stop or start",
  "upgrade",
];

test("after exits of the daemon, kills and upgrades, apps have their desired state, and files and runs are retained", async (t) => {
  t.timeout(600_000);
  const done: string[] = [];
  const bounds = { ms: 12_000, leastActs };
  const did = await live({ seed: 1, ...bounds, rootsApps: 2, jobs: 10, log: (line) => done.push(line) });
  t.log(did);
  t.true(done.length >= leastActs);
  t.deepEqual(
    ends.filter((end) => !done.includes(end)),
    [],
  );
});
