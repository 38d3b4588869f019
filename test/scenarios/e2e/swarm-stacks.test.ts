/**
 * Compose projects on a swarm of three managers: rolling upgrades, health checks at ports, and an unreachable manager.
 */
import assert from "node:assert/strict";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import anyTest, { type TestFn } from "ava";
import { AppService, type App } from "../../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../../gen/svc/v1/backup_pb.ts";
import { ScheduleService } from "../../../gen/svc/v1/schedule_pb.ts";
import { installedCompose } from "../../support/compose-generations.ts";
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
/** Most of each test is waiting, and each has its own app: they run in parallel, after those that remove nodes. */
const test = whyNoSwarm === undefined ? base : base.skip;
const takingNodes = whyNoSwarm === undefined ? base.serial : base.serial.skip;
const nobody = 65534;
const longMs = 90_000;

/**
 * Shows its arguments on its page; version 404 has no page. Without the trap each stop would take the whole grace
 * period.
 */
const web = `
mkdir -p /tmp/www /keep
cp /etc/greeting /tmp/www/greeting 2>/dev/null
[ "$VERSION" = 404 ] || echo "$VERSION" > /tmp/www/index.html
echo up $VERSION $(cat /keep/word 2>/dev/null)
trap 'exit 0' TERM; httpd -f -p 8080 -h /tmp/www & wait`;

base.before(async (t) => {
  if (whyNoSwarm !== undefined) return;
  t.timeout(180_000);
  const swarm = await startSwarm(3, 3);
  // Cleaned up from here on, whatever fails.
  t.context.swarm = swarm;
  const { images } = swarm.manager;
  for (const version of ["1", "2", "404"]) {
    const tag = imageOf(swarm, version);
    await images.build(tag, { cmd: ["/bin/sh", "-c", web], env: { VERSION: version } });
    await images.push(tag);
  }
  const config = `[docker]\nsocket = "${swarm.manager.socket}"\npublish_address = "0.0.0.0"\nusers_registries = ["*"]\n[apps]\npath = ${JSON.stringify(installedCompose?.dirs ?? [])}`;
  // It checks the health of tasks at their nodes, which are reachable from there.
  t.context.daemon = await startDaemon({ config, launcher: ["nsenter", ...swarm.inside] });
});

base.after(`nothing stays of any app${needsSwarm}`, async (t) => {
  if (whyNoSwarm !== undefined) return;
  for (const kind of ["services", "secrets", "configs"])
    t.deepEqual((await t.context.swarm.manager.request("GET", `/${kind}`)).expect(200), []);
});

base.after.always(async ({ context }) => {
  // It may have finished before they were there.
  const { swarm, daemon } = context as Partial<Shared>;
  await daemon?.[Symbol.asyncDispose]();
  await swarm?.[Symbol.asyncDispose]();
});

const imageOf = ({ registry }: TestSwarm, version: string): string => `${registry}/web:${version}`;
const swarmed = (replicas = 1): { on: string; replicas: number } => ({ on: "swarm", replicas });
const runningOf = ({ tasks }: App): string[] =>
  tasks
    .filter(({ state }) => state === "running")
    .map(({ service, slot, node }) => `${service} ${slot} ${node}`.trim())
    .sort();

const silent = "none";
/** The response of each node on a port. */
async function answersOf(swarm: TestSwarm, port: number): Promise<string[]> {
  const all = await Promise.allSettled([1, 2, 3].map((node) => swarm.get(node, port)));
  return all.map((each) => (each.status === "fulfilled" ? each.value.trim() : silent));
}

async function writePackage(
  { daemon }: Shared,
  id: string,
  files: Record<string, string | Buffer>,
): Promise<string> {
  const dir = join(daemon.dir, "packages", id);
  await writeFiles(dir, files);
  return dir;
}

interface Service {
  readonly Spec: {
    readonly Name: string;
    Labels: Record<string, string>;
    TaskTemplate: { ContainerSpec: { Image: string } };
  };
}

/** @param apps their IDs */
async function servicesOf({ swarm }: Shared, ...apps: string[]): Promise<Service[]> {
  const all = (await swarm.manager.request("GET", "/services")).expect(200) as Service[];
  return all.filter(({ Spec: { Labels: labels } }) => apps.includes(labels["svc.app"] ?? ""));
}

