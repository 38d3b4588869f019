/** Apps in containers, used by a regular user, and the owners of their ports and processes. */
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { promisify } from "node:util";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { MonitorService, type ListeningPort } from "../../../gen/svc/v1/monitor_pb.ts";
import { ProcessService, type Process } from "../../../gen/svc/v1/process_pb.ts";
import { startDaemon, type TestDaemon } from "../../support/daemon.ts";
import { dockerTest, needsDocker, sharedEngine } from "../../support/docker-test.ts";
import { whyNoDocker } from "../../support/docker.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually, nextEvent } from "../../support/eventually.ts";
import { ownershipOf } from "../../support/ownership.ts";
import { freePort, writeFiles } from "../../support/packages.ts";

// The container examples, as used by a user who is neither root nor in the engine's group.

const nobody = 65534;
const engineNow = sharedEngine();

/** Stand-ins with the names of the real images, which tests cannot pull. */
test.before(async () => {
  if (whyNoDocker !== undefined) return;
  const { images } = engineNow();
  const server = [
    "/bin/sh",
    "-c",
    'echo "I am $WHOAMI_NAME" > /tmp/index.html; echo ok > /tmp/health; echo "$WHOAMI_NAME is up"; trap "exit 0" TERM; httpd -f -p $WHOAMI_PORT_NUMBER -h /tmp & wait',
  ];
  await images.build("traefik/whoami:latest", { entrypoint: server, ports: ["80/tcp"] });
  await images.build("caddy:2-alpine", {
    cmd: ["/bin/true"],
    files: {
      "bin/caddy": "#!/bin/sh\ntrap 'exit 0' TERM\nnc -ll -p 8080 -e /bin/answer & wait\n",
      "bin/answer":
        "#!/bin/sh\nread line\nprintf 'HTTP/1.0 200 OK\\r\\n\\r\\n'\nexec wget -qO- http://one:8080/\n",
    },
  });
});

async function daemonOverEngine(): Promise<TestDaemon> {
  return startDaemon({ config: engineNow().config });
}

dockerTest(
  `a user installs and uses whoami, and it keeps running without the daemon${needsDocker}`,
  async (t) => {
    await using daemon = await daemonOverEngine();
    await using user = await daemon.as(nobody);
    const apps = user.client(AppService, "rest");
    const port = await freePort();
    const installed = await apps.installApp({ spec: "whoami", settings: { port, name: "test" } });
    t.like(installed, { runtime: "docker", state: "STOPPED", owner: nobody });
    t.is((await apps.startApp({ id: "whoami" })).state, "RUNNING");
    const answer = async (): Promise<string> => (await fetch(`http://127.0.0.1:${port}/`)).text();
    await eventually(async () => assert.equal(await answer(), "I am test\n"));
    await eventually(
      async () => assert.equal((await apps.getApp({ id: "whoami" })).health, "healthy"),
      15_000,
    );
    t.is((await apps.listAppPorts({ id: "whoami" })).ports[0]?.port, port);
    const [stats] = (await apps.getAppStats({})).stats;
    t.true(
      stats?.id === "whoami" && (stats.memoryBytes ?? 0n) > 0n && stats.networkReceivedBytes !== undefined,
    );
    t.true((await apps.getAppLogs({ id: "whoami" })).lines.some(({ text }) => text === "test is up"));
    t.like(await apps.getAppImage({ id: "whoami" }), {
      reference: "traefik/whoami:latest",
      version: "latest",
    });
    t.true(((await apps.getAppDisk({ id: "whoami" })).imageBytes ?? 0n) > 0n);
    t.like(
      await errorOf(apps.repullApp({ id: "whoami" })),
      { reason: "pinned_image" },
      "it was built on this host",
    );

    await daemon.kill();
    t.is(await answer(), "I am test\n");
    await daemon.restart();
    t.like(await apps.getApp({ id: "whoami" }), { state: "RUNNING", enabled: true });
    await apps.updateAppSettings({ id: "whoami", values: { port, name: "other" } });
    t.true((await apps.getApp({ id: "whoami" })).restartRequired);
    await apps.restartApp({ id: "whoami" });
    await eventually(async () => assert.equal(await answer(), "I am other\n"));
    t.is((await apps.stopApp({ id: "whoami" })).state, "STOPPED");
    await apps.removeApp({ id: "whoami" });
    const all = (await engineNow().request("GET", "/containers/json?all=1")).expect(200) as {
      Labels: object;
    }[];
    t.deepEqual(
      all.filter(({ Labels }) => "svc.app" in Labels),
      [],
    );
  },
);

