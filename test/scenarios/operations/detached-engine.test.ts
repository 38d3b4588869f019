/** Detached operations that need an engine: prune, repull and placement. */
import assert from "node:assert/strict";
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { DockerService } from "../../../gen/svc/v1/docker_pb.ts";
import { OperationService, type Operation } from "../../../gen/svc/v1/operation_pb.ts";
import { startDaemon, type TestDaemon } from "../../support/daemon.ts";
import { dockerTest, needsDocker, sharedEngine } from "../../support/docker-test.ts";
import { errorOf } from "../../support/errors.ts";
import { writeFiles } from "../../support/packages.ts";
import { findSwarmObstacle, startSwarm } from "../../support/swarm.ts";

// AVA looks for tests as soon as it finds the first hook.
const whyNoSwarm = await findSwarmObstacle();
const engineNow = sharedEngine();
const swarmTest = whyNoSwarm === undefined ? test : test.skip;
const needsSwarm = whyNoSwarm === undefined ? "" : ` (skipped: ${whyNoSwarm})`;

/** The operation after it has finished, and the phases that it reported. */
async function finished(
  daemon: TestDaemon,
  { detached }: { detached?: Operation | undefined },
): Promise<{ last: Operation; phases: string[] }> {
  assert.ok(detached);
  let last = detached;
  const phases = new Set<string>();
  for await (const { event } of daemon.client(OperationService).streamOperation({ id: detached.id })) {
    if (event.case === "line") phases.add(event.value.phase);
    if (event.case === "operation") last = event.value;
  }
  return { last, phases: [...phases] };
}

async function writeImagePackage(daemon: TestDaemon, id: string, image: string): Promise<string> {
  const dir = join(daemon.dir, id);
  await writeFiles(dir, {
    "svc.yaml": `id: ${id}\nname: ${id}\nversion: "1"\ndocker: { image: "${image}" }\n`,
  });
  return dir;
}

dockerTest(`a detached prune removes the selected items and reports its result${needsDocker}`, async (t) => {
  t.timeout(120_000);
  const engine = engineNow();
  await using daemon = await startDaemon({ config: engine.config });
  const docker = daemon.client(DockerService);
  for (const Name of ["chosen", "left"])
    (await engine.request("POST", "/volumes/create", { Name })).expect(201);
  const request = { target: "volumes", danglingOnly: false, ids: ["chosen"], detach: true };
  const { last, phases } = await finished(daemon, await docker.pruneDocker(request));
  t.like(last, { kind: "prune", state: "SUCCEEDED", appId: "", detached: true });
  t.deepEqual(phases, ["remove"]);
  t.deepEqual(
    (last.result?.["removed"] as { name: string }[]).map(({ name }) => name),
    ["chosen"],
  );
  t.is((await engine.request("GET", "/volumes/chosen")).status, 404);
  (await engine.request("GET", "/volumes/left")).expect(200);
});

dockerTest(`a detached repull puts a running app on its new image${needsDocker}`, async (t) => {
  t.timeout(120_000);
  const engine = engineNow();
  const registry = await engine.registry();
  const tag = `${registry.host}/detached:latest`;
  const publish = async (n: string): Promise<void> => {
    await engine.images.build(tag, { labels: { n } });
    await engine.images.push(tag);
    await engine.images.remove(tag);
  };
  await publish("1");
  await using daemon = await startDaemon({ config: engine.config });
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: await writeImagePackage(daemon, "web", tag) });
  await apps.startApp({ id: "web" });
  const same = await finished(daemon, await apps.repullApp({ id: "web", detach: true }));
  t.like(same.last, { kind: "repull", state: "SUCCEEDED", result: { changed: false, restarted: false } });
  await publish("2");
  const { last, phases } = await finished(daemon, await apps.repullApp({ id: "web", detach: true }));
  t.like(last, { state: "SUCCEEDED", appId: "web", result: { changed: true, restarted: true } });
  t.true(phases.includes("pull"));
  t.is((await apps.getApp({ id: "web" })).state, "RUNNING");
});

swarmTest(`a detached placement moves an app to a swarm and back${needsSwarm}`, async (t) => {
  t.timeout(240_000);
  await using swarm = await startSwarm(1);
  const tag = `${swarm.registry}/web:1`;
  await swarm.manager.images.build(tag);
  await swarm.manager.images.push(tag);
  await using daemon = await startDaemon({
    config: `[docker]\nsocket = "${swarm.manager.socket}"\npublish_address = "0.0.0.0"`,
  });
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: await writeImagePackage(daemon, "web", tag) });
  const toSwarm = { id: "web", placement: { on: "swarm", replicas: 1 }, detach: true };
  const toMachine = { id: "web", placement: { on: "machine" }, detach: true };
  const pending = await apps.placeApp(toSwarm);
  t.like(pending, { id: "web", state: "STOPPED" });
  const { last } = await finished(daemon, pending);
  t.like(last, { kind: "place", state: "SUCCEEDED", appId: "web", error: undefined });
  t.like(await apps.getApp({ id: "web" }), { placement: { on: "swarm", replicas: 1 } });

  await apps.startApp({ id: "web" });
  const refused = await finished(daemon, await apps.placeApp(toMachine));
  t.like(refused.last, { state: "FAILED", error: { detail: { reason: "app_running" } } });
  await apps.stopApp({ id: "web" });
  const back = await finished(daemon, await apps.placeApp(toMachine));
  t.is(back.last.state, "SUCCEEDED");
  t.is((await apps.getApp({ id: "web" })).placement, undefined);
  t.like(await errorOf(apps.scaleApp({ id: "web", replicas: 2 })), { reason: "not_possible" });
});
