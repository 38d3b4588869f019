/**
 * Labels that an image gives to every container made from it, including those of builds. None of them makes a container
 * part of another user's app; the attacker here knows everything except the secret of the store.
 */
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { DockerService } from "../../gen/svc/v1/docker_pb.ts";
import type { EngineOwnership } from "../../src/engine/ownership.ts";
import { composeTest, hostSearchPath, needsCompose } from "../runtimes/support/compose-test.ts";
import { startDaemon, type TestDaemon, type UserConnection } from "../support/daemon.ts";
import { dockerTest, needsDocker, sharedEngine } from "../support/docker-test.ts";
import type { TestEngine } from "../support/docker.ts";
import { errorOf } from "../support/errors.ts";
import { ownershipOf } from "../support/ownership.ts";
import { projectFiles, writeFiles } from "../support/packages.ts";
import { searchPath } from "../support/search-path.ts";

const attacker = 65_534;
const victim = 5;
const sleeping = "trap 'exit 0' TERM; while :; do sleep 3600 & wait; done";
const engineNow = sharedEngine();

/** Everything that an image can claim, even with a valid proof of another kind of object. */
function claimsOf(ownership: EngineOwnership, appId: string): Record<string, string> {
  return {
    ...ownership.labels("image", appId),
    "svc.release": "compose",
    "com.docker.compose.project": ownership.projectOf(appId),
    "com.docker.compose.service": "web",
    "com.docker.compose.oneoff": "False",
    "com.docker.compose.container-number": "1",
    "com.docker.compose.config-hash": "0",
  };
}

/** A container as a build creates it: with the labels of its image, and a name that the engine chose. */
async function impersonate(engine: TestEngine, labels: Record<string, string>): Promise<string> {
  await engine.images.build("evil/base:1", { labels, volumes: ["/state"] });
  const script = `echo stolen > /state/mine; ${sleeping}`;
  return engine.run(`happy_attacker_${Math.random().toString(36).slice(2)}`, {
    ...{ Image: "evil/base:1", Cmd: ["/bin/sh", "-c", script] },
  });
}

async function exists(engine: TestEngine, id: string): Promise<boolean> {
  return (await engine.request("GET", `/containers/${id}/json`)).status === 200;
}

async function installProject(
  daemon: TestDaemon,
  connection: Pick<UserConnection, "client">,
  id: string,
  service: Readonly<Record<string, unknown>> = {},
): Promise<void> {
  const dir = join(daemon.dir, `package-${id}`);
  const script = `echo found: $(ls /state); ${sleeping}`;
  const more = { volumes: ["/state"], stop_grace_period: "0s", ...service };
  await writeFiles(dir, projectFiles({ id, script, volumes: {}, service: more }));
  await connection.client(AppService, "grpc").installApp({ spec: dir });
}

async function startWith(dirs: readonly string[]): Promise<TestDaemon> {
  await engineNow().images.build("svc/box:latest");
  return startDaemon({ config: `${engineNow().config}\n[apps]\npath = ${JSON.stringify(dirs)}` });
}

for (const [which, dirs] of [
  ["compose", searchPath],
  ["the host's own compose", hostSearchPath],
] as const) {
  composeTest(
    `a build container with the labels of an app is not used by ${which}${needsCompose}`,
    async (t) => {
      await using daemon = await startWith(dirs);
      await using user = await daemon.as(victim);
      const engine = engineNow();
      for (const [connection, id] of [
        [user, "users"],
        [daemon, "roots"],
      ] as const) {
        await installProject(daemon, connection, id);
        const apps = connection.client(AppService, "grpc");
        const impostor = await impersonate(engine, claimsOf(ownershipOf(daemon), id));
        await daemon.client(DockerService).listContainers({});
        t.is((await apps.getApp({ id })).state, "STOPPED", "the container is not the app");
        await apps.startApp({ id });
        t.false(await exists(engine, impostor), "compose would use it");
        const { lines } = await apps.getAppLogs({ id, tail: 1 });
        t.is(lines[0]?.text.replace(/^web +\| /, ""), "found:", "its volume is not mounted anywhere");
        t.is((await apps.getApp({ id })).state, "RUNNING");

        const later = await impersonate(engine, claimsOf(ownershipOf(daemon), id));
        await apps.stopApp({ id });
        await daemon.client(DockerService).listContainers({});
        t.is((await apps.getApp({ id })).state, "STOPPED");
        t.true(await exists(engine, later), "a stop stops only the app's own containers");
        await apps.startApp({ id });
        await apps.removeApp({ id });
        t.false(await exists(engine, later));
      }
    },
  );
}