/** A port chosen before svc rejected root's ports, or when the kernel's limit was different. */
function choosePort({ storeDir }: TestDaemon, id: string, port: number): void {
  using database = new DatabaseSync(join(storeDir, "svc.db"), { timeout: 5_000 });
  database
    .prepare("UPDATE apps SET settings = ?, updated_at = updated_at + 1 WHERE id = ?")
    .run(JSON.stringify({ port }), id);
}

/** The state of an engine that was killed while it started a container with this port, and restarted. */
async function leaveProxy(port: number): Promise<AsyncDisposable> {
  const target = ["-container-ip", "127.0.0.1", "-container-port", "9"];
  const listen = ["-proto", "tcp", "-host-ip", "0.0.0.0", "-host-port", String(port)];
  const proxy = spawn("docker-proxy", [...listen, ...target], {
    stdio: ["ignore", "ignore", "ignore", "pipe"],
    env: { PATH: "/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin" },
  });
  await nextEvent(proxy.stdio[3]!, "data");
  return {
    [Symbol.asyncDispose]: async () => {
      const ended = once(proxy, "exit");
      proxy.kill();
      await ended;
    },
  };
}

dockerTest(
  `a start at a port that the engine failed to free explains how to free it${needsDocker}`,
  async (t) => {
    await using daemon = await daemonOverEngine();
    await using user = await daemon.as(nobody);
    const apps = user.client(AppService);
    const port = await freePort();
    await apps.installApp({ spec: "whoami", settings: { port } });
    const why = async (): Promise<string> =>
      (await errorOf(apps.startApp({ id: "whoami" }))).message.replace(/; use another one: svc .*$/, "");
    {
      await using _proxy = await leaveProxy(port);
      const engine = "the container engine, although no running container publishes it";
      const remedy = "(restart the engine if that lasts)";
      t.is(await why(), `app "whoami" did not start: port ${port} is in use by ${engine} ${remedy}`);
    }
    const engine = engineNow();
    const id = await engine.run("holder", {
      Image: "caddy:2-alpine",
      Cmd: ["/bin/sleep", "3600"],
      ExposedPorts: { "80/tcp": {} },
      HostConfig: { PortBindings: { "80/tcp": [{ HostPort: String(port) }] } },
    });
    await eventually(async () =>
      assert.equal(await why(), `app "whoami" did not start: port ${port} is in use by root`),
    );
    await engine.request("DELETE", `/containers/${id}?force=1`);
    t.is((await apps.startApp({ id: "whoami" })).state, "RUNNING");
    await apps.removeApp({ id: "whoami" });
  },
);

dockerTest(`a restart that would be rejected leaves the app running${needsDocker}`, async (t) => {
  await using daemon = await daemonOverEngine();
  await using user = await daemon.as(nobody);
  const apps = user.client(AppService);
  const port = await freePort();
  await apps.installApp({ spec: "whoami", settings: { port } });
  await apps.startApp({ id: "whoami" });
  t.like(await errorOf(apps.updateAppSettings({ id: "whoami", values: { port: 80 } })), {
    reason: "invalid_request",
  });
  choosePort(daemon, "whoami", 80);
  const refused = await errorOf(apps.restartApp({ id: "whoami" }));
  t.like(refused, { code: "PermissionDenied", reason: "denied" });
  t.regex(refused.message, /port 80/);
  t.like(await apps.getApp({ id: "whoami" }), { state: "RUNNING", enabled: true, restartRequired: true });
  await eventually(async () => {
    const answer = await fetch(`http://127.0.0.1:${port}/`);
    assert.equal(await answer.text(), "I am whoami\n");
  });
  await apps.stopApp({ id: "whoami" });
  t.like(await errorOf(apps.restartApp({ id: "whoami" })), { reason: "denied" });
  const failed = { state: "FAILED", stateReason: refused.message, enabled: true };
  t.like(await apps.getApp({ id: "whoami" }), failed, "it did not run, and does not start");
  await apps.removeApp({ id: "whoami" });
});

