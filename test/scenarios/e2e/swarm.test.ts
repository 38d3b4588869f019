/** Apps on a swarm of three engines, each in its own emulated machine: deployment, status and removal. */
import assert from "node:assert/strict";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import anyTest, { type TestFn } from "ava";
import { AppService, type App } from "../../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../../gen/svc/v1/backup_pb.ts";
import { startDaemon, type TestDaemon } from "../../support/daemon.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { writeFiles } from "../../support/packages.ts";
import { findSwarmObstacle, startSwarm, type TestSwarm } from "../../support/swarm.ts";

interface Shared {
  swarm: TestSwarm;
  daemon: TestDaemon;
}

const base = anyTest as TestFn<Shared>;
const whyNoSwarm = await findSwarmObstacle();
const needsSwarm = whyNoSwarm === undefined ? "" : ` (skipped: ${whyNoSwarm})`;
const test = whyNoSwarm === undefined ? base.serial : base.serial.skip;
const nobody = 65534;
const longMs = 60_000;

base.before(async (t) => {
  if (whyNoSwarm !== undefined) return;
  t.timeout(180_000);
  const swarm = await startSwarm(3);
  // Cleaned up from here on, whatever fails.
  t.context.swarm = swarm;
  const { images } = swarm.manager;
  const web =
    'mkdir -p /tmp/www; echo "$WORD $HOSTNAME" > /tmp/www/index.html; echo up; exec httpd -f -p 8080 -h /tmp/www';
  for (const version of ["1", "2"]) {
    const tag = `${swarm.registry}/web:${version}`;
    await images.build(tag, { cmd: ["/bin/sh", "-c", web], env: { VERSION: version } });
    await images.push(tag);
  }
  const config = `[docker]\nsocket = "${swarm.manager.socket}"\npublish_address = "0.0.0.0"\nusers_registries = ["*"]`;
  // It reads users' images from the registry itself.
  const launcher = ["nsenter", ...swarm.inside];
  t.context.daemon = await startDaemon({ config, launcher });
});

base.after.always(async ({ context }) => {
  // It may have finished before they were there.
  const { swarm, daemon } = context as Partial<Shared>;
  await daemon?.[Symbol.asyncDispose]();
  await swarm?.[Symbol.asyncDispose]();
});

/** A package directory; every version uses the same path. */
async function packageOf({ swarm, daemon }: Shared, id: string, more = "", image = "web:1"): Promise<string> {
  const dir = join(daemon.dir, "packages", id);
  await mkdir(dir, { recursive: true });
  await writeFiles(dir, {
    "svc.yaml": `id: ${id}
name: ${id}
version: "1"
docker: { image: "${swarm.registry}/${image}" }
${more}
`,
  });
  return dir;
}

/**
 * Exits with 0 on a stop, as most servers do. A swarm that stops it for a failed health check counts that as success.
 */
const obeys = `command: [/bin/sh, -c, "trap 'exit 0' TERM; sleep 1000 & wait"]`;

const placement = (replicas: number): { on: string; replicas: number } => ({ on: "swarm", replicas });
const nodesOf = ({ tasks }: App): string[] =>
  tasks.filter(({ state }) => state === "running").map(({ node }) => node);

const webParts = `settings: { properties: { port: { type: integer, default: 8081 }, word: { type: string, default: hello, env: WORD } } }
ports: [{ name: http, setting: port, container_port: 8080 }]`;

