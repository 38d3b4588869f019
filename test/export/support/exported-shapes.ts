/** Packages of every shape that can be exported, and their results. */
import type { ExportAppRequestTo } from "../../../gen/svc/v1/values.ts";
import { exportApp } from "../../../src/export/export.ts";
import type { ExportedApp } from "../../../src/export/workload.ts";
import type { JsonObject } from "../../../src/lib/json.ts";
import { mapTexts, recordOf, textOf } from "../../../src/runtimes/compose/compose-values.ts";
import { parseManifest } from "../../packages/support/manifests.ts";

interface Shape {
  /** The manifest below its ID, name and version. */
  readonly manifest: string;
  /** The compose project, as compose resolves its file. */
  readonly document?: JsonObject;
  /** Built services, and contents of files below the app's directory. */
  readonly built?: readonly string[];
  readonly files?: Record<string, string>;
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
  // No Service of Kubernetes starts with a digit.
  "2048": {
    manifest: `docker: { image: "${image}" }
settings: { properties: { ${port} } }
ports: [{ name: http, setting: port, container_port: 80 }]`,
  },
  project: {
    manifest: `compose: { file: compose.yaml }
settings:
  properties:
    ${port}
    password: { type: string, secret: true, env: PASSWORD }
    theme: { type: string, default: dark, file: { path: theme.txt } }
ports: [{ name: http, setting: port }]
health: { http: { port: http, path: /ready } }`,
    settings: { password: "open sesame" },
    built: ["jobs"],
    files: { "repo/nginx.conf": "server {}\n", "repo/greeting.txt": "good day\n" },
    document: {
      services: {
        web: {
          image,
          command: ["serve", "--price=$5"],
          depends_on: { db: { condition: "service_healthy" }, "2fa": { condition: "service_started" } },
          environment: { DB_URL: "postgres://app:PASSWORD@db/app", MODE: "live", UNSET: null },
          ports: [{ target: 8080, published: "8081", protocol: "tcp" }, "53:53/udp"],
          volumes: [
            { type: "bind", source: "/x/repo/nginx.conf", target: "/etc/nginx/nginx.conf", read_only: true },
            { type: "bind", source: "/x/repo/html", target: "/srv", read_only: true },
            { type: "bind", source: "/x/data/theme.txt", target: "/etc/theme.txt", read_only: true },
            { type: "volume", source: "shared", target: "/shared", read_only: true },
          ],
          networks: { front: null, back: { aliases: ["www"] } },
          configs: [{ source: "greeting", target: "/etc/greeting" }],
          read_only: true,
          tmpfs: ["/tmp:size=16m"],
          cap_drop: ["ALL"],
          security_opt: ["no-new-privileges:true"],
          restart: "unless-stopped",
          stop_grace_period: "1m30s",
          mem_limit: "64m",
        },
        "2fa": {
          image,
          network_mode: "none",
          expose: ["9000"],
          restart: "no",
          sysctls: { "net.core.somaxconn": 1024 },
          deploy: { replicas: 2, resources: { limits: { cpus: "0.5", memory: "128m" } } },
        },
        db: {
          image,
          entrypoint: ["/bin/db"],
          environment: { POSTGRES_PASSWORD: "PASSWORD" },
          healthcheck: {
            test: ["CMD-SHELL", "pg_isready -U $USER"],
            interval: "5s",
            timeout: "1s",
            retries: 5,
          },
          volumes: [
            { type: "volume", source: "db_data", target: "/var/lib/db" },
            { type: "volume", source: "shared", target: "/shared" },
            { type: "bind", source: "/x/data/dump", target: "/dump" },
          ],
          networks: { back: null },
          shm_size: "128m",
          pids_limit: 50,
          ulimits: { nofile: { soft: 1024, hard: 2048 } },
          secrets: ["key"],
          user: "999:999",
        },
        jobs: { image: "svc-project-jobs:1", ports: ["8080"], depends_on: ["db"], restart: "on-failure:3" },
      },
      networks: { front: { name: "svc-project_front" }, back: { internal: true } },
      volumes: { db_data: { name: "svc-project_db_data" }, shared: { name: "of-all" } },
      configs: { greeting: { file: "/x/repo/greeting.txt" } },
      secrets: { key: { file: "/x/repo/key.txt" } },
    },
  },
  "user-project": {
    manifest: "compose: { file: compose.yaml }",
    ownerUid: 1000,
    document: {
      services: {
        web: {
          image,
          user: "1000:1000",
          pids_limit: 4096,
          security_opt: ["no-new-privileges:true"],
          ports: ["127.0.0.1:8080:80/tcp"],
          logging: { driver: "json-file" },
          restart: "always:5",
        },
      },
    },
  },
  mighty: { manifest: `docker: { image: "${image}", privileged: true }\npermissions: [privileged]` },
};

/** The export of an app of that shape for another engine. */
export async function exportShape(name: string, to: ExportAppRequestTo): Promise<ExportedApp> {
  const shape = shapes[name];
  if (shape === undefined) throw new Error(`there is no shape ${name}`);
  const { ownerUid = 0, replicas, settings = {}, document = {}, built = [], files = {} } = shape;
  const manifest = await parseManifest(`id: "${name}"\nname: "${name}"\nversion: "1"\n${shape.manifest}\n`);
  const app = {
    ...{ id: name, name, ownerUid, uid: ownerUid, directory: "/x", runDir: "/y", version: "v1.0.0" },
    ...{ manifest, settings, startedSettings: null },
    ...(replicas !== undefined && { placement: { replicas, ports: "host" } as const }),
  };
  return exportApp(app, to, {
    publishAddress: "127.0.0.1",
    // Compose's replacement of a variable.
    projects: {
      describe: ({ settings: { password = "" } }) =>
        Promise.resolve({
          project: `svc-${name}`,
          document: recordOf(mapTexts(document, (text) => text.replaceAll("PASSWORD", textOf(password)))),
          composeFiles: [],
          built: new Set(built),
          files: new Map(Object.entries(files).map(([path, text]) => [`/x/${path}`, text])),
        }),
    },
  });
}
