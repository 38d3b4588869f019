/** Data of compose projects survives upgrades, rollbacks and restarts, and a clone gets its own copy. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import type { VolumeInspectInfo } from "dockerode";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { isPlain } from "../../../src/runtimes/compose/volume-copy.ts";
import { composeTest, needsCompose } from "../../runtimes/support/compose-test.ts";
import { isRoot, startDaemon } from "../../support/daemon.ts";
import { dockerTest, needsDocker, sharedEngine } from "../../support/docker-test.ts";
import { whyNoDocker, startEngine, type TestEngine } from "../../support/docker.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { ownershipOf } from "../../support/ownership.ts";
import { projectFiles, writeFiles } from "../../support/packages.ts";

// Data that compose projects write next to their compose file survives upgrades, rollbacks, clones and restarts.

const run = promisify(execFile);
const nobody = 65534;
const engineNow = sharedEngine();

test.before(async () => {
  if (whyNoDocker === undefined) await engineNow().images.build("svc/shell:1");
});

interface Shape {
  readonly name: string;
  /** A volume as in a compose file; the container writes into `/d`. */
  readonly volumes: readonly string[];
  /** Its path in the app's directory. */
  readonly place: string;
  /** Files of the checkout. */
  readonly files?: Readonly<Record<string, string>>;
}

/** The ways in which real projects store their data. */
const allShapes: readonly Shape[] = [
  { name: "missing", volumes: ["./missing:/d"], place: "data/missing" },
  { name: "deep", volumes: ["./deep/er/db:/d"], place: "data/deep/er/db" },
  { name: "shipped", volumes: ["./shipped:/d"], place: "data/shipped", files: { "shipped/seed": "seed\n" } },
  { name: "kept", volumes: ["./kept:/d"], place: "data/kept", files: { "kept/.gitkeep": "" } },
  { name: "sibling-a", volumes: ["./pair/a:/d"], place: "data/pair/a" },
  { name: "sibling-b", volumes: ["./pair/b:/d"], place: "data/pair/b" },
  { name: "writer", volumes: ["./shared:/d"], place: "data/shared" },
  { name: "reader", volumes: ["./shared:/r:ro", "./own:/d"], place: "data/own" },
  { name: "long", volumes: ["{ type: bind, source: ./long, target: /d }"], place: "data/long" },
  { name: "variable", volumes: ["${STORE:-./store}:/d"], place: "data/store" },
  { name: "consistent", volumes: ["./consistent:/d:cached"], place: "data/consistent" },
  { name: "like-a-file", volumes: ["./acme.json:/d"], place: "data/acme.json" },
  {
    name: "configured",
    volumes: ["./app.conf:/etc/app.conf:ro", "./configured:/d"],
    place: "data/configured",
    files: { "app.conf": "VERSION" },
  },
  {
    name: "with-rules",
    volumes: ["./rules:/etc/rules:ro", "./ruled:/d"],
    place: "data/ruled",
    files: { "rules/all": "VERSION" },
  },
  { name: "settled", volumes: ["${SVC_DATA_DIR}/settled:/d"], place: "data/settled" },
];

/** Only root's apps may let the engine label files for SELinux. */
const labelled: Shape = { name: "selinux", volumes: ["./labelled:/d:z"], place: "data/labelled" };

/**
 * The number of shapes per service, because containers take long. Shapes that share a path belong to different
 * services.
 */
const shapesEach = 4;