test(`an app runs on a swarm, scales over its nodes, moves when a node fails, and is removed${needsSwarm}`, async (t) => {
  t.timeout(240_000);
  const { swarm, daemon } = t.context;
  const apps = daemon.client(AppService);
  const spec = await packageOf(t.context, "web", webParts);
  const installed = await apps.installApp({ spec, placement: placement(1) });
  t.like(installed, {
    runtime: "docker",
    state: "STOPPED",
    placement: { on: "swarm", replicas: 1, ports: "host" },
  });
  t.like(await apps.startApp({ id: "web" }), { state: "RUNNING" });
  const scaled = await apps.scaleApp({ id: "web", replicas: 3 });
  t.is(scaled.placement?.replicas, 3);
  const spread = await eventually(async () => {
    const app = await apps.getApp({ id: "web" });
    assert.deepEqual(nodesOf(app).sort(), ["node1", "node2", "node3"], JSON.stringify(app.tasks.map(String)));
    return app;
  }, longMs);
  t.deepEqual(
    spread.tasks.map(({ slot }) => slot),
    [1, 2, 3],
  );
  for (const node of [1, 2, 3]) {
    await eventually(async () => assert.match(await swarm.get(node, 8081), /^hello \w+/), longMs);
  }
  await eventually(async () => {
    const { lines } = await apps.getAppLogs({ id: "web" });
    assert.deepEqual(
      new Set(lines.map(({ text }) => text.replace(/^\d@/, ""))),
      new Set(["node1 | up", "node2 | up", "node3 | up"]),
    );
  }, longMs);
  await eventually(async () => {
    const [stats] = (await apps.getAppStats({})).stats;
    assert.ok(stats?.id === "web" && (stats.memoryBytes ?? 0n) > 0n);
  }, longMs);

  await daemon.kill();
  await daemon.restart();
  t.like(await apps.getApp({ id: "web" }), { state: "RUNNING", enabled: true });

  await swarm.engines[2]?.kill();
  await eventually(async () => {
    const app = await apps.getApp({ id: "web" });
    assert.match(app.stateReason, /^2 of 3 tasks run/, app.state);
  }, longMs);
  await swarm.engines[2]?.start();
  await eventually(async () => {
    const app = await apps.getApp({ id: "web" });
    assert.equal(
      nodesOf(app).length,
      3,
      `${app.stateReason} ${JSON.stringify(app.tasks.map(({ state, node, message }) => [state, node, message]))}`,
    );
    assert.equal(app.stateReason, "");
  }, longMs);

  t.like(await apps.stopApp({ id: "web" }), { state: "STOPPED" });
  await apps.removeApp({ id: "web" });
  t.deepEqual((await swarm.manager.request("GET", "/services")).expect(200), []);
  const networks = (await swarm.manager.request("GET", "/networks")).expect(200) as { Name: string }[];
  t.deepEqual(
    networks.filter(({ Name }) => Name.startsWith("svc-web")),
    [],
  );
});

test(`a restart while a node is down starts the other services, and names the unknown state${needsSwarm}`, async (t) => {
  t.timeout(240_000);
  const { swarm, daemon } = t.context;
  const apps = daemon.client(AppService);
  const image = `"${swarm.registry}/web:1"`;
  const away = "deploy: { replicas: 1, placement: { constraints: [node.hostname==node3] } }";
  for (const [id, services] of [
    ["parted", `{ front: { image: ${image}, depends_on: [there] }, there: { image: ${image}, ${away} } }`],
    ["distant", `{ there: { image: ${image}, ${away} } }`],
  ] as const) {
    const dir = await packageOf(t.context, id);
    await writeFiles(dir, {
      "svc.yaml": `id: ${id}\nname: ${id}\nversion: "1"\ncompose: { file: compose.yaml }\nstop: { grace: 1s }\n`,
      "compose.yaml": `services: ${services}\n`,
    });
    await apps.installApp({ spec: dir, placement: placement(1) });
    t.like(await apps.startApp({ id }), { state: "RUNNING", stateReason: "" });
  }

  const unknown = "node3 is down: 1 earlier task may still run there";
  await swarm.engines[2]?.kill();
  try {
    const restarted = await apps.restartApp({ id: "parted" });
    t.like(restarted, { state: "RUNNING", health: "unhealthy", enabled: true });
    t.regex(restarted.stateReason, /^service "there": no suitable node/);
    t.true(restarted.stateReason.endsWith(`; ${unknown}`), restarted.stateReason);
    t.deepEqual(
      restarted.tasks.map(({ service, state }) => [service, state]),
      [
        ["front", "running"],
        ["there", "pending"],
      ],
    );

    const refused = await errorOf(apps.restartApp({ id: "distant" }));
    t.regex(refused.message, /service "there": no suitable node/);
    t.is((await apps.getApp({ id: "distant" })).state, "FAILED");
    t.like(await apps.stopApp({ id: "distant" }), { state: "STOPPED", stateReason: unknown });
  } finally {
    await swarm.engines[2]?.start();
  }
  await eventually(async () => {
    const app = await apps.getApp({ id: "parted" });
    assert.deepEqual([app.state, app.stateReason, nodesOf(app).length], ["RUNNING", "", 2]);
    assert.equal((await apps.getApp({ id: "distant" })).stateReason, "");
  }, longMs);
  for (const id of ["parted", "distant"]) await apps.removeApp({ id });
});

