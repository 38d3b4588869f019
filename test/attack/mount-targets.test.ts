/** Working directories and mounts inside of a user's bind mounts, which the engine creates as root. */
import { lstat, mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { stringify } from "yaml";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { composeTest, needsCompose } from "../runtimes/support/compose-test.ts";
import { isRoot, needsRoot, startDaemon, type TestDaemon } from "../support/daemon.ts";
import { sharedEngine } from "../support/docker-test.ts";
import { writeFiles } from "../support/packages.ts";
import test from "ava";

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
