/** Data that compose projects write next to their compose file survives upgrades, rollbacks, clones and restarts. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { isRoot, startDaemon } from "../../support/daemon.ts";
import { dockerTest, needsDocker, sharedEngine } from "../../support/docker-test.ts";
import { whyNoDocker } from "../../support/docker.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";

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
  /** Of the checkout. */
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
      await using door = uid === nobody ? await daemon.as(nobody) : undefined;
      const apps = (door ?? daemon).client(AppService);
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