function filesOf(
  shapes: readonly Shape[],
  version: string,
  command = "trap 'exit 0' TERM; sleep 3600 & wait",
): Record<string, string> {
  const count = Math.ceil(shapes.length / shapesEach);
  const services = Array.from({ length: count }, (_, at) => {
    const theirs = shapes.filter((_shape, index) => index % count === at);
    const volumes = theirs.flatMap(({ name, volumes }) =>
      volumes.map((volume) => `      - ${volume.replace(/(:| )\/d(?![^: ])/, `$1/of/${name}`)}\n`),
    );
    const shown = "$$(cat /etc/app.conf /etc/rules/all /r/log 2>/dev/null)";
    const writes = theirs.map(
      ({ name }) => `echo ${version} >> /of/${name}/log; echo "${shown}" > /of/${name}/shown; `,
    );
    const script = JSON.stringify(`${writes.join("")}${command}`);
    return `  service-${at}:\n    image: svc/shell:1\n    network_mode: none\n    command: ["/bin/sh", "-c", ${script}]\n    volumes:\n${volumes.join("")}`;
  });
  return {
    "svc.yaml": `id: shapes\nname: Shapes\nversion: "${version}"\ncompose: { file: compose.yaml }\nstop: { grace: 20s }\nrestart: { policy: never }\n`,
    "compose.yaml": `services:\n${services.join("")}`,
    ...Object.fromEntries(
      shapes.flatMap(({ files = {} }) =>
        Object.entries(files).map(([path, text]) => [path, text.replace("VERSION", version)]),
      ),
    ),
  };
}

async function commit(
  repository: string,
  uid: number,
  version: string,
  files: Record<string, string>,
): Promise<void> {
  for (const [path, text] of Object.entries(files)) {
    await mkdir(join(repository, dirname(path)), { recursive: true });
    await writeFile(join(repository, path), text);
  }
  const git = async (...args: string[]): Promise<unknown> =>
    run("git", [
      ...["-C", repository, "-c", `safe.directory=${repository}`],
      ...["-c", "user.name=t", "-c", "user.email=t@example.org", ...args],
    ]);
  await git("init", "--quiet", "--initial-branch=main");
  await git("add", "--all");
  await git("commit", "--quiet", "--message", version);
  await git("tag", `v${version}`);
  if (isRoot) await run("chown", ["-R", `${uid}:${uid}`, repository]);
}

for (const uid of isRoot ? [nobody, 0] : [process.getuid?.() ?? 0]) {
  // An app of the daemon's own user handles all shapes alike.
  const [whose, shapes] =
    uid === nobody ? ["a user's", allShapes] : ["svc's own", [...allShapes.slice(0, 4), labelled]];
  dockerTest(
    `every byte of ${whose} project survives, in ${shapes.length} shapes${needsDocker}`,
    async (t) => {
      t.timeout(15 * 60_000);
      await using daemon = await startDaemon({ config: engineNow().config });
      await using connection = uid === nobody ? await daemon.as(nobody) : undefined;
      const apps = (connection ?? daemon).client(AppService);
      const repository = join(daemon.dir, "shapes.git");
      await commit(repository, uid, "1.0.0", filesOf(shapes, "1.0.0"));
      const spec = `file://${repository}`;
      const lacks = await apps.installApp({ spec }).then(
        () => "",
        (error: unknown) => String(error),
      );
      if (/needs docker compose/.test(lacks)) {
        t.pass("this host has no compose");
        return;
      }
      t.is(lacks, "");
      const { directory } = await apps.getApp({ id: "shapes" });
      const found = async (file: string, root = directory): Promise<Record<string, string>> =>
        Object.fromEntries(
          await Promise.all(
            shapes.map(async ({ name, place }) => [
              name,
              (await readFile(join(root, place, file), "utf8").catch(String)).trim(),
            ]),
          ),
        ) as Record<string, string>;
      const everywhere = (text: string): Record<string, string> =>
        Object.fromEntries(shapes.map(({ name }) => [name, text]));

      await apps.startApp({ id: "shapes" });
      await apps.stopApp({ id: "shapes" });
      t.deepEqual(await found("log"), everywhere("1.0.0"));
      t.is(await readFile(join(directory, "data/shipped/seed"), "utf8"), "seed\n");

      const lines = ["1.0.0"];
      for (const version of uid === nobody ? ["1.1.0", "1.2.0"] : ["1.2.0"]) {
        await commit(repository, uid, version, filesOf(shapes, version));
        await apps.upgradeApp({ id: "shapes" });
        await apps.startApp({ id: "shapes" });
        await apps.stopApp({ id: "shapes" });
        // During the trial, and afterwards.
        lines.push(version, version);
        t.deepEqual(await found("log"), everywhere(lines.join("\n")), version);
      }
      const own = { configured: "1.2.0", "with-rules": "1.2.0" };
      if (shapes === allShapes) t.like(await found("shown"), own, "the checkout's own file is new");

      await commit(repository, uid, "1.3.0", filesOf(shapes, "1.3.0", "exit 7"));
      t.is((await errorOf(apps.upgradeApp({ id: "shapes" }))).reason, "start_failed");
      t.like(await apps.getApp({ id: "shapes" }), { version: "v1.2.0" });
      t.deepEqual(await found("log"), everywhere(lines.join("\n")), "rolled back");

      const clone = await apps.cloneApp({ id: "shapes" });
      const cloned = await apps.getApp({ id: clone.id });
      t.deepEqual(await found("log", cloned.directory), everywhere(lines.join("\n")), "cloned");
      await apps.startApp({ id: "shapes" });
      await apps.startApp({ id: clone.id });
      lines.push("1.2.0");
      // Both run: their first writes arrive at different times.
      for (const root of [directory, cloned.directory]) {
        await eventually(
          async () => assert.deepEqual(await found("log", root), everywhere(lines.join("\n"))),
          40_000,
        );
      }
      await apps.removeApp({ id: "shapes" });
      await apps.removeApp({ id: clone.id });
    },
  );
}

