/** DockerService on a real engine, with every kind of caller, over every protocol. */
import assert from "node:assert/strict";
import { join } from "node:path";
import test from "ava";
import type { Client } from "@connectrpc/connect";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { DaemonService } from "../../../gen/svc/v1/daemon_pb.ts";
import { DockerService, type DockerEvent } from "../../../gen/svc/v1/docker_pb.ts";
import { protocolOf, startDaemon, type Protocol, type TestDaemon } from "../../support/daemon.ts";
import { dockerTest, needsDocker, sharedEngine } from "../../support/docker-test.ts";
import { whyNoDocker } from "../../support/docker.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { sendRest } from "../../support/rest-transport.ts";
import { writeFiles } from "../../support/packages.ts";
import { ownershipOf } from "../../support/ownership.ts";
import type { EngineOwnership } from "../../../src/engine/ownership.ts";

type Docker = Client<typeof DockerService>;

const engineNow = sharedEngine();
const shared: { daemon?: TestDaemon; ownership?: EngineOwnership } = {};
const protocols = ["rest", "connect", "grpc"] as const satisfies Protocol[];
const forever = "trap 'exit 0' TERM; while :; do sleep 3600 & wait; done";

test.before(async () => {
  if (whyNoDocker !== undefined) return;
  const engine = engineNow();
  const daemon = await startDaemon({ config: engine.config });
  shared.daemon = daemon;
  shared.ownership = ownershipOf(daemon);
  await engine.images.build("svc/app:1");
  await engine.images.build("svc/foreign:1", { files: { "etc/foreign": "1" } });
  await installApp(daemon);
});
test.afterEach.always(async () => {
  if (whyNoDocker !== undefined) return;
  const { containers } = await docker().listContainers({ all: true });
  await remove(...containers.map(({ name }) => name).filter((name) => !name.startsWith("svc-web-")));
  const { volumes } = await docker().listVolumes({});
  for (const { name } of volumes) await engineNow().request("DELETE", `/volumes/${name}`);
});
test.after.always(() => shared.daemon?.[Symbol.asyncDispose]());

/** The app `web` as a running container of `svc/app:1`. */
async function installApp(daemon: TestDaemon): Promise<void> {
  const dir = join(daemon.dir, "package");
  const run = `entrypoint: [/bin/sh, -c], command: [${JSON.stringify(forever)}]`;
  await writeFiles(dir, {
    "svc.yaml": `id: web\nname: Web\nversion: "1.0.0"\ndocker: { image: "svc/app:1", ${run} }\n`,
  });
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: dir });
  await apps.startApp({ id: "web" });
}

/** Callers with the complete root context, each over another transport; the next test uses other transports. */
function rootClients(): [name: string, client: Docker][] {
  const daemon = shared.daemon!;
  const [one = "grpc", other = "rest"] = [0, 1].map((at) => protocols[(turn + at) % protocols.length]);
  turn++;
  return [
    [`${one}, root peer`, daemon.client(DockerService, one)],
    [`${other}, token`, daemon.tokenClient(DockerService, other)],
  ];
}
let turn = 0;

function docker(): Docker {
  return shared.daemon!.client(DockerService, "grpc");
}

/** Starts a sleeping container that belongs to no app; returns its ID. */
function run(name: string, labels: Record<string, string> = {}, more: object = {}): Promise<string> {
  return engineNow().run(name, {
    Image: "svc/foreign:1",
    Cmd: ["/bin/sh", "-c", forever],
    Labels: labels,
    ...more,
  });
}

async function remove(...names: string[]): Promise<void> {
  for (const name of names) await engineNow().request("DELETE", `/containers/${name}?force=1&v=1`);
}

async function stateOf(name: string): Promise<string> {
  const answer = (await engineNow().request("GET", `/containers/${name}/json`)).expect(200);
  return (answer as { State: { Status: string } }).State.Status;
}