composeTest(
  `a container that was added to an app's project on purpose is reported and not removed${needsCompose}`,
  async (t) => {
    await using daemon = await startWith(searchPath);
    const apps = daemon.client(AppService);
    await installProject(daemon, daemon, "roots");
    const project = ownershipOf(daemon).projectOf("roots");
    const labels = { "com.docker.compose.project": project };
    const id = await engineNow().run("by-hand", { Image: "svc/box:latest", Labels: labels });
    const error = await errorOf(apps.startApp({ id: "roots" }));
    t.regex(
      error.message,
      /container by-hand has the label .* does not belong to the app; remove it: docker rm -f by-hand$/,
    );
    t.true(await exists(engineNow(), id), "root's app owns only its own containers");
    (await engineNow().request("DELETE", `/containers/${id}?force=1`)).expect(204);
    await apps.startApp({ id: "roots" });
    await apps.removeApp({ id: "roots" });
  },
);

dockerTest(
  `a build container with the labels of an app has no effect on its console or state${needsDocker}`,
  async (t) => {
    await using daemon = await startWith(searchPath);
    await using user = await daemon.as(victim);
    const apps = user.client(AppService);
    const dir = join(daemon.dir, "package");
    const run = `image: "svc/box:latest", command: [/bin/sh, -c, ${JSON.stringify(sleeping)}]`;
    await writeFiles(dir, { "svc.yaml": `id: box\nname: Box\nversion: "1"\ndocker: { ${run} }\n` });
    await daemon.client(AppService).installApp({ spec: dir });
    await daemon.client(AppService).removeApp({ id: "box" });
    await apps.installApp({ spec: dir }).catch(() => undefined);
    const ownership = ownershipOf(daemon);
    const impostor = await impersonate(engineNow(), claimsOf(ownership, "box"));
    const docker = daemon.client(DockerService);
    const { containers } = await docker.listContainers({});
    t.is(containers.find(({ id }) => id === impostor)?.appId, undefined, "it belongs to no app");
    t.is((await apps.getApp({ id: "box" })).state, "STOPPED");
    const exec = user.client(AppService, "grpc").attachConsole(
      (async function* () {
        yield { appId: "box", session: "shell", resize: { columns: 80, rows: 24 } };
        await Promise.resolve();
      })(),
    );
    const refusal = await errorOf((async () => Array.fromAsync(exec))());
    t.regex(refusal.message, /not running|does not run/);
    const { controlled } = await docker.controlContainer({
      ...{ target: { case: "container", value: impostor }, action: "stop" },
    });
    t.is(controlled.length, 1, "root controls it, as no app owns it");
  },
);

composeTest(`a pulled image's labels have no effect on the user's own app${needsCompose}`, async (t) => {
  await using daemon = await startWith(searchPath);
  await using mine = await daemon.as(attacker);
  const engine = engineNow();
  const { host } = await engine.registry();
  await installProject(daemon, daemon, "roots");
  const ownership = ownershipOf(daemon);
  const image = `${host}/evil/pulled:1`;
  await engine.images.build(image, {
    labels: claimsOf(ownership, "roots"),
    cmd: ["/bin/sh", "-c", sleeping],
  });
  await engine.images.push(image);
  await engine.images.remove(image);
  const apps = mine.client(AppService, "grpc");
  const dir = join(daemon.dir, "single");
  await writeFiles(dir, { "svc.yaml": `id: single\nname: x\nversion: "1"\ndocker: { image: "${image}" }\n` });
  await apps.installApp({ spec: dir });
  await installProject(daemon, mine, "team", { image, command: ["/bin/sh", "-c", sleeping] });
  for (const id of ["single", "team"]) await apps.startApp({ id });
  const { containers } = await daemon.client(DockerService).listContainers({});
  t.deepEqual(containers.flatMap(({ appId }) => appId ?? []).sort(), ["single", "team"]);
  t.deepEqual(
    containers.flatMap(({ composeProject }) => composeProject ?? []),
    [ownership.projectOf("team")],
    "it is only in its own project",
  );
  const roots = daemon.client(AppService, "grpc");
  await roots.startApp({ id: "roots" });
  t.is((await roots.getApp({ id: "roots" })).state, "RUNNING");
  for (const id of ["single", "team"]) t.is((await apps.getApp({ id })).state, "RUNNING", id);
  for (const id of ["single", "team"]) await apps.removeApp({ id });
  await roots.removeApp({ id: "roots" });
});