interface Listed {
  readonly Name: string;
}

test(`each service of a compose project becomes a swarm service, and all are removed with it${needsSwarm}`, async (t) => {
  t.timeout(300_000);
  const { swarm, daemon } = t.context;
  const apps = daemon.client(AppService);
  const files = (composed: string): Record<string, string | Buffer> => ({
    "svc.yaml": `id: shop
name: shop
version: "1"
compose: { file: compose.yaml }
settings:
  properties:
    port: { type: integer, default: 8090, env: PORT }
    password: { type: string, secret: true, env: PASSWORD }
ports: [{ name: http, setting: port }]
`,
    "greeting.txt": "good day\n",
    "key.txt": "open-sesame-file\n",
    "key.der": Buffer.from("30820122ff00fe", "hex"),
    "compose.yaml": composed,
  });
  const composed = `version: "3.8"
services:
  front:
    image: ${imageOf(swarm, "1")}
    ports: ["\${PORT}:8080"]
    depends_on: [store]
    environment: { WORD: moin }
    configs: [{ source: greeting, target: /etc/greeting }]
  store:
    image: ${imageOf(swarm, "1")}
    environment: { PASSWORD: "\${PASSWORD}" }
    volumes: ["keep:/keep"]
    secrets: [key, der]
    healthcheck: { test: "true", interval: 2s, timeout: 5s, retries: 3 }
volumes: { keep: {} }
configs: { greeting: { file: ./greeting.txt } }
secrets: { key: { file: ./key.txt }, der: { file: ./key.der } }
`;
  const spec = await writePackage(t.context, "shop", files(composed));
  await apps.installApp({ spec, settings: { password: "open-sesame-word" }, placement: swarmed(1) });
  t.like(await apps.startApp({ id: "shop" }), { state: "RUNNING" });
  await eventually(async () => {
    const running = runningOf(await apps.getApp({ id: "shop" }));
    assert.deepEqual(
      running.map((task) => task.replace(/^(front \d) node[123]$/, "$1")),
      ["front 1", "store 1 node1"],
    );
  }, longMs);
  // The content of a config is base64-encoded.
  const words = ["open-sesame", btoa("open-sesame-file\n"), btoa("open-sesame-word"), "MIIBIv8A/g=="];
  for (const path of ["/services", "/tasks", "/secrets", "/configs"]) {
    const { text } = await swarm.manager.request("GET", path);
    for (const word of words) t.false(text.includes(word), path);
  }
  for (const engine of swarm.engines) {
    const list = (await engine.request("GET", "/containers/json?all=true")).expect(200) as { Id: string }[];
    for (const { Id } of list) {
      const { text } = await engine.request("GET", `/containers/${Id}/json`);
      t.false(text.includes("open-sesame"), Id);
    }
  }
  const inStore = async (script: string): Promise<string> => {
    const filters = encodeURIComponent(JSON.stringify({ label: ["com.docker.compose.service=store"] }));
    const list = await swarm.manager.request("GET", `/containers/json?filters=${filters}`);
    const [container] = list.expect(200) as { Id: string }[];
    const asked = { AttachStdout: true, AttachStderr: true, Cmd: ["sh", "-c", script] };
    const made = await swarm.manager.request("POST", `/containers/${container?.Id}/exec`, asked);
    const { Id } = made.expect(201) as { Id: string };
    return (await swarm.manager.request("POST", `/exec/${Id}/start`, { Detach: false })).text;
  };
  t.true((await inStore("od -An -tx1 /run/secrets/der")).includes("30 82 01 22 ff 00 fe"));
  const seen = await inStore("cat /run/secrets/key $PASSWORD_FILE; echo $PASSWORD. > /keep/word; sync");
  for (const text of ["open-sesame-file", "open-sesame-word"]) t.true(seen.includes(text), seen);
  const answering = runningOf(await apps.getApp({ id: "shop" })).find((task) => task.startsWith("front"));
  const node = Number(/node(\d)$/.exec(answering ?? "")?.[1]);
  await eventually(async () => {
    const { ports } = await apps.getApp({ id: "shop" });
    assert.equal(ports[0]?.port, 8090);
  });
  await eventually(async () => assert.equal((await swarm.get(node, 8090)).trim(), "1"), longMs);

  const expectScaled = async (): Promise<void> => {
    const running = runningOf(await apps.getApp({ id: "shop" }));
    assert.deepEqual(
      running.map((task) => task.slice(0, 7)),
      ["front 1", "front 2", "store 1"],
    );
  };
  await apps.scaleApp({ id: "shop", replicas: 2 });
  await eventually(expectScaled, longMs);
  await eventually(async () => {
    const { lines } = await apps.getAppLogs({ id: "shop" });
    const starts = new Set(lines.map(({ text }) => text.replace(/\d@node\d/, "")));
    assert.deepEqual(starts, new Set(["front  | up 1", "store  | up 1"]));
  }, longMs);
  const ofStore = await apps.getAppLogs({ id: "shop", service: "store" });
  t.true(ofStore.lines.length > 0 && ofStore.lines.every(({ text }) => text.startsWith("store ")));

  const backups = daemon.client(BackupService);
  const { results } = await backups.createBackup({ appId: "shop", storages: ["local"] });
  const [made] = results;
  t.is(made?.error, "");
  await inStore("echo spoilt > /keep/word");
  const restored = backups.restoreBackup({
    ...{ appId: "shop", storage: "local", name: made?.name ?? "", stopApp: true },
  });
  await t.notThrowsAsync(restored);
  await eventually(async () => assert.equal((await apps.getApp({ id: "shop" })).state, "RUNNING"), longMs);
  await eventually(expectScaled, longMs);
  t.true((await eventually(() => inStore("cat /keep/word"), longMs)).includes("."));

  // Its volume exists only on this host, too.
  await apps.stopApp({ id: "shop" });
  await apps.placeApp({ id: "shop", placement: { on: "machine" } });
  t.deepEqual(await servicesOf(t.context, "shop"), []);
  await apps.placeApp({ id: "shop", placement: swarmed(1) });
  t.is((await apps.startApp({ id: "shop" })).state, "RUNNING");
  t.true((await eventually(() => inStore("cat /keep/word"), longMs)).includes("."));

  await writePackage(t.context, "shop", files(composed.replace("  front:", "  face:")));
  t.like(await errorOf(apps.upgradeApp({ id: "shop" })), { reason: "app_running" }, "it stores data");
  t.like(await apps.upgradeApp({ id: "shop", stopApp: true }), { restarted: true });
  const names = (await servicesOf(t.context, "shop")).map(({ Spec: { Name } }) => Name.replace(/^.*_/, ""));
  t.deepEqual(names.sort(), ["face", "store"]);

  await apps.stopApp({ id: "shop" });
  await apps.removeApp({ id: "shop" });
  t.deepEqual(await servicesOf(t.context, "shop"), []);
  // No other app has one.
  for (const kind of ["secrets", "configs"])
    t.deepEqual((await swarm.manager.request("GET", `/${kind}`)).expect(200), []);
  const left = async (path: string, key: string): Promise<string[]> => {
    const answer = (await swarm.manager.request("GET", path)).expect(200) as
      Listed[] | Record<string, Listed[]>;
    const list = Array.isArray(answer) ? answer : (answer[key] ?? []);
    return list.map(({ Name }) => Name).filter((name) => name.startsWith("svc-shop"));
  };
  t.deepEqual(await left("/networks", ""), []);
  t.deepEqual(await left("/volumes", "Volumes"), []);
});