dockerTest(`a regular user is denied every method${needsDocker}`, async (t) => {
  await using connection = await shared.daemon!.as(65534);
  for (const protocol of protocols) {
    const client = connection.client(DockerService, protocol);
    const calls: [string, Promise<unknown> | AsyncIterable<unknown>][] = [
      ["containers", client.listContainers({ all: true })],
      ["stats", client.listContainerStats({})],
      ["images", client.listImages({})],
      ["volumes", client.listVolumes({})],
      ["networks", client.listNetworks({})],
      ["disk usage", client.getDockerDiskUsage({})],
      ["prune", client.pruneDocker({ target: "images", dryRun: true, danglingOnly: true })],
      ["control", client.controlContainer({ target: { case: "container", value: "x" }, action: "stop" })],
      ["inspect", client.inspectContainer({ container: "x" })],
      ["logs", client.getContainerLogs({ container: "x" })],
    ];
    if (protocol !== "rest") {
      calls.push(["followed logs", client.streamContainerLogs({ container: "x" })]);
      calls.push(["events", client.streamDockerEvents({})]);
    }
    for (const [name, call] of calls) {
      t.like(
        await errorOf(call),
        { code: "PermissionDenied", reason: "root_required" },
        `${protocol} ${name}`,
      );
    }
  }
  const { status } = await sendRest({ socketPath: connection.socketPath }, "GET", "/v1/docker/containers");
  t.is(status, 403);
});

dockerTest(`the capabilities show it${needsDocker}`, async (t) => {
  const { capabilities } = await shared.daemon!.client(DaemonService).getStatus({});
  t.true(capabilities.includes("docker"));
  t.true(capabilities.includes("docker.control"));
});

dockerTest(`containers are listed with the app that owns them${needsDocker}`, async (t) => {
  await run("foreign", {}, { ExposedPorts: { "80/tcp": {} } });
  await run("proven", shared.ownership!.labels("container", "web"));
  await run("claiming", { "svc.app": "web", "svc.store": shared.ownership!.storeId });
  const project = shared.ownership!.projectOf("web");
  await run("sidecar", { "com.docker.compose.project": project, "com.docker.compose.service": "side" });
  await run("ended");
  (await engineNow().request("POST", "/containers/ended/kill")).expect(204);
  // A list is at most a second old.
  await eventually(async () => {
    const { containers } = await shared.daemon!.client(DockerService).listContainers({});
    assert.ok(!containers.some(({ name }) => name === "ended"));
  });
  for (const [name, client] of rootClients()) {
    const up = (await client.listContainers({})).containers;
    const all = (await client.listContainers({ all: true })).containers;
    const of = (itemName: string) => all.find((each) => each.name === itemName);
    t.deepEqual(
      all.map((each) => each.name),
      all.map((each) => each.name).toSorted(),
      name,
    );
    t.false(
      up.some((each) => each.name === "ended"),
      name,
    );
    t.like(of("ended"), { state: "exited", appId: undefined }, name);
    t.like(of("foreign"), { appId: undefined, image: "svc/foreign:1", state: "running" }, name);
    t.like(of("foreign")?.ports[0], { protocol: "tcp", containerPort: 80, hostPort: undefined }, name);
    t.regex(of("foreign")?.status ?? "", /^Up /);
    t.is(of("proven")?.appId, "web", name);
    t.is(of("claiming")?.appId, undefined, `${name}: labels that anyone can write`);
    t.like(of("sidecar"), { appId: undefined, composeProject: project, composeService: "side" }, name);
    const own = up.find((each) => /^svc-web-/.test(each.name));
    t.like(own, { appId: "web", state: "running", image: "svc/app:1" }, name);
    t.true(
      all.every((each) => each.sizeBytes === undefined),
      `${name}: sizes only on request`,
    );
    const sized = (await client.listContainers({ all: true, size: true })).containers;
    t.true(
      sized.every((each) => each.sizeBytes !== undefined),
      `${name}: sizes`,
    );
  }
  const { status, text } = await sendRest(
    { socketPath: shared.daemon!.socketPath },
    "GET",
    "/v1/docker/containers?all=1&size=1",
  );
  t.is(status, 200);
  const { containers } = JSON.parse(text) as { containers: Record<string, unknown>[] };
  t.is(containers.find((each) => each["name"] === "sidecar")?.["composeProject"], project);
  t.is(typeof containers[0]?.["sizeBytes"], "number");
});