dockerTest(`a user installs a compose project and sees its stack${needsDocker}`, async (t) => {
  await using daemon = await daemonOverEngine();
  await using user = await daemon.as(nobody);
  const apps = user.client(AppService);
  const port = await freePort();
  const install = apps.installApp({ spec: "whoami-team", settings: { port } });
  const lacks = await install.then(
    () => "",
    (error: unknown) => String(error),
  );
  if (/needs docker compose or docker-compose/.test(lacks)) {
    t.pass("this host has no compose");
    return;
  }
  t.is(lacks, "");
  await apps.startApp({ id: "whoami-team" });
  await eventually(async () => {
    const answer = await fetch(`http://127.0.0.1:${port}/`);
    assert.equal(await answer.text(), "I am one\n");
  }, 15_000);
  choosePort(daemon, "whoami-team", 80);
  t.like(await errorOf(apps.restartApp({ id: "whoami-team" })), { reason: "denied" });
  t.like(await apps.getApp({ id: "whoami-team" }), { state: "RUNNING", restartRequired: true });
  const { stacks } = await apps.listStacks({});
  t.deepEqual(
    stacks.map(({ name, appId, services }) => [
      name,
      appId,
      services.map(({ name: service }) => service).sort(),
    ]),
    [[ownershipOf(daemon).projectOf("whoami-team"), "whoami-team", ["one", "proxy", "two"]]],
  );
  t.deepEqual(JSON.parse(JSON.stringify(await apps.getAppImage({ id: "whoami-team" }))).reference, undefined);
  t.true((await apps.getAppLogs({ id: "whoami-team" })).lines.some(({ text }) => text === "two | two is up"));
  const ofTwo = { id: "whoami-team", service: "two" };
  const { lines, cursor } = await apps.getAppLogs(ofTwo);
  t.true(lines.length > 0 && lines.every(({ text }) => text.startsWith("two | ")), "one service's lines");
  for await (const { lines: followed } of apps.streamAppLogs({ ...ofTwo, tail: 1 })) {
    t.deepEqual(followed, lines.slice(-1));
    break;
  }
  t.deepEqual((await apps.getAppLogs({ ...ofTwo, after: cursor })).lines, []);
  const unknown = await errorOf(apps.getAppLogs({ id: "whoami-team", service: "three" }));
  t.is(unknown.message, "service must be one of one, proxy, two");
  const disk = await apps.getAppDisk({ id: "whoami-team" });
  t.true(disk.volumes.some(({ name }) => name.endsWith("_state")));
  await apps.removeApp({ id: "whoami-team" });
});

