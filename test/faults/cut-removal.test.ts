/**
 * An interrupted removal resumes by itself and never leaves a failed app: after the daemon's exit the next daemon
 * resumes it, and without the container engine it waits for the engine.
 */
import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { composeTest, needsCompose } from "../runtimes/support/compose-test.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { dockerTest, needsDocker } from "../support/docker-test.ts";
import { startEngine, type TestEngine } from "../support/docker.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { projectFiles, writeFiles } from "../support/packages.ts";

/** For a busy host. */
const settleMs = 90_000;

const deaf = "trap '' TERM; while :; do sleep 3600 & wait; done";
const stop = "stop: { grace: 8s }\n";
const container = `docker: { image: "svc/box:latest", entrypoint: [/bin/sh, -c], command: [${JSON.stringify(deaf)}] }\n`;

/** Apps that take long to exit, by their runtime. */
const packages: Record<string, Record<string, string>> = {
  docker: { "svc.yaml": `id: deaf\nname: Deaf\nversion: "1.0.0"\n${stop}${container}` },
  compose: projectFiles({ id: "deaf", script: deaf, volumes: { state: "/state" }, manifest: stop }),
};

async function startDeaf(daemon: TestDaemon, engine: TestEngine, runtime: string): Promise<void> {
  await engine.images.build("svc/box:latest");
  const apps = daemon.client(AppService);
  await writeFiles(join(daemon.dir, "deaf"), packages[runtime] ?? {});
  await apps.installApp({ spec: join(daemon.dir, "deaf") });
  await apps.startApp({ id: "deaf" });
}

async function untilRemoving(daemon: TestDaemon): Promise<void> {
  const apps = daemon.client(AppService);
  await eventually(async () => assert.equal((await apps.getApp({ id: "deaf" })).operation?.kind, "remove"));
}

/** Containers, volumes and directories of existing apps. */
async function restsOf(daemon: TestDaemon, engine: TestEngine): Promise<unknown[]> {
  const containers = (await engine.request("GET", "/containers/json?all=1")).expect(200) as unknown[];
  const volumes = (await engine.request("GET", "/volumes")).expect(200) as { Volumes: unknown[] | null };
  return [...containers, ...(volumes.Volumes ?? []), ...(await readdir(join(daemon.storeDir, "apps")))];
}

dockerTest(
  `a removal that takes longer than the daemon waits is finished by the next daemon${needsDocker}`,
  async (t) => {
    t.timeout(240_000);
    await using engine = await startEngine();
    await using daemon = await startDaemon({ config: engine.config });
    const apps = daemon.client(AppService);
    await startDeaf(daemon, engine, "docker");
    void apps.removeApp({ id: "deaf" }).catch(() => undefined);
    await untilRemoving(daemon);

    await daemon.restart();

    await eventually(async () => assert.deepEqual((await apps.listApps({})).apps, []), settleMs);
    t.deepEqual(await restsOf(daemon, engine), []);
  },
);

for (const runtime of Object.keys(packages)) {
  const [engineTest, needs] = runtime === "docker" ? [dockerTest, needsDocker] : [composeTest, needsCompose];

  engineTest(
    `a removal during which the engine of a ${runtime} app dies continues when the engine is back${needs}`,
    async (t) => {
      t.timeout(240_000);
      await using engine = await startEngine();
      await using daemon = await startDaemon({ config: engine.config });
      await startDeaf(daemon, engine, runtime);
      const apps = daemon.client(AppService);
      const removal = apps.removeApp({ id: "deaf" });
      await untilRemoving(daemon);

      await engine.kill();
      await eventually(async () =>
        assert.partialDeepStrictEqual(await apps.getApp({ id: "deaf" }), {
          state: "REMOVING",
          stateReason: "it waits for the container engine",
        }),
      );
      await engine.start();

      t.is((await removal).id, "deaf");
      t.deepEqual((await apps.listApps({})).apps, []);
      t.deepEqual(await restsOf(daemon, engine), []);
    },
  );
}

dockerTest(`a removal continues after its daemon and its engine were killed${needsDocker}`, async (t) => {
  t.timeout(240_000);
  await using engine = await startEngine();
  await using daemon = await startDaemon({ config: engine.config });
  await startDeaf(daemon, engine, "docker");
  const apps = daemon.client(AppService);
  void apps.removeApp({ id: "deaf" }).catch(() => undefined);
  await untilRemoving(daemon);
  await daemon.kill();
  await engine.kill();

  await daemon.restart();
  await eventually(async () =>
    assert.partialDeepStrictEqual(await apps.getApp({ id: "deaf" }), {
      state: "REMOVING",
      stateReason: "it waits for the container engine",
    }),
  );
  await engine.start();

  await eventually(async () => assert.deepEqual((await apps.listApps({})).apps, []), settleMs);
  t.deepEqual(await restsOf(daemon, engine), []);
});

dockerTest(
  `an app whose engine is unavailable is not removed, and stays unchanged${needsDocker}`,
  async (t) => {
    t.timeout(240_000);
    await using engine = await startEngine();
    await using daemon = await startDaemon({ config: engine.config });
    await startDeaf(daemon, engine, "docker");
    const apps = daemon.client(AppService);
    await engine.stop();
    await eventually(async () => assert.equal((await apps.getApp({ id: "deaf" })).state, "UNKNOWN"));

    t.like(await errorOf(apps.removeApp({ id: "deaf" })), { code: "Unavailable" });

    const { state, enabled, operation } = await apps.getApp({ id: "deaf" });
    t.deepEqual({ state, enabled, operation }, { state: "UNKNOWN", enabled: true, operation: undefined });
    await engine.start();
    await eventually(
      async () => assert.equal((await apps.getApp({ id: "deaf" })).state, "RUNNING"),
      settleMs,
    );
  },
);