dockerTest(`containers created outside of svc are listed within a second${needsDocker}`, async (t) => {
  await docker().listContainers({ all: true });
  const id = await run("quick");
  const startedMs = performance.now();
  await eventually(async () => {
    const { containers } = await docker().listContainers({});
    assert.ok(containers.some((each) => each.id === id));
  });
  t.true(performance.now() - startedMs < 1_000);
});

dockerTest(`all running containers are sampled in one window${needsDocker}`, async (t) => {
  const busy = await run("busy", {}, { Cmd: ["/bin/sh", "-c", "while :; do :; done"] });
  const idle = await run("idle", {}, { HostConfig: { Memory: 64 * 2 ** 20 } });
  await run("gone");
  (await engineNow().request("POST", "/containers/gone/kill")).expect(204);
  for (const [name, client] of rootClients()) {
    const startedMs = performance.now();
    const { stats } = await client.listContainerStats({});
    const tookMs = performance.now() - startedMs;
    t.true(tookMs >= 450, `${name}: ${tookMs} ms`);
    t.deepEqual(
      stats.map((each) => each.name),
      stats.map((each) => each.name).toSorted(),
    );
    const of = (id: string) => stats.find((each) => each.id === id);
    t.true((of(idle)?.cpuPercent ?? 100) < 5, name);
    // Its CPU share depends on everything else that runs on the host.
    await eventually(async () => {
      const { stats: later } = await client.listContainerStats({ ids: ["busy"] });
      assert.ok((later[0]?.cpuPercent ?? 0) > 1, `${name}: ${later[0]?.cpuPercent}`);
    });
    t.is(of(idle)?.memoryLimitBytes, BigInt(64 * 2 ** 20), name);
    t.is(of(busy)?.memoryLimitBytes, undefined, name);
    t.true((of(idle)?.memoryBytes ?? 0n) > 0n, name);
    t.false(
      stats.some((each) => each.name === "gone"),
      name,
    );
    const some = (await client.listContainerStats({ ids: [idle.slice(0, 12), "busy", "nobody"] })).stats;
    t.deepEqual(
      some.map((each) => each.name),
      ["busy", "idle"],
      name,
    );
    t.deepEqual((await client.listContainerStats({ ids: ["nobody"] })).stats, [], `${name}: does not exist`);
  }
});

dockerTest(
  `images, volumes and networks are listed, and those that apps need are protected${needsDocker}`,
  async (t) => {
    const engine = engineNow();
    const labels = shared.ownership!.labels("volume", "web");
    for (const body of [{ Name: "free" }, { Name: "kept", Labels: labels }, { Name: "used" }]) {
      (await engine.request("POST", "/volumes/create", body)).expect(201);
    }
    await run("user", {}, { HostConfig: { Binds: ["used:/data"] } });
    await eventually(async () => {
      const { volumes } = await docker().listVolumes({});
      assert.equal(volumes.find((each) => each.name === "used")?.containers, 1);
    });
    for (const [name, client] of rootClients()) {
      const { images } = await client.listImages({});
      const app = images.find(({ tags }) => tags.includes("svc/app:1"));
      t.like(app, { svcProtected: true, dangling: false, containers: 1 }, name);
      t.regex(app?.protectedReason ?? "", /^the installed app "web" runs it$/);
      const foreign = images.find(({ tags }) => tags.includes("svc/foreign:1"));
      t.like(foreign, { svcProtected: false, protectedReason: undefined }, name);
      t.true((foreign?.sizeBytes ?? 0n) > 0n, name);
      const { volumes } = await client.listVolumes({});
      const of = (itemName: string) => volumes.find((each) => each.name === itemName);
      t.like(
        of("free"),
        { svcProtected: false, protectedReason: undefined, containers: 0, anonymous: false },
        name,
      );
      t.like(of("used"), { svcProtected: false, containers: 1, driver: "local" }, name);
      t.like(of("kept"), { svcProtected: true }, name);
      t.regex(of("kept")?.protectedReason ?? "", /^the installed app "web" keeps data in it$/);
      const { networks } = await client.listNetworks({});
      t.like(
        networks.find((each) => each.name === "none"),
        { driver: "null", scope: "local" },
        name,
      );
    }
    const { text } = await sendRest({ socketPath: shared.daemon!.socketPath }, "GET", "/v1/docker/images");
    const [first] = (JSON.parse(text) as { images: Record<string, unknown>[] }).images;
    t.true(first !== undefined && "svcProtected" in first && "protectedReason" in first);
    const { status } = await sendRest(
      { socketPath: shared.daemon!.socketPath },
      "DELETE",
      "/v1/docker/networks/none",
    );
    t.is(status, 404, "networks cannot be removed");
    await remove("user");
    for (const name of ["free", "kept", "used"]) await engine.request("DELETE", `/volumes/${name}`);
  },
);