dockerTest(
  `a regular user's app gets no access to the host, whatever its package requests${needsDocker}`,
  async (t) => {
    await using daemon = await daemonOverEngine();
    await using user = await daemon.as(nobody);
    const apps = user.client(AppService);
    const dir = join(daemon.dir, "greedy");
    await mkdir(dir);
    await chmod(dir, 0o755);
    const manifest = (docker: string): string => `id: greedy
name: Greedy
version: "1.0.0"
docker: { image: "traefik/whoami:latest", env: { WHOAMI_PORT_NUMBER: "8080" }, ${docker} }
permissions: [host_mounts]
`;
    await writeFile(join(dir, "svc.yaml"), manifest("mounts: [{ source: /etc, target: /host }]"));
    // A user who cannot grant a permission is not asked for it.
    const error = await errorOf(apps.installApp({ spec: dir }));
    t.like(error, { code: "PermissionDenied", reason: "denied" });
    t.regex(error.message, /only root's own apps may do; leave it out, or have root install the app$/);
    t.deepEqual((await apps.listApps({})).apps, []);
    // Root's app gets them after an acknowledgment.
    const root = daemon.client(AppService);
    const asked = await errorOf(root.installApp({ spec: dir, licenseAck: true }));
    t.is(asked.reason, "license_required", "a license grants no access to the host");
    await root.installApp({ spec: dir, permissionsAck: true });
    await root.startApp({ id: "greedy" });
    await root.removeApp({ id: "greedy" });
  },
);

dockerTest(`an unavailable engine does not affect apps without containers${needsDocker}`, async (t) => {
  const socket = join(engineNow().dir, "away.sock");
  await using daemon = await startDaemon({ config: `[docker]\nsocket = "${socket}"` });
  const apps = daemon.client(AppService);
  const error = await errorOf(apps.installApp({ spec: "whoami" }));
  t.like(error, { code: "Unavailable", reason: "unavailable" });
  t.regex(error.message, /container engine .* cannot be reached/);
  await apps.installApp({ spec: "hello", settings: { port: await freePort() } });
  t.is((await apps.startApp({ id: "hello" })).state, "RUNNING");
  t.is((await apps.getAppStats({})).stats.length, 1);
  await apps.removeApp({ id: "hello" });
  t.deepEqual((await apps.listApps({})).apps, []);
});

test("a daemon without container apps does not load the engine client", async (t) => {
  const context = new URL("../../../src/daemon/context.ts", import.meta.url).href;
  const script = `
    const { default: modules } = await import("node:module");
    const clients = () => Object.keys(modules._cache).filter((path) => /node_modules.(dockerode|docker-modem)/.test(path)).length;
    await import(${JSON.stringify(context)});
    const before = clients();
    await import("dockerode");
    console.log(before, clients() > 0);`;
  const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "-e", script], {
    cwd: import.meta.dirname,
  });
  t.is(stdout.trim(), "0 true");
});

// Owners of container ports and processes on a real engine.

const run = promisify(execFile);
const [ownerUid, otherUid] = [1, 2];
const serve = ["/bin/sh", "-c", "trap exit TERM; httpd -f -p 8080 -h /tmp & httpd -f -p 8081 -h /tmp & wait"];
const settleMs = 30_000;

test.before(async () => {
  if (whyNoDocker === undefined) await engineNow().images.build("svc/web:1", { entrypoint: serve });
});

/** A package of one container that publishes a port and does not share the host's network. */
function writeContainer(dir: string, port: number): Promise<void> {
  const manifest = `id: web
name: Web
version: "1.0.0"
docker: { image: "svc/web:1" }
settings:
  properties:
    port: { type: integer, default: ${port} }
ports:
  - { name: http, setting: port, container_port: 8080 }
`;
  return writeFiles(dir, { "svc.yaml": manifest });
}

function writeProject(dir: string, port: number): Promise<void> {
  const services = `services:\n  front:\n    image: svc/web:1\n    ports: ["${port}:8080/tcp"]\n  back:\n    image: svc/web:1\n`;
  const manifest = `id: team\nname: Team\nversion: "1.0.0"\ncompose: { file: compose.yaml }\n`;
  return writeFiles(dir, { "svc.yaml": manifest, "compose.yaml": services });
}

interface Seen {
  ports: ListeningPort[];
  processes: Process[];
}

async function seenBy(client: Pick<TestDaemon, "client">): Promise<Seen> {
  const { ports } = await client.client(MonitorService).listListeningPorts({});
  const { processes } = await client.client(ProcessService).listProcesses({ limit: 10_000 });
  return { ports, processes };
}

/** The host's PIDs of all processes in a container, as reported by the engine. */
async function pidsOf(name: string): Promise<number[]> {
  const top = (await engineNow().request("GET", `/containers/${name}/top`)).expect(200) as {
    Titles: string[];
    Processes: string[][];
  };
  return top.Processes.map((row) => Number(row[top.Titles.indexOf("PID")])).toSorted((a, b) => a - b);
}

function pidsNamed({ processes }: Seen, container: string): number[] {
  return processes
    .filter((process) => process.container === container)
    .map(({ pid }) => pid)
    .toSorted((a, b) => a - b);
}