test(`tasks do not inherit the reserved labels of their image${needsSwarm}`, async (t) => {
  t.timeout(180_000);
  const { swarm, daemon } = t.context;
  const apps = daemon.client(AppService);
  const tag = `${swarm.registry}/claiming:1`;
  const labels = { "com.docker.compose.project": "svc-other", "svc.app": "other", "svc.image": "x" };
  await swarm.manager.images.build(tag, { labels });
  await swarm.manager.images.push(tag);
  const spec = await packageOf(t.context, "claimed", "", "claiming:1");
  await apps.installApp({ spec, placement: placement(3) });
  await apps.startApp({ id: "claimed" });
  const lists = await Promise.all(
    swarm.engines.map(async (engine) => (await engine.request("GET", "/containers/json")).expect(200)),
  );
  const found = lists.flatMap((list) => list as { Labels: Record<string, string> }[]);
  t.is(found.length, 3);
  for (const { Labels: own } of found) {
    t.like(own, { "com.docker.compose.project": "", "svc.app": "claimed", "svc.image": "" });
  }
  await apps.removeApp({ id: "claimed" });
});

test(`an app with a damaged row is stopped on the swarm and removed from it${needsSwarm}`, async (t) => {
  t.timeout(180_000);
  const { swarm, daemon } = t.context;
  const apps = daemon.client(AppService);
  const spec = await packageOf(t.context, "torn");
  const services = async () =>
    (await swarm.manager.request("GET", "/services")).expect(200) as readonly unknown[];
  for (const isStopped of [true, false]) {
    await apps.installApp({ spec, placement: placement(1) });
    await apps.startApp({ id: "torn" });
    t.is((await services()).length, 1);
    {
      using database = new DatabaseSync(join(daemon.storeDir, "svc.db"), { timeout: 5_000 });
      database.exec("UPDATE apps SET record = '{}', updated_at = updated_at + 1 WHERE id = 'torn'");
    }
    await eventually(async () => assert.equal((await apps.getApp({ id: "torn" })).state, "FAILED"));
    if (isStopped) {
      await apps.stopApp({ id: "torn" });
      t.deepEqual(await services(), []);
    }
    await apps.removeApp({ id: "torn" });
    t.deepEqual(await services(), []);
  }
});

test(`secrets never appear in the engine's output, and reach the app${needsSwarm}`, async (t) => {
  t.timeout(120_000);
  const { swarm, daemon } = t.context;
  const apps = daemon.client(AppService);
  const settings = `settings:
  properties:
    password: { type: string, secret: true, env: PASSWORD }
    key: { type: string, secret: true, file: { path: key.txt } }
    greeting: { type: string, file: { path: conf/greeting.txt } }`;
  const spec = await packageOf(t.context, "vault", settings);
  const values = { password: "open-sesame-1", key: "open-sesame-2", greeting: "good day" };
  await apps.installApp({ spec, settings: values, placement: placement(1) });
  t.is((await apps.startApp({ id: "vault" })).state, "RUNNING");
  // The content of a config is base64-encoded.
  const words = ["open-sesame", ...[values.password, values.key].map((value) => btoa(value))];
  for (const path of ["/services", "/tasks", "/secrets", "/configs", "/containers/json"]) {
    const { text } = await swarm.manager.request("GET", path);
    for (const word of words) t.false(text.includes(word), path);
  }
  const { text: configs } = await swarm.manager.request("GET", "/configs");
  t.true(configs.includes(btoa(values.greeting)), "a value that is not secret is visible there");
  const find = async (): Promise<{ node: number; id: string }> => {
    for (const [at, engine] of swarm.engines.entries()) {
      const list = (await engine.request("GET", "/containers/json")).expect(200) as { Id: string }[];
      if (list[0] !== undefined) return { node: at, id: list[0].Id };
    }
    throw new Error("no container");
  };
  const { node, id } = await find();
  const inspected = await swarm.engines[node]!.request("GET", `/containers/${id}/json`);
  t.false(inspected.text.includes("open-sesame"));
  t.true(inspected.text.includes("PASSWORD_FILE=/run/secrets/PASSWORD"));
  const script =
    "cat /run/secrets/PASSWORD /svc/data/key.txt /svc/data/conf/greeting.txt; ls -l /run/secrets/PASSWORD";
  const engine = swarm.engines[node]!;
  const exec = (
    await engine.request("POST", `/containers/${id}/exec`, {
      ...{ AttachStdout: true, AttachStderr: true, Cmd: ["sh", "-c", script] },
    })
  ).expect(201) as { Id: string };
  const { text } = await engine.request("POST", `/exec/${exec.Id}/start`, { Detach: false });
  for (const value of Object.values(values)) t.true(text.includes(value), text);
  // The app's image may set any user.
  t.regex(text, /-r--r--r--/);
  // Each start creates them again, so a stop leaves none.
  await apps.stopApp({ id: "vault" });
  for (const kind of ["secrets", "configs"])
    t.deepEqual((await swarm.manager.request("GET", `/${kind}`)).expect(200), []);
  await apps.removeApp({ id: "vault" });
});