dockerTest(`disk usage has four categories${needsDocker}`, async (t) => {
  for (const [name, client] of rootClients()) {
    const usage = await client.getDockerDiskUsage({});
    t.is(usage.images?.count, 2, name);
    t.true((usage.images?.sizeBytes ?? 0n) > 100_000n, name);
    t.is(usage.containers?.count, 1, name);
    t.is(usage.volumes?.count, 0, name);
    t.is(usage.buildCache?.count, 0, name);
  }
  const { text } = await sendRest({ socketPath: shared.daemon!.socketPath }, "GET", "/v1/docker/disk-usage");
  const json = JSON.parse(text) as Record<string, unknown>;
  t.deepEqual(Object.keys(json), ["images", "containers", "volumes", "buildCache"]);
  t.deepEqual(json["buildCache"], { count: 0, sizeBytes: 0 });
});

dockerTest(
  `a prune must state what to remove, and whether to remove only dangling images${needsDocker}`,
  async (t) => {
    const rest = { socketPath: shared.daemon!.socketPath };
    for (const [body, field] of [
      [{ target: "images" }, "danglingOnly"],
      [{ danglingOnly: true }, "target"],
      [{ target: "networks", danglingOnly: true }, "target"],
    ] as const) {
      const { status, text } = await sendRest(rest, "POST", "/v1/docker/prune", JSON.stringify(body));
      const answer = JSON.parse(text) as {
        reason: string;
        invalid_request: { violations: { field: string }[] };
      };
      t.is(status, 400, text);
      t.is(answer.reason, "invalid_request");
      t.is(answer.invalid_request.violations[0]?.field, field);
    }
    const error = await errorOf(docker().pruneDocker({ target: "images" }));
    t.like(error, { code: "InvalidArgument", reason: "invalid_request" });
  },
);

dockerTest(`a prune does what its dry run reports, and lists what it retains${needsDocker}`, async (t) => {
  const client = shared.daemon!.client(DockerService, protocolOf(import.meta.url));
  const engine = engineNow();
  const unused = await engine.images.build("svc/unused:1", { files: { "etc/own": "1" } });
  const labels = shared.ownership!.labels("volume", "web");
  (await engine.request("POST", "/volumes/create", { Name: "orphan" })).expect(201);
  (await engine.request("POST", "/volumes/create", { Name: "declared", Labels: labels })).expect(201);
  const { Name: anonymous } = (await engine.request("POST", "/volumes/create", {})).expect(201) as {
    Name: string;
  };
  await shared.daemon!.client(AppService).stopApp({ id: "web" });
  await run("user");

  const dangling = await client.pruneDocker({ target: "images", danglingOnly: true, dryRun: true });
  t.deepEqual(dangling.removed, [], "a tagged image does not dangle");
  const plan = await client.pruneDocker({ target: "images", danglingOnly: false, dryRun: true });
  t.deepEqual(
    plan.removed.map(({ id, name }) => ({ id, name })),
    [{ id: unused, name: "svc/unused:1" }],
  );
  t.is(plan.freedBytes, plan.removed[0]?.sizeBytes ?? -1n);
  t.true(plan.dryRun);
  (await engine.request("GET", `/images/${unused}/json`)).expect(200);
  const done = await client.pruneDocker({ target: "images", danglingOnly: false, dryRun: false });
  t.deepEqual({ ...done, dryRun: true }, plan);
  t.is((await engine.request("GET", `/images/${unused}/json`)).status, 404);

  const onlyAnonymous = await client.pruneDocker({ target: "volumes", danglingOnly: true, dryRun: true });
  t.deepEqual(
    onlyAnonymous.removed.map(({ name }) => name),
    [anonymous],
  );
  const chosen = { target: "volumes", danglingOnly: false, ids: ["orphan", "declared"] };
  t.deepEqual(
    (await client.pruneDocker(chosen)).removed.map(({ name }) => name),
    ["orphan"],
    "selected and removable",
  );
  const volumes = await client.pruneDocker({ target: "volumes", danglingOnly: false });
  t.deepEqual(
    volumes.removed.map(({ name }) => name),
    [anonymous],
  );
  t.like(volumes.skipped[0], {
    name: "declared",
    reason: 'the installed app "web" keeps data in it',
  });
  const cache = await client.pruneDocker({ target: "build_cache", danglingOnly: false });
  t.like(cache, { removed: [], skipped: [], dryRun: false, freedBytes: 0n });

  await shared.daemon!.client(AppService).startApp({ id: "web" });
  await remove("user");
  await engine.request("DELETE", "/volumes/declared");
});