dockerTest(`ports and processes of containers carry their container and app${needsDocker}`, async (t) => {
  t.timeout(5 * 60_000);
  const engine = engineNow();
  await using daemon = await startDaemon({ config: engine.config });
  await using owner = await daemon.as(ownerUid);
  await using other = await daemon.as(otherUid);
  const [webPort, teamPort, plainPort, sharedPort] = await Promise.all([1, 2, 3, 4].map(() => freePort()));
  await writeContainer(join(daemon.dir, "web"), webPort ?? 0);
  await writeProject(join(daemon.dir, "team"), teamPort ?? 0);
  const apps = owner.client(AppService);
  await apps.installApp({ spec: join(daemon.dir, "web") });
  await apps.startApp({ id: "web" });
  await apps.installApp({ spec: join(daemon.dir, "team") });
  await apps.startApp({ id: "team" });
  // Two containers of no app: one publishes a port, and one uses the host's network.
  await engine.run("plain", {
    Image: "svc/web:1",
    ExposedPorts: { "8080/tcp": {} },
    HostConfig: { PortBindings: { "8080/tcp": [{ HostIp: "127.0.0.1", HostPort: String(plainPort) }] } },
  });
  await engine.run("shared", {
    Image: "svc/web:1",
    Entrypoint: ["/bin/busybox", "httpd", "-f", "-p", `127.0.0.1:${sharedPort}`, "-h", "/tmp"],
    HostConfig: { NetworkMode: "host" },
  });

  const names = (await engine.request("GET", "/containers/json")).expect(200) as { Names: string[] }[];
  const nameOf = (part: string): string =>
    names.flatMap(({ Names }) => Names.map((name) => name.slice(1))).find((name) => name.includes(part)) ??
    "";
  const [web, front, back] = [nameOf("web"), nameOf("front"), nameOf("back")];
  for (const name of [web, front, back]) t.not(name, "");

  const seen = await eventually(async () => {
    const now = await seenBy(daemon);
    for (const name of [web, front, back, "plain", "shared"]) {
      assert.deepEqual(pidsNamed(now, name), await pidsOf(name), name);
    }
    // The ports are requested before the processes.
    const holder = (of: number | undefined) => now.ports.find(({ port }) => port === of)?.container;
    assert.deepEqual([holder(plainPort), holder(sharedPort)], ["plain", "shared"]);
    return now;
  }, settleMs);
  const appsOf = (name: string): (string | undefined)[] => [
    ...new Set(seen.processes.filter(({ container }) => container === name).map(({ appId }) => appId)),
  ];
  t.deepEqual([web, front, back, "plain", "shared"].map(appsOf), [
    ["web"],
    ["team"],
    ["team"],
    [undefined],
    [undefined],
  ]);

  // The engine's proxy listens on published ports.
  const { stdout } = await run("ss", ["-H", "-ltnp"]);
  for (const [port, container, appId] of [
    [webPort, web, "web"],
    [teamPort, front, "team"],
    [plainPort, "plain", undefined],
  ] as const) {
    t.regex(stdout, new RegExp(`:${port} .*docker-proxy`), "the proxy holds it");
    const rows = seen.ports.filter((row) => row.port === port);
    t.true(rows.length > 0);
    for (const row of rows) t.like(row, { container, appId, process: "docker-proxy" });
  }
  const direct = seen.ports.find(({ port }) => port === sharedPort);
  t.like(direct, { container: "shared", appId: undefined });
  t.true((await pidsOf("shared")).includes(direct?.pid ?? 0));

  const own = await seenBy(owner);
  t.like(
    own.ports.find(({ port }) => port === webPort),
    { container: web, appId: "web", pid: undefined },
  );
  t.is(own.ports.find(({ port }) => port === plainPort)?.container, undefined, "a container of no app");
  t.deepEqual(pidsNamed(own, front), await pidsOf(front));
  const strange = await seenBy(other);
  t.true(strange.ports.some(({ port }) => port === webPort));
  for (const row of [...strange.ports, ...strange.processes]) {
    t.deepEqual([row.container, row.appId], [undefined, undefined]);
  }

  // An engine that hangs delays no response: then no owner is named.
  await engine.pause();
  try {
    const blind = await seenBy(daemon);
    t.true(blind.ports.some(({ port }) => port === webPort));
    t.true(blind.processes.length > 5);
  } finally {
    engine.resume();
  }
  for (const id of ["web", "team"]) await apps.removeApp({ id });
});
