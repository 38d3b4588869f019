/** Volumes and containers of apps whose IDs, joined with a name in the compose file, result in the same text. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { join } from "node:path";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { composeTest, needsCompose } from "../runtimes/support/compose-test.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { startEngine } from "../support/docker.ts";
import { eventually } from "../support/eventually.ts";
import { projectFiles, writeFiles } from "../support/packages.ts";

const victim = 5;
const attacker = 65_534;

const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");

/** An app with one volume that prints its content. */
async function writeProject(daemon: TestDaemon, id: string, volume: string): Promise<string> {
  const dir = join(daemon.dir, id);
  const script = `echo found: $(cat /state/* 2>/dev/null); echo ${id} > /state/${id}; exec sleep infinity`;
  const service = { stop_grace_period: "0s" };
  await writeFiles(dir, projectFiles({ id, script, service, volumes: { [volume]: "/state" } }));
  return dir;
}

composeTest(`apps with the same joined name each start with their own volume${needsCompose}`, async (t) => {
  await using engine = await startEngine();
  await engine.images.build("svc/box:latest");
  await using daemon = await startDaemon({ config: engine.config });
  await using theirs = await daemon.as(victim);
  await using mine = await daemon.as(attacker);
  for (const [theirId, theirVolume, myId, myVolume] of [
    ["site", "db_data", "site_db", "data"],
    ["home.site", "data", `home-site-${sha256("home.site").slice(0, 8)}`, "data"],
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

    await mine.client(AppService, "grpc").startApp({ id: myId });
    await eventually(async () => assert.deepEqual(await said(mine, myId), ["found:"]), 60_000);
    await mine.client(AppService).removeApp({ id: myId });
    t.is((await apps.getApp({ id: theirId })).state, "RUNNING");
    await apps.restartApp({ id: theirId });
    await eventually(
      async () => assert.deepEqual(await said(theirs, theirId), [`found: ${theirId}`]),
      60_000,
    );
  }
});

composeTest(`a restart with other mounts leaves no anonymous volumes${needsCompose}`, async (t) => {
  await using engine = await startEngine();
  await engine.images.build("svc/box:latest");
  await using daemon = await startDaemon({ config: engine.config });
  await using user = await daemon.as(attacker);
  const apps = user.client(AppService);
  const dir = join(daemon.dir, "moves");
  await writeFiles(dir, {
    "svc.yaml": `id: moves
name: Moves
version: "1"
compose: { file: compose.yaml }
stop: { grace: 1s }
settings: { properties: { place: { type: string, default: a, env: PLACE } } }
`,
    "compose.yaml": `services: { web: { image: "svc/box:latest", stop_grace_period: 0s, volumes: ["/kept", "/\${PLACE}"] } }\n`,
  });
  const volumes = async (): Promise<string[]> => {
    const answer = (await engine.request("GET", "/volumes")).expect(200);
    return ((answer as { Volumes: { Name: string }[] | null }).Volumes ?? []).map(({ Name }) => Name);
  };
  await apps.installApp({ spec: dir });
  await apps.startApp({ id: "moves" });
  const before = await volumes();
  t.is(before.length, 2);
  await apps.updateAppSettings({ id: "moves", values: { place: "b" } });
  await apps.restartApp({ id: "moves" });
  const after = await volumes();
  t.is(after.length, 2);
  t.is(after.filter((name) => before.includes(name)).length, 1);
  await apps.removeApp({ id: "moves" });
  t.deepEqual(await volumes(), []);
});