dockerTest(`an image cannot name the project and directory that root adopts${needsDocker}`, async (t) => {
  await using daemon = await startWith(searchPath);
  const engine = engineNow();
  const project = { "com.docker.compose.project": "shop", "com.docker.compose.service": "web" };
  const place = (directory: string): Record<string, string> => ({
    "com.docker.compose.project.working_dir": directory,
    "com.docker.compose.project.config_files": `${directory}/compose.yaml`,
  });
  const made = { "com.docker.compose.container-number": "1", "com.docker.compose.config-hash": "0" };
  const claims = { ...project, ...place("/tmp/evil"), ...made };
  await engine.images.build("evil/adopted:1", { labels: claims });
  await engine.images.build("shop/web:1", { labels: project });
  const run = { Cmd: ["/bin/sh", "-c", sleeping] };
  const hostile = await engine.run("a-hostile", { ...run, Image: "evil/adopted:1" });
  const labels = { ...project, ...place("/srv/shop"), ...made };
  const own = await engine.run("shop-web-1", { ...run, Image: "shop/web:1", Labels: labels });

  const { stacks } = await daemon.client(DockerService).listUnmanagedStacks({});
  const seen = stacks
    .map(({ name, directory, containers }) => ({ name, directory, ids: containers.map(({ id }) => id) }))
    .filter(({ ids }) => ids.includes(hostile) || ids.includes(own));
  t.deepEqual(seen, [
    { name: "a-hostile", directory: "", ids: [hostile] },
    { name: "shop", directory: "/srv/shop", ids: [own] },
  ]);
  const { plan } = await daemon.client(DockerService).adoptStack({ name: "shop", dryRun: true });
  t.deepEqual(
    plan?.stack?.containers.map(({ id }) => id),
    [own],
  );
  for (const id of [hostile, own]) (await engine.request("DELETE", `/containers/${id}?force=1`)).expect(204);
});

composeTest(`no user sees a proof, or the project name of another user${needsCompose}`, async (t) => {
  await using daemon = await startWith(searchPath);
  await using user = await daemon.as(victim);
  const apps = user.client(AppService, "grpc");
  const dir = join(daemon.dir, "built");
  await writeFiles(dir, {
    "svc.yaml": 'id: built\nname: Built\nversion: "1"\ncompose: { file: compose.yaml }\n',
    "compose.yaml": JSON.stringify({ services: { web: { build: "." } } }),
    Dockerfile: `FROM svc/box:latest\nCMD ["/bin/sh", "-c", ${JSON.stringify(sleeping)}]\n`,
  });
  const seen = new Set<string>();
  const ended = new AbortController();
  const watching = (async () => {
    while (!ended.signal.aborted) for (const line of await commandLines()) seen.add(line);
  })();
  const said: string[] = [];
  for await (const message of apps.installAppStream({ spec: dir }))
    said.push(JSON.stringify(message, bigints));
  await apps.startApp({ id: "built" });
  ended.abort();
  await watching;
  const ownership = ownershipOf(daemon);
  const kinds = ["container", "volume", "network", "image", "service", "file"] as const;
  const proofs = kinds.map((kind) => ownership.labels(kind, "built")["svc.proof"] ?? "");
  const texts: Record<string, string> = {
    "the output of an install": said.join("\n"),
    "the arguments of programs": [...seen].join("\n"),
    "the log": daemon.log(),
  };
  t.true(
    [...seen].some((line) => line.includes("compose")),
    "compose was observed",
  );
  t.false(texts["the arguments of programs"]?.includes(ownership.projectOf("built")));
  const docker = daemon.client(DockerService);
  const { containers } = await docker.listContainers({});
  const container = containers.find(({ appId }) => appId === "built");
  const details = await docker.inspectContainer({ container: container?.id ?? "" });
  t.is(details.labels["svc.proof"], "");
  t.is(details.labels["svc.app"], "built");
  texts["the details of a container"] = JSON.stringify(details, bigints);
  texts["an app"] = JSON.stringify(await apps.getApp({ id: "built" }), bigints);
  for (const [what, text] of Object.entries(texts)) {
    t.true(text.length > 0, what);
    for (const proof of proofs) t.false(text.includes(proof), what);
  }
  await apps.removeApp({ id: "built" });
});

const bigints = (_key: string, value: unknown): unknown =>
  typeof value === "bigint" ? String(value) : value;

/** Process details that every user of the host can read. */
async function commandLines(): Promise<string[]> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const texts = await Promise.all(
    pids.map((pid) => readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")),
  );
  return texts.map((text) => text.replaceAll("\0", " ")).filter((text) => text.includes("compose"));
}
