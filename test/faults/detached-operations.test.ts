/**
 * The daemon is killed in each phase that detached operations report. Afterwards each operation has finished and states
 * why, its app is unchanged or finished, and nothing is left behind.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { DockerService } from "../../gen/svc/v1/docker_pb.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { dockerTest, needsDocker, sharedEngine } from "../support/docker-test.ts";
import { findSwarmObstacle, startSwarm } from "../support/swarm.ts";
import { freePort, writeFiles, writeRepository } from "../support/packages.ts";
import { killInPhases, type PhasedWork } from "./kill-in-phases.ts";

// AVA looks for tests as soon as it finds the first hook.
const whyNoSwarm = await findSwarmObstacle();
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