const secondTest = installedCompose?.isClassic === false ? test : base.skip;
secondTest(`secrets and configs have the values of variables on a swarm${needsSwarm}`, async (t) => {
  t.timeout(180_000);
  const { swarm, daemon } = t.context;
  const apps = daemon.client(AppService);
  const spec = await writePackage(t.context, "words", {
    "svc.yaml": `id: words\nname: Words\nversion: "1"\ncompose: { file: compose.yaml }\n`,
    ".env": "SECRET_WORD=one\nCONFIG_WORD=two\n",
    "compose.yaml": `services:
  web:
    image: ${imageOf(swarm, "1")}
    command: ["/bin/sh", "-c", "echo $$(cat /run/secrets/word) $$(cat /conf); sleep 3600"]
    stop_grace_period: 1s
    secrets: [word]
    configs: [conf]
secrets: { word: { environment: SECRET_WORD } }
configs: { conf: { environment: CONFIG_WORD } }
`,
  });
  await apps.installApp({ spec, placement: swarmed(1) });
  await apps.startApp({ id: "words" });
  await eventually(async () => {
    const { lines } = await apps.getAppLogs({ id: "words" });
    assert.ok(lines.some(({ text }) => text.endsWith("| one two")));
  }, longMs);
  await apps.removeApp({ id: "words" });
  t.pass();
});