test(`a regular user's app has the same limits on a swarm as on one host${needsSwarm}`, async (t) => {
  t.timeout(120_000);
  const { swarm, daemon } = t.context;
  await using user = await daemon.as(nobody);
  const apps = user.client(AppService);
  const place = async (id: string, more: string): ReturnType<typeof errorOf> => {
    const spec = await packageOf(t.context, id, more);
    return errorOf(apps.installApp({ spec, placement: placement(1), permissionsAck: true }));
  };
  const low =
    "settings: { properties: { port: { type: integer, default: 80 } } }\nports: [{ name: http, setting: port, container_port: 80 }]";
  t.like(await place("low", low), { reason: "invalid_request" });
  t.like(await place("keeps", "volumes: [{ name: keep, path: /keep }]"), { reason: "denied" });
  const near =
    "settings: { properties: { port: { type: integer, default: 8089 } } }\nports: [{ name: http, setting: port, container_port: 80, address: 127.0.0.1 }]";
  t.like(await place("near", near), { reason: "denied" });

  const spec = await packageOf(t.context, "mine", "");
  t.like(await errorOf(apps.installApp({ spec, placement: placement(33) })), { reason: "denied" });
  await apps.installApp({ spec, placement: placement(1) });
  t.like(await errorOf(apps.placeApp({ id: "mine", placement: placement(33) })), { reason: "denied" });
  t.like(await errorOf(apps.scaleApp({ id: "mine", replicas: 33 })), { reason: "denied" });
  t.is((await apps.getApp({ id: "mine" })).placement?.replicas, 1);
  t.is((await apps.startApp({ id: "mine" })).state, "RUNNING");
  const [service] = (await swarm.manager.request("GET", "/services")).expect(200) as {
    Spec: { TaskTemplate: { ContainerSpec: object; Resources: object } };
  }[];
  t.like(service?.Spec.TaskTemplate, {
    ContainerSpec: { User: `${nobody}:${nobody}`, CapabilityDrop: ["ALL"] },
    Resources: { Limits: { Pids: 4096 } },
  });
  await using other = await daemon.as(54321);
  t.like(await errorOf(other.client(AppService).scaleApp({ id: "mine", replicas: 2 })), {
    reason: "not_found",
  });
  await apps.removeApp({ id: "mine" });
});

test(`an app with data stays on this host; one that cannot start explains why and leaves nothing${needsSwarm}`, async (t) => {
  t.timeout(180_000);
  const { swarm, daemon } = t.context;
  const apps = daemon.client(AppService);
  const spec = await packageOf(t.context, "data", "volumes: [{ name: keep, path: /keep }]");
  await apps.installApp({ spec });
  t.like(await errorOf(apps.scaleApp({ id: "data", replicas: 2 })), { reason: "not_possible" });
  await apps.placeApp({ id: "data", placement: placement(2) });
  t.is((await apps.startApp({ id: "data" })).state, "RUNNING");
  t.deepEqual(nodesOf(await apps.getApp({ id: "data" })), ["node1", "node1"]);
  t.like(await errorOf(apps.placeApp({ id: "data", placement: { on: "machine" } })), {
    reason: "app_running",
  });
  const { directory } = await apps.getApp({ id: "data" });
  const kept = join(directory, "volumes/keep/word");
  await writeFile(kept, "dear");
  const backups = daemon.client(BackupService);
  const { results } = await backups.createBackup({ appId: "data", storages: ["local"] });
  t.is(results[0]?.error, "");
  await writeFile(kept, "spoilt");
  const name = results[0]?.name ?? "";
  await backups.restoreBackup({ appId: "data", storage: "local", name, stopApp: true });
  t.is(await readFile(kept, "utf8"), "dear");
  await eventually(async () => {
    assert.deepEqual(nodesOf(await apps.getApp({ id: "data" })), ["node1", "node1"]);
  }, longMs);
  await apps.removeApp({ id: "data" });

  const bad = await packageOf(t.context, "bad");
  await writeFiles(bad, {
    "svc.yaml": `id: bad
name: bad
version: "1"
docker: { image: "${swarm.registry}/web:1", ${obeys} }
settings: { properties: { password: { type: string, secret: true, env: PASSWORD } } }
health: { exec: [/bin/false], start_period: 1s, interval: 1s, retries: 1 }
restart: { policy: never }
`,
  });
  await apps.installApp({ spec: bad, settings: { password: "open-sesame" }, placement: placement(1) });
  t.like(await errorOf(apps.startApp({ id: "bad" })), { reason: "start_failed" });
  t.like(await apps.getApp({ id: "bad" }), { state: "FAILED" });
  for (const kind of ["services", "secrets"])
    t.deepEqual((await swarm.manager.request("GET", `/${kind}`)).expect(200), []);
  await apps.removeApp({ id: "bad" });

  const host = await packageOf(t.context, "host");
  await writeFiles(host, {
    "svc.yaml": `id: host\nname: host\nversion: "1"\ndocker: { image: "${swarm.registry}/web:1", privileged: true }\npermissions: [privileged]\n`,
  });
  const refused = await errorOf(
    apps.installApp({ spec: host, placement: placement(1), permissionsAck: true }),
  );
  t.like(refused, { reason: "not_possible" });
});