dockerTest(`an image that an app without a container needs is retained${needsDocker}`, async (t) => {
  await shared.daemon!.client(AppService).stopApp({ id: "web" });
  const own = (await docker().listContainers({ all: true })).containers.filter(
    ({ appId }) => appId === "web",
  );
  await remove(...own.map(({ name }) => name));
  const { removed, skipped } = await docker().pruneDocker({
    target: "images",
    danglingOnly: false,
    dryRun: true,
  });
  t.deepEqual(
    removed.map(({ name }) => name),
    ["svc/foreign:1"],
  );
  t.like(skipped[0], { name: "svc/app:1", reason: 'the installed app "web" runs it' });
  await shared.daemon!.client(AppService).startApp({ id: "web" });
});

for (const [name, spell] of [
  ["id", (id: string) => id],
  ["prefix", (id: string) => id.slice(0, 10)],
  ["name", () => "one"],
  ["name with a slash", () => "/one"],
] as const) {
  dockerTest(`a container is controlled by its ${name}${needsDocker}`, async (t) => {
    const id = await run("one");
    for (const [at, [action, state]] of (
      [
        ["pause", "paused"],
        ["unpause", "running"],
        ["stop", "exited"],
        ["start", "running"],
        ["restart", "running"],
        ["stop", "exited"],
      ] as const
    ).entries()) {
      const client = shared.daemon!.client(DockerService, protocols[at % protocols.length] ?? "grpc");
      const request = { target: { case: "container", value: spell(id) } as const, action };
      const { controlled, skipped } = await client.controlContainer(request);
      t.deepEqual(
        controlled.map((each) => ({ id: each.id, name: each.name })),
        [{ id, name: "one" }],
        action,
      );
      t.deepEqual(skipped, [], action);
      // The engine may process the event of a pause after the unpause, and show the container as paused for a moment.
      await eventually(async () => assert.equal(await stateOf("one"), state, action));
      const { containers } = await client.listContainers({ all: true });
      t.is(containers.find((each) => each.id === id)?.state, state, `${action}: visible at once`);
    }
    const again = await docker().controlContainer({
      target: { case: "container", value: spell(id) },
      action: "stop",
    });
    t.like(again, { controlled: [] });
    t.like(again.skipped[0], { id, reason: "the container is exited" });
    await docker().controlContainer({ target: { case: "container", value: spell(id) }, action: "remove" });
    t.is((await engineNow().request("GET", `/containers/${id}/json`)).status, 404);
  });
}

