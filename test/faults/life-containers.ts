/** Apps in containers for a soak test, with an engine that stops, is killed and hangs. */
import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import type { TestDaemon } from "../support/daemon.ts";
import type { TestEngine } from "../support/docker.ts";
import { freePort } from "../support/packages.ts";
import type { LivingApp } from "./life.ts";
import { ownershipOf } from "../support/ownership.ts";

const image = "svc/live:1";

/** The part of a manifest before its runtime's section. */
const head = (id: string, port: number, version: number): string => `id: ${id}
name: ${id}
version: "1.0.${version}"
stop: { grace: 2s }
settings:
  properties:
    port: { type: integer, minimum: 1, maximum: 65535, default: ${port}, env: PORT }
`;

const packages = {
  docker: (id: string, port: number, version: number) => ({
    "svc.yaml": `${head(id, port, version)}docker: { image: "${image}" }
ports: [{ name: http, setting: port, container_port: 8080 }]
volumes: [{ name: media, path: /media }]
`,
  }),
  compose: (id: string, port: number, version: number) => ({
    "svc.yaml": `${head(id, port, version)}compose: { file: compose.yaml }
ports: [{ name: http, setting: port }]
`,
    "compose.yaml": `services:
  web: { image: "${image}", ports: ["\${PORT}:8080"], volumes: ["media:/media"], depends_on: [idle] }
  idle: { image: "${image}", labels: { version: "${version}" } }
volumes: { media: {} }
`,
  }),
};

export type ContainerKind = keyof typeof packages;
export const containerKinds: readonly ContainerKind[] = ["docker", "compose"];

/** `count` running apps of root of each kind. */
export async function installContainers(
  daemon: TestDaemon,
  engine: TestEngine,
  kinds: readonly ContainerKind[],
  count: number,
): Promise<LivingApp[]> {
  await engine.images.build(image, {
    cmd: ["/bin/httpd", "-f", "-p", "8080", "-h", "/www"],
    files: {
      "www/index.html": "ok",
      "www/cgi-bin/write":
        '#!/bin/sh\n: > "/media/$QUERY_STRING" && sync && printf "Status: 200\\r\\n\\r\\nok"\n',
    },
  });
  const client = daemon.client(AppService);
  const apps: LivingApp[] = [];
  for (const kind of kinds) {
    for (let index = 0; index < count; index++) {
      const [id, port] = [`${kind}-${index}`, await freePort()];
      const directory = join(daemon.dir, id);
      const release = async (version: number): Promise<void> => {
        await mkdir(directory, { recursive: true });
        for (const [name, text] of Object.entries(packages[kind](id, port, version))) {
          await writeFile(join(directory, name), text);
        }
      };
      await release(0);
      await client.installApp({ spec: directory });
      await client.startApp({ id });
      apps.push({
        ...{ id, port, client, connection: daemon, release, version: 0, shouldRun: true, written: [] },
        filesDir:
          kind === "docker"
            ? join(daemon.storeDir, "apps", id, "volumes/media")
            : join(engine.data, "volumes", `${ownershipOf(daemon).projectOf(id)}_media`, "_data"),
        writePath: "/cgi-bin/write?",
      });
    }
  }
  return apps;
}

/** The faults of an engine. */
export function engineFaults(engine: TestEngine, random: () => number): Record<string, () => Promise<void>> {
  return {
    "restart the engine": () => engine.restart(),
    "kill the engine": async () => {
      await engine.kill();
      await engine.start();
    },
    "hang the engine": async () => {
      await engine.pause();
      // From too short to be noticed to long enough to be declared unavailable.
      await wait(random() * 10_000);
      engine.resume();
    },
  };
}

/** Asserts that the engine's running containers match the desired states. */
export async function expectContainers(engine: TestEngine, apps: readonly LivingApp[]): Promise<void> {
  const listed = (await engine.request("GET", "/containers/json")).expect(200) as {
    Labels: Record<string, string>;
  }[];
  const running = [...new Set(listed.map(({ Labels }) => Labels["svc.app"] ?? "of nobody's"))];
  const expected = apps
    .filter(({ id, shouldRun }) => shouldRun && /^(docker|compose)-/.test(id))
    .map(({ id }) => id);
  assert.deepEqual(running.sort(), expected.sort());
}