// A clone of a compose project gets a copy of the original's engine volumes, and does not share it.

/** Prints the file's content, and creates it if it is missing. */
const script =
  "ls -lnR /state /more/deep | grep -v ^total | md5sum; cat /state/who /more/deep/who 2>/dev/null || { echo fresh; " +
  "for d in /state /more/deep; do echo $WHO > $d/who; chmod 600 $d/who; mkdir $d/dir; ln -s ../who $d/dir/link; done; }; " +
  "trap 'exit 0' TERM; while :; do sleep 3600 & wait; done";

async function volumesOf(engine: TestEngine, id: string): Promise<string[]> {
  const filters = encodeURIComponent(JSON.stringify({ label: [`svc.app=${id}`] }));
  const { Volumes: volumes } = (await engine.request("GET", `/volumes?filters=${filters}`)).expect(200) as {
    Volumes: { Name: string }[] | null;
  };
  return (volumes ?? []).map(({ Name }) => Name).sort();
}

async function containersOf(engine: TestEngine, id: string): Promise<string[]> {
  const filters = encodeURIComponent(JSON.stringify({ label: [`svc.app=${id}`] }));
  const answer = await engine.request("GET", `/containers/json?all=1&filters=${filters}`);
  return (answer.expect(200) as { Id: string }[]).map(({ Id }) => Id);
}