test(`a project that a swarm does not support, or would expose, is rejected before anything changes${needsSwarm}`, async (t) => {
  t.timeout(120_000);
  const { swarm, daemon } = t.context;
  const root = daemon.client(AppService);
  await using user = await daemon.as(nobody);
  const image = imageOf(swarm, "1");
  const refused: string[] = [];
  const refuse = async (id: string, service: string, apps = root): ReturnType<typeof errorOf> => {
    refused.push(id);
    const spec = await writePackage(t.context, id, {
      "svc.yaml": `id: ${id}
name: ${id}
version: "1"
compose: { file: compose.yaml }
settings: { properties: { password: { type: string, secret: true, env: PASSWORD } } }
permissions: [privileged]
`,
      "compose.yaml": `version: "3.8"\nservices: { one: { image: "${image}", ${service} } }\nvolumes: { keep: {} }\n`,
    });
    const settings = { password: "open-sesame" };
    return errorOf(apps.installApp({ spec, settings, placement: swarmed(1), permissionsAck: true }));
  };
  t.like(await refuse("mighty", "privileged: true"), { reason: "not_possible" });
  t.like(await refuse("shows", 'command: ["echo", "${PASSWORD}"]'), { reason: "not_possible" });
  const asUser = user.client(AppService);
  t.like(await refuse("keeps", "volumes: ['keep:/keep']", asUser), { reason: "denied" });
  t.like(await refuse("many", "deploy: { replicas: 33 }", asUser), { reason: "denied" });
  t.like(await refuse("near", "ports: ['127.0.0.1:8095:80']", asUser), { reason: "denied" });
  t.like(await refuse("low", "ports: ['81:80']", asUser), { reason: "denied" });
  t.deepEqual(await servicesOf(t.context, ...refused), []);

  // Only the swarm can detect it, when it gets the second one.
  const half = await writePackage(t.context, "half", {
    "svc.yaml": `id: half\nname: half\nversion: "1"\ncompose: { file: compose.yaml }\n`,
    "compose.yaml": `version: "3.8"
services:
  one: { image: "${image}" }
  two: { image: "${image}", depends_on: [one], deploy: { placement: { constraints: [nonsense] } } }
`,
  });
  await root.installApp({ spec: half, placement: swarmed(1) });
  t.regex((await errorOf(root.startApp({ id: "half" }))).message, /constraint/);
  t.deepEqual(await servicesOf(t.context, "half"), [], "nothing is left of a partial app");
  await root.removeApp({ id: "half" });
});

test(`a renamed service takes over the port of its predecessor${needsSwarm}`, async (t) => {
  t.timeout(180_000);
  const { swarm, daemon } = t.context;
  const apps = daemon.client(AppService);
  // Another node would have the port free.
  const atOne = "{ placement: { constraints: [node.hostname == node1] } }";
  const files = (version: string, name: string): Record<string, string> => ({
    "svc.yaml": `id: named\nname: named\nversion: "${version}"\ncompose: { file: compose.yaml }\n`,
    "compose.yaml": `version: "3.8"\nservices: { ${name}: { image: "${imageOf(swarm, version)}", ports: ["8097:8080"], deploy: ${atOne} } }\n`,
  });
  const spec = await writePackage(t.context, "named", files("1", "front"));
  await apps.installApp({ spec, placement: swarmed(1) });
  await apps.startApp({ id: "named" });
  await writePackage(t.context, "named", files("2", "face"));
  t.regex(
    (await errorOf(apps.upgradeApp({ id: "named" }))).message,
    /2 cannot run at the same time as the installed version/,
  );
  t.like(await apps.getApp({ id: "named" }), { state: "RUNNING", version: "1" });
  t.like(await apps.upgradeApp({ id: "named", stopApp: true }), { to: "2", restarted: true });
  await eventually(async () => assert.equal((await swarm.get(1, 8097)).trim(), "2"), longMs);
  await apps.stopApp({ id: "named" });
  await apps.removeApp({ id: "named" });
});

