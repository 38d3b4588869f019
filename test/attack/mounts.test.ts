/** Attacks of a user through mounts, volumes and compose files. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { lstat, mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { stringify } from "yaml";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { composeTest, needsCompose } from "../runtimes/support/compose-test.ts";
import { composeGenerations } from "../support/compose-generations.ts";
import { isRoot, needsRoot, startDaemon, type TestDaemon } from "../support/daemon.ts";
import { sharedEngine } from "../support/docker-test.ts";
import { startEngine, whyNoDocker } from "../support/docker.ts";
import { eventually } from "../support/eventually.ts";
import { writeFiles, projectFiles } from "../support/packages.ts";
import { attackComposeWrites } from "./compose-writes.ts";

// Working directories and mounts inside of a user's bind mounts, which the engine creates as root.

const engineNow = sharedEngine();
const attacker = 65_534;
const targetsTest = isRoot ? composeTest : test.skip;
const missing = isRoot ? needsCompose : needsRoot;
const head = 'id: nested\nname: Nested\nversion: "1"\nstop: { grace: 1s }\n';

/** Entries below a directory that are not the attacker's. */
async function othersIn(directory: string): Promise<string[]> {
  const others: string[] = [];
  for (const entry of await readdir(directory, { recursive: true })) {
    if ((await lstat(join(directory, entry))).uid !== attacker) others.push(entry);
  }
  return others.sort();
}

async function install(daemon: TestDaemon, files: Readonly<Record<string, string>>) {
  const user = await daemon.as(attacker);
  const apps = user.client(AppService);
  const dir = join(daemon.dir, "nested");
  await writeFiles(dir, files);
  const { directory } = await apps.installApp({ spec: dir });
  return { user, apps, directory };
}

const project = (service: object, rest: object = {}): Record<string, string> => ({
  "svc.yaml": `${head}compose: { file: compose.yaml }\n`,
  "compose.yaml": stringify({
    services: { web: { image: "svc/nested:1", stop_grace_period: "0s", ...service } },
    ...rest,
  }),
});

for (const [what, service, rest, expected] of [
  ["a working directory", { volumes: ["./drop:/drop"], working_dir: "/drop/a/b" }, {}, ["a", "a/b"]],
  ["the working directory of an image", { volumes: ["./drop:/image"] }, {}, ["work", "work/dir"]],
  ["a volume of an image", { volumes: ["./drop:/kept"] }, {}, ["by", "by/image"]],
  [
    "a volume, a bind, a file and memory",
    {
      volumes: ["./drop:/drop", "kept:/drop/v/1", "./other:/drop/b/1", "./svc.yaml:/drop/f/1:ro"],
      tmpfs: ["/drop/t/1:size=1m"],
    },
    { volumes: { kept: {} } },
    ["b", "b/1", "f", "f/1", "t", "t/1", "v", "v/1"],
  ],
  ["a control group", { volumes: ["./drop:/sys"] }, {}, ["fs", "fs/cgroup"]],
] as const) {
  targetsTest(`${what} inside of a bind belongs to the owner of the app${missing}`, async (t) => {
    t.timeout(120_000);
    const engine = engineNow();
    await engine.images.build("svc/nested:1", { workdir: "/image/work/dir", volumes: ["/kept/by/image"] });
    await using daemon = await startDaemon({ config: engine.config });
    const { user, apps, directory } = await install(daemon, project(service, rest));
    await using _user = user;
    await apps.startApp({ id: "nested" });
    const drop = join(directory, "data/drop");
    t.deepEqual((await readdir(drop, { recursive: true })).sort(), expected);
    t.deepEqual(await othersIn(drop), []);

    // Removed targets are created again before the next start.
    await apps.stopApp({ id: "nested" });
    for (const name of await readdir(drop)) await rm(join(drop, name), { recursive: true });
    await apps.startApp({ id: "nested" });
    t.deepEqual(await othersIn(drop), []);
    await apps.removeApp({ id: "nested" });
  });
}