composeTest(
  `a clone has its own copies of the original's volumes, even without the original's image${needsCompose}`,
  async (t) => {
    await using engine = await startEngine();
    const image = `${(await engine.registry()).host}/box:latest`;
    await engine.images.build(image);
    await engine.images.push(image);
    await using daemon = await startDaemon({ config: engine.config });
    await using user = await daemon.as(nobody);
    const apps = user.client(AppService, "grpc");
    const dir = join(daemon.dir, "keeper");
    const volumes = { state: "/state", more: "/more/deep" };
    const service = { image, environment: { WHO: "original" } };
    await writeFiles(dir, projectFiles({ id: "keeper", script, volumes, service }));
    await apps.installApp({ spec: dir });
    const lastLines = async (id: string, tail = 2): Promise<string[]> => {
      const { lines } = await apps.getAppLogs({ id, tail });
      return lines.map(({ text }) => text.replace(/^web +\| /, ""));
    };
    await apps.startApp({ id: "keeper" });
    await eventually(async () => assert.equal((await lastLines("keeper"))[1], "fresh"), 30_000);
    await apps.restartApp({ id: "keeper" });
    await eventually(
      async () => assert.deepEqual(await lastLines("keeper"), ["original", "original"]),
      30_000,
    );
    const { id, copiedBytes } = await apps.cloneApp({ id: "keeper" });
    t.true(copiedBytes > 2_000n);
    t.deepEqual(
      await volumesOf(engine, id),
      ["more", "state"].map((key) => `${ownershipOf(daemon).projectOf(id)}_${key}`),
    );
    t.deepEqual(await containersOf(engine, id), [], "the container for the copy is gone");

    await apps.startApp({ id });
    await eventually(async () => {
      const lines = await lastLines(id, 3);
      // The same modes, owners, sizes, links and contents.
      assert.deepEqual(lines, await lastLines("keeper", 3));
      assert.equal(lines[2], "original");
    }, 30_000);
    await apps.removeApp({ id: "keeper" });
    t.deepEqual(await volumesOf(engine, "keeper"), []);
    await apps.restartApp({ id });
    await eventually(async () => assert.deepEqual(await lastLines(id), ["original", "original"]), 30_000);

    await apps.stopApp({ id });
    for (const container of await containersOf(engine, id)) {
      (await engine.request("DELETE", `/containers/${container}?force=1`)).expect(204);
    }
    await engine.images.remove(image);
    const { id: third } = await apps.cloneApp({ id });
    await apps.startApp({ id: third });
    await eventually(async () => assert.deepEqual(await lastLines(third), ["original", "original"]), 30_000);
    await apps.removeApp({ id: third });

    // A failed clone leaves nothing: the engine stops in the middle of it.
    await engine.stop();
    t.is((await errorOf(apps.cloneApp({ id }))).code, "Unavailable");
    await engine.start();
    await eventually(async () => {
      assert.deepEqual(
        (await apps.listApps({})).apps.map((app) => app.id),
        [id],
      );
      assert.deepEqual(await volumesOf(engine, `${id}-2`), []);
    }, 30_000);
  },
);

composeTest(`a clone asks before both apps use a volume${needsCompose}`, async (t) => {
  const engine = engineNow();
  await engine.images.build("svc/box:latest");
  await using daemon = await startDaemon({ config: engine.config });
  const apps = daemon.client(AppService, "grpc");
  const dir = join(daemon.dir, "sharer");
  const document = {
    services: {
      web: { image: "svc/box:latest", volumes: ["state:/state", "outer:/outer"] },
    },
    volumes: { state: { name: "its-own" }, outer: { external: true, name: "of-others" } },
  };
  await writeFiles(dir, {
    "svc.yaml":
      'id: sharer\nname: Sharer\nversion: "1.0.0"\ncompose: { file: compose.yaml }\npermissions: [host_mounts]\n',
    "compose.yaml": JSON.stringify(document),
  });
  (await engine.request("POST", "/volumes/create", { Name: "of-others" })).expect(201);
  await apps.installApp({ spec: dir, permissionsAck: true });
  await apps.startApp({ id: "sharer" });
  const error = await errorOf(apps.cloneApp({ id: "sharer" }));
  t.is(error.reason, "volumes_shared");
  t.regex(error.message, /would both use data that svc does not copy: .*\(its-own, of-others\)/);
  const { apps: known } = await apps.listApps({});
  t.deepEqual(
    known.map(({ id }) => id),
    ["sharer"],
    "nothing of the copy is left",
  );
  const { id } = await apps.cloneApp({ id: "sharer", shareVolumes: true });
  t.is(id, "sharer-2");
  t.deepEqual(await volumesOf(engine, id), []);
});

const plain = { Driver: "local", Options: null };
for (const [what, more, expected] of [
  ["of the project", {}, true],
  ["without options", { Options: {} }, true],
  ["with a driver", { Driver: "rexray" }, false],
  ["on another host", { Options: { type: "nfs", device: ":/x" } }, false],
] as const) {
  test(`a volume ${what} is ${expected ? "copied" : "the same for both"}`, (t) => {
    t.is(isPlain({ ...plain, ...more } as unknown as VolumeInspectInfo), expected);
  });
}
