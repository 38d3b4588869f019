/** Owners of container ports and processes on a real engine. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { MonitorService, type ListeningPort } from "../../../gen/svc/v1/monitor_pb.ts";
import { ProcessService, type Process } from "../../../gen/svc/v1/process_pb.ts";
import { startDaemon, type TestDaemon } from "../../support/daemon.ts";
import { dockerTest, needsDocker, sharedEngine } from "../../support/docker-test.ts";
import { whyNoDocker } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { freePort, writeFiles } from "../../support/packages.ts";

const run = promisify(execFile);
const [ownerUid, otherUid] = [1, 2];
const engineNow = sharedEngine();
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