test(`an upgrade replaces task by task, and a failed one rolls back while the app runs${needsSwarm}`, async (t) => {
  t.timeout(300_000);
  const { swarm, daemon } = t.context;
  const apps = daemon.client(AppService);
  const manifest = (version: string, image: string, more = ""): Record<string, string> => ({
    "svc.yaml": `id: rolls
name: rolls
version: "${version}"
docker: { image: "${image}"${more} }
settings: { properties: { port: { type: integer, default: 8085 } } }
ports: [{ name: http, setting: port, container_port: 8080 }]
health: { http: { port: http }, start_period: 1s, interval: 1s, timeout: 2s, retries: 2 }
restart: { policy: never }
upgrade: { order: stop-first, watch: 2s }
`,
  });
  const spec = await writePackage(t.context, "rolls", manifest("1", imageOf(swarm, "1")));
  await apps.installApp({ spec, placement: swarmed(3) });
  await apps.startApp({ id: "rolls" });
  await eventually(async () => {
    const { health, healthReason } = await apps.getApp({ id: "rolls" });
    assert.equal(health, "healthy", healthReason);
  }, longMs);
  const answers = async () => (await answersOf(swarm, 8085)).filter((answer) => answer !== silent);

  /** Responses observed during the upgrade. Each poll takes longer than a change, and a gap lasts at least a second. */
  const during = async (work: Promise<unknown>): Promise<{ states: Set<string>; least: number }> => {
    const states = new Set<string>();
    let [isOver, least] = [false, 3];
    const over = work.catch(() => undefined).then(() => (isOver = true));
    while (!isOver) {
      states.add((await apps.getApp({ id: "rolls" })).state);
      least = Math.min(least, (await answers()).length);
      await wait(200);
    }
    await over;
    return { states, least };
  };
  await writePackage(t.context, "rolls", manifest("2", imageOf(swarm, "2")));
  const upgrade = apps.upgradeApp({ id: "rolls" });
  const seen = await during(upgrade);
  t.like(await upgrade, { from: "1", to: "2", restarted: true });
  t.deepEqual([...seen.states].sort(), ["RUNNING", "UPGRADING"]);
  t.true(seen.least >= 1, "some task always responds");
  await eventually(async () => assert.deepEqual(await answers(), ["2", "2", "2"]), longMs);

  // One exits at once, which the swarm detects; the other runs without a page, which svc detects.
  const bad = [
    manifest("3", imageOf(swarm, "1"), ", command: [/bin/sh, -c, 'echo no way; exit 1']"),
    manifest("3", imageOf(swarm, "404")),
  ];
  for (const [at, files] of bad.entries()) {
    await writePackage(t.context, "rolls", files);
    const failing = errorOf(apps.upgradeApp({ id: "rolls" }));
    const { states, least } = await during(failing);
    const { reason, payload } = await failing;
    t.is(reason, "start_failed");
    // Only from the failed task.
    if (at === 0) t.deepEqual((payload.value as { lastLines?: string[] }).lastLines, ["no way"]);
    t.deepEqual([...states].sort(), ["RUNNING", "UPGRADING"]);
    t.true(least >= 1, "some task always responds");
    t.like(await apps.getApp({ id: "rolls" }), { state: "RUNNING", version: "2", enabled: true });
    await eventually(async () => assert.deepEqual(await answers(), ["2", "2", "2"]), longMs);
  }

  // In the middle, when some tasks already run the new version.
  await writePackage(t.context, "rolls", {
    "svc.yaml": (manifest("3", imageOf(swarm, "1"))["svc.yaml"] ?? "").replace("watch: 2s", "watch: 600s"),
  });
  const given = errorOf(apps.upgradeApp({ id: "rolls" }));
  await eventually(async () => assert.ok((await answers()).includes("1")), longMs);
  const canceledMs = performance.now();
  await apps.cancelAppOperation({ id: "rolls" });
  t.like(await given, { code: "Canceled" });
  t.true(performance.now() - canceledMs < longMs);
  t.like(await apps.getApp({ id: "rolls" }), { state: "RUNNING", version: "2" });
  await eventually(async () => assert.deepEqual(await answers(), ["2", "2", "2"]), longMs);

  // A fourth task finds no node with a free port, and the swarm replaces nothing while that task waits.
  await apps.scaleApp({ id: "rolls", replicas: 4 });
  await eventually(async () => {
    const { tasks } = await apps.getApp({ id: "rolls" });
    assert.match(tasks.find(({ slot }) => slot === 4)?.message ?? "", /no suitable node/);
  }, longMs);
  const refused = await errorOf(apps.upgradeApp({ id: "rolls" }));
  t.is(refused.reason, "not_possible");
  t.regex(
    refused.message,
    /task 4 of app "rolls" has no node \(no suitable node .*; add a node, .* svc app scale rolls N, or stop it first/,
  );
  await apps.scaleApp({ id: "rolls", replicas: 3 });
  t.like(await apps.getApp({ id: "rolls" }), { state: "RUNNING", version: "2" });
  await eventually(async () => assert.deepEqual(await answers(), ["2", "2", "2"]), longMs);
  t.notRegex(daemon.log(), /did not come back/, "no task restarted");
  await apps.stopApp({ id: "rolls" });
  await apps.removeApp({ id: "rolls" });
});

takingNodes(
  `an upgrade in whose middle an engine goes leaves the old version where it can run${needsSwarm}`,
  async (t) => {
    t.timeout(300_000);
    const { swarm, daemon } = t.context;
    const apps = daemon.client(AppService);
    const manifest = (version: string, watch: string): Record<string, string> => ({
      "svc.yaml": `id: half-way
name: half-way
version: "${version}"
docker: { image: "${imageOf(swarm, version)}" }
settings: { properties: { port: { type: integer, default: 8086 } } }
ports: [{ name: http, setting: port, container_port: 8080 }]
stop: { grace: 2s }
upgrade: { order: stop-first, watch: ${watch} }
`,
    });
    const answers = async (...nodes: number[]): Promise<string[]> => {
      const all = await Promise.allSettled(nodes.map((node) => swarm.get(node, 8086)));
      return all.map((each) => (each.status === "fulfilled" ? each.value.trim() : "none"));
    };
    const spec = await writePackage(t.context, "half-way", manifest("1", "1s"));
    await apps.installApp({ spec, placement: swarmed(3) });
    await apps.startApp({ id: "half-way" });
    await eventually(async () => assert.deepEqual(await answers(1, 2, 3), ["1", "1", "1"]), longMs);
    await writePackage(t.context, "half-way", manifest("2", "20s"));
    const given = errorOf(apps.upgradeApp({ id: "half-way" }));
    await eventually(async () => assert.ok((await answers(1, 2, 3)).includes("2")), longMs);
    try {
      await swarm.engines[2]?.kill();
      const error = await given;
      t.is(error.reason, "start_failed");
      t.regex(
        error.message,
        /task \d no longer has a node \(no suitable node .*\); add a node, .* scale half-way N; app "half-way" stays at 1$/,
      );
      t.log(error.message);
      t.like(await apps.getApp({ id: "half-way" }), { state: "RUNNING", version: "1" });
      t.deepEqual(await answers(1, 2), ["1", "1"]);
      const { lines } = await apps.getAppLogs({ id: "half-way", tail: 3 });
      t.is(lines.at(-1)?.text, "node3 did not respond: lines of its tasks are missing here");
      const refused = await errorOf(apps.upgradeApp({ id: "half-way" }));
      t.like(refused, { reason: "not_possible" });
      t.log(refused.message);

      const leaving = new AbortController();
      const followed: string[] = [];
      for await (const { lines: some } of apps.streamAppLogs({ id: "half-way", tail: 1 }, leaving)) {
        followed.push(...some.map(({ text }) => text));
        if (followed.some((text) => text.startsWith("node3 did not respond"))) break;
      }
      leaving.abort();

      // It neither waits for the node nor stops running tasks.
      t.like(await apps.restartApp({ id: "half-way" }), { state: "RUNNING" });
      t.regex((await apps.getApp({ id: "half-way" })).stateReason, /^2 of 3 tasks run: no suitable node/);
      t.deepEqual(await answers(1, 2), ["1", "1"]);
    } finally {
      await swarm.engines[2]?.start();
    }
    await eventually(async () => assert.deepEqual(await answers(1, 2, 3), ["1", "1", "1"]), longMs);
    t.notRegex(daemon.log(), /did not come back/, "no task restarted");
    await apps.stopApp({ id: "half-way" });
    await apps.removeApp({ id: "half-way" });
  },
);

test(`jobs upgrade a compose project on a swarm service by service, roll back a bad version, and restart it${needsSwarm}`, async (t) => {
  t.timeout(300_000);
  const { swarm, daemon } = t.context;
  const [apps, schedules] = [daemon.client(AppService), daemon.client(ScheduleService)];
  const files = (version: string, image: string, more = "", another = ""): Record<string, string> => ({
    "svc.yaml": `id: team
name: team
version: "${version}"
compose: { file: compose.yaml }
restart: { policy: never }
upgrade: { order: stop-first, watch: 2s }
`,
    "compose.yaml": `version: "3.8"
services:
  front: { image: "${imageOf(swarm, image)}", ports: ["8098:8080"], depends_on: [side]${more} }
  side: { image: "${imageOf(swarm, image)}", deploy: { replicas: 1 } }
${another}`,
  });
  const run = async (id: string, type: string): Promise<{ status: string; error: string }> => {
    await schedules.upsertSchedule({ id, trigger: "0 4 1 1 *", action: { type, app: "team" } });
    const { run: began } = await schedules.runSchedule({ id });
    return eventually(async () => {
      const { runs } = await schedules.listScheduleRuns({ id });
      const own = runs.find((each) => each.id === began?.id);
      assert.ok(own !== undefined && own.status !== "RUNNING");
      return own;
    }, longMs);
  };
  const answers = async () => (await answersOf(swarm, 8098)).filter((answer) => answer !== silent);
  const spec = await writePackage(t.context, "team", files("1", "1"));
  await apps.installApp({ spec, placement: swarmed(2) });
  await apps.startApp({ id: "team" });
  await eventually(async () => assert.deepEqual(await answers(), ["1", "1"]), longMs);

  await writePackage(t.context, "team", files("2", "2"));
  t.like(await run("newest", "app_update"), { status: "SUCCEEDED", error: "" });
  t.like(await apps.getApp({ id: "team" }), { state: "RUNNING", version: "2" });
  await eventually(async () => assert.deepEqual(await answers(), ["2", "2"]), longMs);

  const another = `  more: { image: "${imageOf(swarm, "1")}", deploy: { replicas: 1 } }\n`;
  await writePackage(t.context, "team", files("3", "1", ", command: [/bin/false]", another));
  const bad = await run("newest", "app_update");
  t.is(bad.status, "FAILED");
  t.regex(bad.error, /service "front"/);
  t.like(await apps.getApp({ id: "team" }), { state: "RUNNING", version: "2", enabled: true });
  await eventually(async () => assert.deepEqual(await answers(), ["2", "2"]), longMs);
  // Replaced services are restored, and new ones are gone.
  const services = await servicesOf(t.context, "team");
  t.is(services.length, 2, "front and side");
  const images = new Set(
    services.map(({ Spec }) => Spec.TaskTemplate.ContainerSpec.Image.replace(/@.*/, "")),
  );
  t.is(images.size, 1, [...images].join(" "));
  t.notRegex(daemon.log(), /did not come back/, "no task restarted");

  const since = ({ tasks }: App): string[] =>
    tasks.map((task) => `${task.since?.seconds}.${task.since?.nanos}`);
  const before = since(await apps.getApp({ id: "team" }));
  t.like(await run("again", "app_restart"), { status: "SUCCEEDED", error: "" });
  const after = await apps.getApp({ id: "team" });
  t.is(after.state, "RUNNING");
  t.false(
    since(after).some((time) => before.includes(time)),
    "each task was replaced",
  );
  await apps.stopApp({ id: "team" });
  t.deepEqual((await apps.removeApp({ id: "team" })).disabledSchedules.sort(), ["again", "newest"]);
});

takingNodes(
  `a manager that is cut off says so, does nothing, and shows what became and ends what it began when it is back${needsSwarm}`,
  async (t) => {
    t.timeout(300_000);
    const { swarm, daemon } = t.context;
    const apps = daemon.client(AppService);
    const spec = await writePackage(t.context, "split", {
      "svc.yaml": `id: split\nname: split\nversion: "1"\ndocker: { image: "${imageOf(swarm, "1")}" }\n`,
    });
    await apps.installApp({ spec, placement: swarmed(1) });
    await apps.startApp({ id: "split" });
    const replicas = async (): Promise<number[]> => {
      const services = await swarm.engines[1]?.request("GET", "/services");
      const all = services?.expect(200) as {
        Spec: { Labels: Record<string, string>; Mode: { Replicated: { Replicas: number } } };
      }[];
      return all
        .filter(({ Spec }) => Spec.Labels["svc.app"] === "split")
        .map(({ Spec }) => Spec.Mode.Replicated.Replicas);
    };
    // Another app is in the middle of an upgrade.
    const manifest = (version: string, watch: string): Record<string, string> => ({
      "svc.yaml": `id: torn
name: torn
version: "${version}"
docker: { image: "${imageOf(swarm, version)}" }
settings: { properties: { port: { type: integer, default: 8087 } } }
ports: [{ name: http, setting: port, container_port: 8080 }]
stop: { grace: 2s }
upgrade: { order: stop-first, watch: ${watch} }
`,
    });
    const answers = () => answersOf(swarm, 8087);
    const torn = await writePackage(t.context, "torn", manifest("1", "1s"));
    await apps.installApp({ spec: torn, placement: swarmed(3) });
    await apps.startApp({ id: "torn" });
    await eventually(async () => assert.deepEqual(await answers(), ["1", "1", "1"]), longMs);
    await writePackage(t.context, "torn", manifest("2", "600s"));
    const given = errorOf(apps.upgradeApp({ id: "torn" }));
    await eventually(async () => assert.ok((await answers()).includes("2")), longMs);
    await swarm.link(1, "down");
    try {
      const unknown = await eventually(async () => {
        const app = await apps.getApp({ id: "split" });
        assert.equal(app.state, "UNKNOWN", app.stateReason);
        return app;
      }, longMs);
      t.log(unknown.stateReason);
      const acts = {
        stop: apps.stopApp.bind(apps),
        scale: apps.scaleApp.bind(apps),
        remove: apps.removeApp.bind(apps),
      };
      for (const [name, act] of Object.entries(acts)) {
        const error = await errorOf(act({ id: "split", replicas: 3 }));
        t.is(error.code, "Unavailable", `${name}: ${error.message}`);
        t.log(name, error.message);
      }
      // The other apps continue unaffected.
      await eventually(async () => assert.deepEqual(await replicas(), [1]), longMs);
      t.log((await given).message);
    } finally {
      await swarm.link(1, "up");
    }
    // Its last request was a stop.
    await eventually(async () => {
      assert.deepEqual(await servicesOf(t.context, "split"), []);
      assert.equal((await apps.getApp({ id: "split" })).state, "STOPPED");
    }, 2 * longMs);
    await eventually(async () => {
      assert.deepEqual(await answers(), ["1", "1", "1"]);
      const { state, version } = await apps.getApp({ id: "torn" });
      assert.deepEqual([state, version], ["RUNNING", "1"]);
    }, 2 * longMs);
    t.notRegex(daemon.log(), /did not come back/, "no task restarted");
    await apps.removeApp({ id: "split" });
    await apps.stopApp({ id: "torn" });
    await apps.removeApp({ id: "torn" });
  },
);