dockerTest(`an impossible action is rejected with its reason${needsDocker}`, async (t) => {
  const id = await run("one");
  const { appId, name: own = "" } =
    (await docker().listContainers({})).containers.find((each) => each.name.startsWith("svc-web-")) ?? {};
  t.is(appId, "web");
  const { ownership } = shared;
  const project = ownership!.projectOf("web");
  const { labels } = await docker().inspectContainer({ container: own });
  await run("sidecar", {
    ...ownership!.labels("container", "web"),
    // A container of another release would be stopped.
    "svc.release": labels["svc.release"] ?? "",
    "com.docker.compose.project": project,
  });
  await run("ended");
  (await engineNow().request("POST", "/containers/ended/kill")).expect(204);
  for (const [name, client] of rootClients()) {
    const control = (value: string, action: string, kind: "container" | "composeProject" = "container") =>
      errorOf(client.controlContainer({ target: { case: kind, value }, action }));
    for (const owned of [
      await control(own, "stop"),
      await control("sidecar", "remove"),
      await control(project, "restart", "composeProject"),
    ]) {
      t.like(owned, { code: "FailedPrecondition", reason: "owned_by_app" }, name);
      t.like(owned.payload, { case: "ownedByApp", value: { appId: "web" } }, name);
      t.regex(owned.message, /belongs to the app "web": use svc start/);
    }
    t.like(await control("nobody", "stop"), { code: "NotFound", message: 'no container "nobody"' }, name);
    t.like(await control("../one", "stop"), { code: "NotFound", message: 'no container "../one"' }, name);
    t.like(await control("none", "stop", "composeProject"), { code: "NotFound" }, name);
    t.like(
      await control("one", "remove"),
      { code: "FailedPrecondition", message: 'container "one" is running; stop it first' },
      name,
    );
    t.like(
      await control("ended", "unpause"),
      { code: "FailedPrecondition", reason: "not_possible", message: 'container "ended" is exited' },
      name,
    );
    t.like(await control("one", "explode"), { code: "InvalidArgument", reason: "invalid_request" }, name);
    t.like(
      await errorOf(client.controlContainer({ action: "stop" })),
      { code: "InvalidArgument", reason: "invalid_request" },
      `${name}: neither`,
    );
  }
  t.is(await stateOf("one"), "running");
  t.is(await stateOf("sidecar"), "running");
  const rest = { socketPath: shared.daemon!.socketPath };
  const post = (body: object) => sendRest(rest, "POST", "/v1/docker/control", JSON.stringify(body));
  const both = await post({ container: id, composeProject: "x", action: "stop" });
  t.is(both.status, 400, both.text);
  t.is((await post({ action: "stop" })).status, 400);
  const owned = await post({ container: own, action: "stop" });
  t.is(owned.status, 409);
  t.like(JSON.parse(owned.text), {
    code: "failed_precondition",
    reason: "owned_by_app",
    owned_by_app: { app_id: "web" },
  });
});

dockerTest(`a common prefix of several IDs is ambiguous${needsDocker}`, async (t) => {
  const ids = new Map<string, string>();
  const names: string[] = [];
  let twin: [string, string] | undefined;
  // Two of seventeen start with the same digit.
  while (twin === undefined) {
    const name = `twin-${names.length}`;
    const answer = await engineNow().request("POST", `/containers/create?name=${name}`, {
      Image: "svc/foreign:1",
    });
    const { Id: id } = answer.expect(201) as { Id: string };
    names.push(name);
    const other = ids.get(id.slice(0, 1));
    if (other !== undefined) twin = [other, name];
    ids.set(id.slice(0, 1), name);
    if (twin !== undefined) {
      const [one, two] = twin;
      for (const [protocol, client] of rootClients()) {
        const target = { case: "container", value: id.slice(0, 1) } as const;
        const error = await errorOf(client.controlContainer({ target, action: "start" }));
        t.like(error, { code: "InvalidArgument", reason: "invalid_request" }, protocol);
        t.true(error.message.includes(one) && error.message.includes(two), error.message);
      }
    }
  }
});

