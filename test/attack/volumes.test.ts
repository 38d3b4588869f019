/** What a user tries by the names that compose gives volumes and networks: of several apps they may be the same. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { composeProjectOf } from "../../src/docker/attribution.ts";
import { composeTest, needsCompose } from "../runtimes/support/compose-test.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { startEngine } from "../support/docker.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { projectFiles, writeFiles } from "../support/packages.ts";

const victim = 5;
const attacker = 65_534;

/** An app that keeps one volume, and says what is in it. */
async function writeProject(daemon: TestDaemon, id: string, volume: string): Promise<string> {
  const dir = join(daemon.dir, id);
  const script = `echo found: $(cat /state/* 2>/dev/null); echo ${id} > /state/${id}; exec sleep infinity`;
  const service = { stop_grace_period: "0s" };
  await writeFiles(dir, projectFiles({ id, script, service, volumes: { [volume]: "/state" } }));
  return dir;
}

composeTest(`an app does not get at what has the same name and is another's${needsCompose}`, async (t) => {
  await using engine = await startEngine();
  await engine.images.build("svc/box:latest");
  await using daemon = await startDaemon({ config: engine.config });
  await using theirs = await daemon.as(victim);
  await using mine = await daemon.as(attacker);
  for (const [theirId, theirVolume, myId, myVolume] of [
    ["site", "db_data", "site_db", "data"],
    ["home.site", "data", composeProjectOf("home.site").slice("svc-".length), "data"],
  ] as const) {
    for (const [door, id, volume] of [
      [theirs, theirId, theirVolume],
      [mine, myId, myVolume],
    ] as const) {
      await door.client(AppService, "grpc").installApp({ spec: await writeProject(daemon, id, volume) });
    }
    const said = async (door: Pick<TestDaemon, "client">, id: string): Promise<string[]> => {
      const { lines } = await door.client(AppService, "grpc").getAppLogs({ id, tail: 1 });
      return lines.map(({ text }) => text.replace(/^web +\| /, ""));
    };
    const apps = theirs.client(AppService, "grpc");
    await apps.startApp({ id: theirId });
    await eventually(async () => assert.deepEqual(await said(theirs, theirId), ["found:"]), 60_000);

    const refusal = await errorOf(mine.client(AppService, "grpc").startApp({ id: myId }));
    t.regex(refusal.message, /is there already and is not of app/);
    await mine.client(AppService).removeApp({ id: myId });
    t.is((await apps.getApp({ id: theirId })).state, "RUNNING");
    await apps.restartApp({ id: theirId });
    await eventually(
      async () => assert.deepEqual(await said(theirs, theirId), [`found: ${theirId}`]),
      60_000,
    );
  }
});
