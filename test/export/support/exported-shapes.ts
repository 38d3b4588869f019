/** Packages of every shape that can be exported, and what they become. */
import type { ExportAppRequestTo } from "../../../gen/svc/v1/words.ts";
import { exportApp } from "../../../src/export/export.ts";
import type { ExportedApp } from "../../../src/export/workload.ts";
import { parseManifest } from "../../packages/support/manifests.ts";

interface Shape {
  /** Of the manifest, below its id, name and version. */
  readonly manifest: string;
  /** Default: root. */
  readonly ownerUid?: number;
  readonly replicas?: number;
  readonly settings?: Record<string, string | number>;
}

const image = "registry.example/app:1";
const port = "port: { type: integer, default: 8081 }";

export const shapes: Readonly<Record<string, Shape>> = {
  plain: { manifest: `docker: { image: "${image}" }` },
  web: {
    manifest: `docker: { image: "${image}", command: [serve, "--price=$5", "\${settings.motto}"], env: { MODE: live, N: "no" } }
settings: { properties: { ${port}, motto: { type: string, default: "cheap $(and) \${good}" } } }
ports: [{ name: http, setting: port, container_port: 8080 }]
health: { http: { port: http, path: /healthz }, interval: 5s, timeout: 2s, retries: 3 }
limits: { memory: 64MiB, cpus: 0.5, open_files: 64 }`,
    replicas: 3,
  },
  database: {
    manifest: `docker: { image: "${image}", entrypoint: [/bin/db], user: "999:999" }
settings:
  properties:
    ${port}
    password: { type: string, secret: true, env: PASSWORD }
    key: { type: string, secret: true, file: { path: key.txt } }
    theme: { type: string, default: "dark\\n  and deep\\n", file: { path: conf/theme.txt } }
ports: [{ name: "db-main", setting: port, container_port: 5432 }]
volumes: [{ name: keep, path: /var/lib/db }, { name: Log_Files, path: /var/log/db }]
health: { tcp: { port: "db-main" }, interval: 1s, timeout: 500ms, start_period: 1500ms, retries: 1 }
stop: { signal: SIGINT, grace: 90s }
restart: { policy: on-failure }`,
    settings: { password: "open sesame $(whoami) ${x} %h", key: "k" },
  },
  command: {
    manifest: `docker: { image: "${image}", working_dir: /srv }
health: { exec: [/bin/sh, -c, "test -e $HOME/ready"], interval: 500ms, timeout: 500ms, retries: 1 }
restart: { policy: never }`,
    ownerUid: 1000,
  },
  names: {
    manifest: `docker: { image: "${image}", network: none, env: { BROKEN: "a\\Nb", SPLIT: "a \\L b", TIME: "12:30" } }
settings: { properties: { note: { type: string, default: "<<<svc: {{ key \\"x\\" }} :svc>>>", file: { path: "a b/nöte.txt" } } } }`,
  },
  ports: {
    manifest: `docker: { image: "${image}" }
settings: { properties: { ${port}, six: { type: integer, default: 8082 }, far: { type: integer, default: 53 } } }
ports:
  - { name: http, setting: port, container_port: 8080 }
  - { name: six, setting: six, container_port: 8082, address: "::1" }
  - { name: dns, setting: far, protocol: udp, container_port: 53 }
  - { name: dns-too, setting: far, protocol: tcp, container_port: 53 }`,
    ownerUid: 1000,
  },
  host: {
    manifest: `docker:
  image: "${image}"
  network: host
  pid: host
  ipc: host
  groups: [44]
  devices: [/dev/fuse]
  capabilities: [NET_ADMIN]
  mounts: [{ source: /etc, target: /host/etc, read_only: true }]
  user: web
settings: { properties: { ${port} } }
ports: [{ name: http, setting: port }]
permissions: [host_network, host_pid, host_ipc, groups, devices, capabilities, host_mounts]`,
  },
  mighty: { manifest: `docker: { image: "${image}", privileged: true }\npermissions: [privileged]` },
};

/** What an app of that shape is to another engine. */
export async function exportShape(name: string, to: ExportAppRequestTo): Promise<ExportedApp> {
  const shape = shapes[name];
  if (shape === undefined) throw new Error(`there is no shape ${name}`);
  const { ownerUid = 0, replicas, settings = {} } = shape;
  const manifest = await parseManifest(`id: ${name}\nname: ${name}\nversion: "1"\n${shape.manifest}\n`);
  const app = {
    ...{ id: name, name, ownerUid, uid: ownerUid, directory: "/x", runDir: "/y", version: "v1.0.0" },
    ...{ manifest, settings, startedSettings: null },
    ...(replicas !== undefined && { placement: { replicas, ports: "host" } as const }),
  };
  return exportApp(app, to, { usersAddress: "127.0.0.1" });
}