dockerTest(`a compose project starts oldest first and stops newest first${needsDocker}`, async (t) => {
  const labels = { "com.docker.compose.project": "shop" };
  // Their names are in neither order.
  const names = ["m-old", "a-middle", "z-new"];
  for (const name of names) await run(name, labels);
  (await engineNow().request("POST", "/containers/a-middle/pause")).expect(204);
  const target = { case: "composeProject", value: "shop" } as const;
  const sinceSecs = Date.now() / 1000;
  const cases = [
    { action: "unpause", done: ["a-middle"], skipped: ["m-old", "z-new"] },
    { action: "stop", done: ["z-new", "a-middle", "m-old"], skipped: [] },
    { action: "stop", done: [], skipped: ["z-new", "a-middle", "m-old"] },
    { action: "start", done: ["m-old", "a-middle", "z-new"], skipped: [] },
    { action: "restart", done: ["m-old", "a-middle", "z-new"], skipped: [] },
    { action: "pause", done: ["z-new", "a-middle", "m-old"], skipped: [] },
    { action: "unpause", done: ["m-old", "a-middle", "z-new"], skipped: [] },
    { action: "remove", done: [], skipped: ["z-new", "a-middle", "m-old"] },
    { action: "stop", done: ["z-new", "a-middle", "m-old"], skipped: [] },
    { action: "remove", done: ["z-new", "a-middle", "m-old"], skipped: [] },
  ];
  for (const [at, { action, done, skipped }] of cases.entries()) {
    const client = shared.daemon!.client(DockerService, protocols[at % protocols.length] ?? "grpc");
    const answer = await client.controlContainer({ target, action });
    t.deepEqual(
      answer.controlled.map(({ name }) => name),
      done,
      action,
    );
    t.deepEqual(
      answer.skipped.map(({ name }) => name),
      skipped,
      action,
    );
    t.true(
      answer.skipped.every(({ reason }) => /^the container is /.test(reason)),
      action,
    );
  }
  t.deepEqual(await eventsSince(sinceSecs, "start"), [...names, ...names]);
  t.deepEqual(await eventsSince(sinceSecs, "stop"), [
    ...names.toReversed(),
    ...names, // caused by the restart
    ...names.toReversed(),
  ]);
  t.like(await errorOf(docker().controlContainer({ target, action: "start" })), { code: "NotFound" });
});

/** Names of the affected containers, from the engine's events. */
async function eventsSince(sinceSecs: number, action: string): Promise<string[]> {
  const filters = encodeURIComponent(JSON.stringify({ type: ["container"], event: [action] }));
  const path = `/events?since=${sinceSecs}&until=${Date.now() / 1000}&filters=${filters}`;
  const answer = await engineNow().request("GET", path);
  return answer.text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as { Actor: { Attributes: { name: string } } })
    .map(({ Actor }) => Actor.Attributes.name);
}

dockerTest(`a container is shown in detail${needsDocker}`, async (t) => {
  await run(
    "detailed",
    { a: "b" },
    {
      Env: ["GREETING=hello"],
      HostConfig: { Binds: ["detailed-data:/data:ro"], RestartPolicy: { Name: "unless-stopped" } },
    },
  );
  for (const [name, client] of rootClients()) {
    const details = await client.inspectContainer({ container: "detailed" });
    t.like(details, { health: "", restarts: 0, restartPolicy: "unless-stopped", networks: ["bridge"] }, name);
    t.deepEqual(details.command, ["/bin/sh", "-c", forever], name);
    t.like(details.container, { name: "detailed", state: "running" }, name);
    t.deepEqual(details.labels, { a: "b" }, name);
    t.like(
      details.mounts[0],
      { type: "volume", source: "detailed-data", target: "/data", readOnly: true },
      name,
    );
    t.true(details.startedAt !== undefined && details.finishedAt === undefined, name);
    t.is(details.exitCode, undefined, name);
    const { Config } = details.engine as { Config: { Env: string[] } };
    t.true(Config.Env.includes("GREETING=hello"), name);
    t.like(await errorOf(client.inspectContainer({ container: "nobody" })), { code: "NotFound" }, name);
  }
  (await engineNow().request("POST", "/containers/detailed/kill?signal=TERM")).expect(204);
  await eventually(async () => {
    const details = await docker().inspectContainer({ container: "detailed" });
    assert.equal(details.exitCode, 0);
    assert.ok(details.finishedAt !== undefined);
  });
});

/** The file that the test's scripts wait for. */
async function touchGo(name: string): Promise<void> {
  const command = { Cmd: ["/bin/touch", "/go"] };
  const made = (await engineNow().request("POST", `/containers/${name}/exec`, command)).expect(201);
  const { Id } = made as { Id: string };
  (await engineNow().request("POST", `/exec/${Id}/start`, { Detach: true })).expect(200);
}