test(`an upgrade runs on trial on the swarm, and a bad one leaves the old version${needsSwarm}`, async (t) => {
  t.timeout(180_000);
  const { swarm, daemon } = t.context;
  const apps = daemon.client(AppService);
  const spec = await packageOf(t.context, "grows");
  await apps.installApp({ spec, placement: placement(2) });
  await apps.startApp({ id: "grows" });
  await apps.stopApp({ id: "grows" });
  const write = (version: string, docker: string, more = ""): Promise<void> =>
    writeFiles(spec, {
      "svc.yaml": `id: grows\nname: grows\nversion: "${version}"\ndocker: { image: "${swarm.registry}/${docker} }\n${more}`,
    });
  await write("2", 'web:2"');
  t.like(await apps.upgradeApp({ id: "grows" }), { from: "1", to: "2" });
  await write(
    "3",
    `web:1", ${obeys}`,
    "health: { exec: [/bin/false], interval: 1s, retries: 1 }\nrestart: { policy: never }\n",
  );
  t.like(await errorOf(apps.upgradeApp({ id: "grows" })), { reason: "start_failed" });
  t.like(await apps.getApp({ id: "grows" }), { state: "STOPPED", version: "2", placement: { replicas: 2 } });
  await apps.startApp({ id: "grows" });
  const [service] = (await swarm.manager.request("GET", "/services")).expect(200) as {
    Spec: { TaskTemplate: { ContainerSpec: { Image: string } } };
  }[];
  t.regex(service?.Spec.TaskTemplate.ContainerSpec.Image ?? "", /\/web@sha256:/);
  await apps.removeApp({ id: "grows" });
  t.deepEqual((await swarm.manager.request("GET", "/services")).expect(200), []);
});

test(`an app that exited starts again, and a stop that the swarm missed is repeated${needsSwarm}`, async (t) => {
  t.timeout(240_000);
  const { swarm, daemon } = t.context;
  const apps = daemon.client(AppService);
  const spec = await packageOf(t.context, "ends");
  const script = "test -s /svc/data/stay && exec sleep 1000; sleep 5; exit 3";
  await writeFiles(spec, {
    "svc.yaml": `id: ends
name: ends
version: "1"
docker: { image: "${swarm.registry}/web:1", command: [/bin/sh, -c, "${script}"] }
restart: { policy: never }
settings: { properties: { stay: { type: string, file: { path: stay } } } }
`,
  });
  await apps.installApp({ spec, placement: placement(1) });
  t.like(await apps.startApp({ id: "ends" }), { state: "RUNNING" });
  await eventually(async () => {
    const { state, stateReason } = await apps.getApp({ id: "ends" });
    assert.equal(state, "CRASHED", stateReason);
  }, longMs);
  await apps.updateAppSettings({ id: "ends", values: { stay: "yes" } });
  t.like(await apps.startApp({ id: "ends" }), { state: "RUNNING" });

  await swarm.manager.kill();
  t.like(await errorOf(apps.stopApp({ id: "ends" })), { code: "Unavailable" });
  await swarm.manager.start();
  await eventually(async () => {
    assert.deepEqual((await swarm.manager.request("GET", "/services")).expect(200), []);
    assert.equal((await apps.getApp({ id: "ends" })).state, "STOPPED");
  }, 2 * longMs);
  await apps.removeApp({ id: "ends" });
});