targetsTest(`working directories of a docker app belong to its owner${missing}`, async (t) => {
  const engine = engineNow();
  await engine.images.build("svc/nested:2", { workdir: "/image/work/dir" });
  await using daemon = await startDaemon({ config: engine.config });
  const { user, apps, directory } = await install(daemon, {
    "svc.yaml": `${head}docker: { image: "svc/nested:2" }\nvolumes: [{ name: image, path: /image }]\n`,
  });
  await using _user = user;
  await apps.startApp({ id: "nested" });
  const volume = join(directory, "volumes/image");
  t.deepEqual((await readdir(volume, { recursive: true })).sort(), ["work", "work/dir"]);
  t.deepEqual(await othersIn(volume), []);
  await apps.removeApp({ id: "nested" });
});

targetsTest(`an app is removed although the engine created directories in its data${missing}`, async (t) => {
  const engine = engineNow();
  await engine.images.build("svc/nested:3");
  await using daemon = await startDaemon({ config: engine.config });
  const { user, apps, directory } = await install(
    daemon,
    project({ image: "svc/nested:3", volumes: ["./drop:/drop"] }),
  );
  await using _user = user;
  await apps.startApp({ id: "nested" });
  await mkdir(join(directory, "data/drop/by/engine"), { recursive: true });
  await apps.removeApp({ id: "nested" });
  await t.throwsAsync(lstat(directory), { code: "ENOENT" });
});

// Volumes and containers of apps whose IDs, joined with a name in the compose file, result in the same text.

const victim = 5;

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
  const engine = engineNow();
  await engine.images.build("svc/box:latest");
  await using daemon = await startDaemon({ config: engine.config });
  await using theirs = await daemon.as(victim);
  await using mine = await daemon.as(attacker);
  for (const [theirId, theirVolume, myId, myVolume] of [
    ["site", "db_data", "site_db", "data"],
    ["home.site", "data", `home-site-${sha256("home.site").slice(0, 8)}`, "data"],
  ] as const) {
    for (const [connection, id, volume] of [
      [theirs, theirId, theirVolume],
      [mine, myId, myVolume],
    ] as const) {
      await connection
        .client(AppService, "grpc")
        .installApp({ spec: await writeProject(daemon, id, volume) });
    }
    const logLines = async (connection: Pick<TestDaemon, "client">, id: string): Promise<string[]> => {
      const { lines } = await connection.client(AppService, "grpc").getAppLogs({ id, tail: 1 });
      return lines.map(({ text }) => text.replace(/^web +\| /, ""));
    };
    const apps = theirs.client(AppService, "grpc");
    await apps.startApp({ id: theirId });
    await eventually(async () => assert.deepEqual(await logLines(theirs, theirId), ["found:"]), 60_000);

    await mine.client(AppService, "grpc").startApp({ id: myId });
    await eventually(async () => assert.deepEqual(await logLines(mine, myId), ["found:"]), 60_000);
    await mine.client(AppService).removeApp({ id: myId });
    t.is((await apps.getApp({ id: theirId })).state, "RUNNING");
    await apps.restartApp({ id: theirId });
    await eventually(
      async () => assert.deepEqual(await logLines(theirs, theirId), [`found: ${theirId}`]),
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

// Compose files of users must not make programs that run as root write into users' directories.

const missingCompose =
  whyNoDocker ??
  (isRoot ? composeGenerations.every((one) => one.missing !== "") && "needs docker-compose" : "needs root");
const attackTest = missingCompose === false ? test : test.skip;

attackTest(
  `no compose file makes root write into its owner's directory or exceeds a user's limits${missingCompose === false ? "" : ` (skipped: ${missingCompose})`}`,
  async (t) => {
    t.timeout(300_000);
    for (const { attack, text, isGood } of await attackComposeWrites()) {
      t.log(`${attack}: ${text}`);
      t.true(isGood, `${attack}: ${text}`);
    }
  },
);