for (const tty of [false, true]) {
  dockerTest(`logs are read and followed${tty ? ", of a terminal" : ""}${needsDocker}`, async (t) => {
    const script = "echo one; echo two; echo oops >&2; while [ ! -e /go ]; do sleep 0.1; done; echo three";
    await run("talker", {}, { Cmd: ["/bin/sh", "-c", script], Tty: tty });
    const all = ["one", "two", "oops"];
    await eventually(async () => {
      const { lines } = await docker().getContainerLogs({ container: "talker" });
      assert.equal(lines.length, 3);
    });
    for (const [name, client] of rootClients()) {
      const { lines } = await client.getContainerLogs({ container: "talker" });
      t.deepEqual(lines.map(({ text }) => text).toSorted(), all.toSorted(), name);
      t.is(lines.find(({ text }) => text === "oops")?.stream, tty ? "stdout" : "stderr", name);
      t.true(
        lines.every(({ time }) => time === undefined),
        name,
      );
      const last = await client.getContainerLogs({ container: "talker", tail: 1, timestamps: true });
      t.is(last.lines.length, 1, name);
      t.true(last.lines[0]?.time !== undefined, name);
      t.deepEqual((await client.getContainerLogs({ container: "talker", tail: 0 })).lines, [], name);
      t.like(await errorOf(client.getContainerLogs({ container: "nobody" })), { code: "NotFound" }, name);
      t.like(await errorOf(client.getContainerLogs({ container: "talker", tail: 100_001 })), {
        code: "InvalidArgument",
      });
    }
    for (const protocol of ["connect", "grpc"] as const) {
      const client = shared.daemon!.client(DockerService, protocol);
      t.like(
        await errorOf(client.streamContainerLogs({ container: "nobody" })),
        { code: "NotFound" },
        protocol,
      );
    }
    const texts: string[] = [];
    for await (const { lines } of docker().streamContainerLogs({ container: "talker", tail: 1 })) {
      texts.push(...lines.map(({ text }) => text));
      if (texts.length === 1) await touchGo("talker");
    }
    t.is(texts.length, 2, "the stream ends with its container");
    t.is(texts[1], "three");
  });
}

for (const protocol of ["connect", "grpc"] as const) {
  dockerTest(`events of the requested kinds arrive as they happen (${protocol})${needsDocker}`, async (t) => {
    const client = shared.daemon!.client(DockerService, protocol);
    const ended = new AbortController();
    const [everything, volumes]: [DockerEvent[], DockerEvent[]] = [[], []];
    const collect = async (types: string[], into: DockerEvent[]): Promise<void> => {
      const stream = client.streamDockerEvents({ types }, { signal: ended.signal });
      try {
        for await (const event of stream) into.push(event);
      } catch {
        assert.ok(ended.signal.aborted);
      }
    };
    const collecting = [collect([], everything), collect(["volume"], volumes)];
    // Events before both are connected reach nobody.
    await eventually(async () => {
      (await engineNow().request("POST", "/volumes/create", { Name: "probe" })).expect(201);
      await engineNow().request("DELETE", "/volumes/probe");
      assert.ok(everything.length > 0 && volumes.length > 0);
    });
    await run("eventful", shared.ownership!.labels("container", "web"));
    await remove("eventful");
    (await engineNow().request("POST", "/volumes/create", { Name: "after" })).expect(201);
    await engineNow().request("DELETE", "/volumes/after");
    await eventually(() => {
      for (const seen of [everything, volumes]) {
        assert.ok(
          seen.some(({ type, action, id }) => type === "volume" && action === "create" && id === "after"),
        );
      }
    });
    t.true(volumes.every(({ type }) => type === "volume"));
    const started = everything.find(({ name, action }) => name === "eventful" && action === "start");
    t.like(started, { type: "container", appId: "web" });
    t.is(started?.attributes["image"], "svc/foreign:1");
    t.is(started?.attributes["svc.proof"], "", "the proof is a secret");
    t.true(Math.abs(Number(started?.time?.seconds ?? 0n) - Date.now() / 1000) < 60);
    ended.abort();
    await Promise.all(collecting);
  });
}
