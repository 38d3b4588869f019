/**
 * Exports compared with the engines' own rules for files: compose's own check, and the documented schemas of the
 * others.
 */
import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { parseAllDocuments } from "yaml";
import type { ExportAppRequestTo } from "../../gen/svc/v1/values.ts";
import { exportApp as exportWith } from "../../src/export/export.ts";
import type { ExportedApp } from "../../src/export/workload.ts";
import type { RunnableApp } from "../../src/runtimes/runnable-app.ts";
import { parseManifest } from "../packages/support/manifests.ts";
import { exportShape, shapes } from "./support/exported-shapes.ts";
import { problemsOf } from "./support/manifest-schemas.ts";
import { canReadYaml } from "../support/python-yaml.ts";

const secret = "open sesame $(whoami) ${x} %h";

const manifest = `id: shop
name: Shop
version: "1"
docker: { image: "registry.example/shop:1", command: [serve, "--price=$5", "\${settings.motto}"], env: { MODE: live } }
settings:
  properties:
    port: { type: integer, default: 8081 }
    motto: { type: string, default: "cheap $(and) good" }
    password: { type: string, secret: true, env: PASSWORD }
    key: { type: string, secret: true, file: { path: key.txt } }
    theme: { type: string, default: dark, file: { path: conf/theme.txt } }
ports: [{ name: http, setting: port, container_port: 8080 }]
volumes: [{ name: keep, path: /keep }]
health: { http: { port: http, path: /healthz }, interval: 5s, timeout: 2s, retries: 3 }
limits: { memory: 64MiB, cpus: 0.5, open_files: 64 }
`;

async function appOf(text: string, settings: RunnableApp["settings"] = {}): Promise<RunnableApp> {
  const parsed = await parseManifest(text);
  return {
    ...{
      id: parsed.id,
      name: parsed.name,
      ownerUid: 0,
      uid: 0,
      directory: "/x",
      runDir: "/y",
      version: "v1.0.0",
    },
    ...{ manifest: parsed, settings, startedSettings: null },
  };
}

const exportApp = (app: RunnableApp, to: ExportAppRequestTo): Promise<ExportedApp> =>
  exportWith(app, to, { publishAddress: "127.0.0.1" });

const shop = (): Promise<RunnableApp> => appOf(manifest, { password: secret, key: secret });

for (const to of ["kubernetes", "nomad", "quadlet", "compose"] satisfies ExportAppRequestTo[]) {
  test(`no secret is in an export to ${to}, and a note says so`, async (t) => {
    const exported = await exportApp(await shop(), to);
    t.false(JSON.stringify(exported).includes("sesame"));
    for (const name of ["password", "key"]) {
      t.true(exported.notes.some((note) => note.includes(`the secret "${name}" is not exported`)));
    }
    t.true(exported.notes.some((note) => note.includes("the app's data is not exported")));
  });
}

test("an app without containers cannot be exported", async (t) => {
  const app = await appOf('id: plain\nname: Plain\nversion: "1"\nprocess: { exec: [sleep, "1"] }\n');
  await t.throwsAsync(exportApp(app, "kubernetes"), { message: /runs on the process runtime/ });
});

for (const shape of Object.keys(shapes)) {
  test(`an app of the shape "${shape}" is exported in the documented formats of Kubernetes and Nomad`, async (t) => {
    const [manifests] = (await exportShape(shape, "kubernetes")).files;
    const documents = parseAllDocuments(manifests?.content ?? "").map((each) => each.toJS() as object);
    t.true(documents.length > 0);
    t.deepEqual(
      documents.flatMap((document) => problemsOf("kubernetes", document)),
      [],
    );
    const [job] = (await exportShape(shape, "nomad")).files;
    const described = JSON.parse(job?.content ?? "") as object;
    t.deepEqual(problemsOf("nomad", described), []);
    for (const document of documents) t.not(problemsOf("kubernetes", { ...document, odd: 1 }).length, 0);
    t.not(problemsOf("nomad", { ...described, odd: 1 }).length, 0);
  });
}

test("Kubernetes gets a deployment with its settings, secrets, claim, probes, limits and service", async (t) => {
  const [file] = (await exportApp(await shop(), "kubernetes")).files;
  assert.ok(file !== undefined);
  const documents = parseAllDocuments(file.content).map((each) => each.toJS() as Record<string, unknown>);
  t.deepEqual(
    documents.map(({ kind }) => kind),
    ["PersistentVolumeClaim", "ConfigMap", "Secret", "Deployment", "Service"],
  );
  t.notRegex(file.content, /: [&*]a\d/, "repeated text is written twice");
  const [claim, config, secrets, deployment, service] = documents;
  t.like(config, { data: { "env.MODE": "live", "1-theme.txt": "dark" } });
  t.like(secrets, { stringData: { "env.PASSWORD": "REPLACE-ME", "0-key.txt": "REPLACE-ME" } });
  t.like(claim, { metadata: { name: "shop-keep" } });
  const { spec } = deployment as {
    spec: { strategy: object; template: { spec: { containers: Record<string, unknown>[] } } };
  };
  t.deepEqual(spec.strategy, { type: "Recreate" });
  const [container] = spec.template.spec.containers;
  t.like(container, {
    args: ["serve", "--price=$5", "cheap $$(and) good"],
    ports: [{ containerPort: 8080, protocol: "TCP" }],
    resources: { limits: { memory: "67108864", cpu: "500m" } },
    readinessProbe: {
      httpGet: { path: "/healthz", port: 8080 },
      periodSeconds: 5,
      timeoutSeconds: 2,
      failureThreshold: 3,
    },
  });
  t.like(service, { spec: { ports: [{ port: 8081, targetPort: 8080 }] } });
  for (const { metadata } of documents as { metadata: { name: string } }[]) {
    t.regex(metadata.name, /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/);
  }
});

test("Nomad gets a job with its port, check, volume and templates", async (t) => {
  const [file] = (await exportApp(await shop(), "nomad")).files;
  const { Job } = JSON.parse(file?.content ?? "") as { Job: { TaskGroups: Record<string, unknown>[] } };
  t.like(Job.TaskGroups[0], {
    Count: 1,
    Networks: [{ Mode: "bridge", ReservedPorts: [{ Label: "http", Value: 8081, To: 8080 }] }],
    Volumes: { keep: { Type: "host", Source: "shop-keep" } },
    Services: [{ Checks: [{ Type: "http", Path: "/healthz", PortLabel: "http", Interval: 5e9 }] }],
  });
});

test("a port of tcp and of udp is one port for Nomad", async (t) => {
  const both = `id: dns
name: dns
version: "1"
docker: { image: "registry.example/dns:1" }
settings: { properties: { port: { type: integer, default: 53 } } }
ports:
  - { name: udp, setting: port, protocol: udp, container_port: 5353 }
  - { name: tcp, setting: port, container_port: 53 }
health: { tcp: { port: tcp } }
`;
  const { files, notes } = await exportApp(await appOf(both), "nomad");
  const { Job } = JSON.parse(files[0]?.content ?? "") as { Job: { TaskGroups: Record<string, unknown>[] } };
  const [group] = Job.TaskGroups;
  t.deepEqual(group?.["Networks"], [
    { Mode: "bridge", ReservedPorts: [{ Label: "udp", Value: 53, To: 5353 }] },
  ]);
  t.like(group, { Services: [{ Checks: [{ PortLabel: "udp" }] }], Tasks: [{ Config: { ports: ["udp"] } }] });
  t.true(notes.some((note) => note.startsWith("the app's port 53 leads to 53 for tcp only here")));
});

test("Quadlet gets units with systemd's specifiers escaped", async (t) => {
  const { files, notes } = await exportApp(await shop(), "quadlet");
  const [unit] = files;
  t.is(unit?.name, "shop.container");
  const lines = unit?.content.split("\n") ?? [];
  for (const line of [
    "Image=registry.example/shop:1",
    'Exec="serve" "--price=$$5" "cheap $$(and) good"',
    "Secret=shop-password,type=env,target=PASSWORD",
    "PublishPort=127.0.0.1:8081:8080/tcp",
    "Volume=shop-keep.volume:/keep",
    "PodmanArgs=--memory=67108864",
  ]) {
    t.true(lines.includes(line), line);
  }
  t.true(files.some(({ name }) => name === "shop-keep.volume"));
  t.true(notes.some((note) => note.includes("podman secret create shop-password")));
});

const hostile = `id: hostile
name: Hostile
version: "1"
docker:
  image: "registry.example/hostile:1"
  command: ["a\\r[Service]\\rExecStartPre=/bin/sh", "\\e"]
  env: { YES: "yes", OCTAL: "0777", TIME: "12:30", BROKEN: "a\\Nb", SPLIT: "a \\L b", N: "n" }
settings: { properties: { note: { type: string, default: "<<<svc: {{ key \\"x\\" }} :svc>>>", file: { path: note.txt } } } }
`;

test("values of a package cannot add lines to a unit, and are not expanded as templates", async (t) => {
  const [unit] = (await exportApp(await appOf(hostile), "quadlet")).files;
  t.notRegex(unit?.content ?? "", /[\0-\x09\x0b-\x1f\x7f]/);
  t.true(unit?.content.includes(String.raw`Exec="a\x0d[Service]\x0dExecStartPre=/bin/sh" "\x1b"`));
  const bent = await appOf(hostile.replace("docker:", String.raw`docker:${"\n"}  working_dir: "/srv\\"`));
  await t.throwsAsync(exportApp(bent, "quadlet"), {
    message: "WorkingDir= cannot end in a backslash or contain a line break",
  });
  const [job] = (await exportApp(await appOf(hostile), "nomad")).files;
  const { Job } = JSON.parse(job?.content ?? "") as {
    Job: { TaskGroups: { Tasks: { Templates: { EmbeddedTmpl: string; LeftDelim: string }[] }[] }[] };
  };
  const [template] = Job.TaskGroups[0]?.Tasks[0]?.Templates ?? [];
  t.is(template?.EmbeddedTmpl, '<<<svc: {{ key "x" }} :svc>>>');
  t.false(template?.EmbeddedTmpl.includes(template.LeftDelim));
});

const pythonTest = canReadYaml() ? test : test.skip;

for (const to of ["kubernetes", "compose"] satisfies ExportAppRequestTo[]) {
  pythonTest(`text stays text in an export to ${to}, for readers of YAML 1.1`, async (t) => {
    const [file] = (await exportApp(await appOf(hostile), to)).files;
    const program =
      "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(sys.stdin.buffer.read().decode()))))";
    const read = execFileSync("python3", ["-c", program], { input: file?.content ?? "", encoding: "utf8" });
    const text = JSON.stringify(JSON.parse(read));
    for (const value of ["yes", "0777", "12:30", "a\u0085b", "a \u2028 b", "n"])
      t.true(text.includes(JSON.stringify(value)), value);
  });
}

const odd = `id: odd
name: Odd
version: "1"
docker:
  image: "registry.example/odd:1"
  user: "1000:1001"
  pid: host
  ipc: host
  groups: [44]
  devices: [/dev/fuse]
  working_dir: /srv/%h
permissions: [host_pid, host_ipc, groups, devices]
settings: { properties: { port: { type: integer, default: 8081 }, other: { type: integer, default: 8082 } } }
ports:
  - { name: http, setting: port, container_port: 8080 }
  - { name: six, setting: other, container_port: 8082, address: "::1" }
`;

test("ports keep their addresses, or a note says that they do not", async (t) => {
  const app = { ...(await appOf(odd)), ownerUid: 1000 };
  const [compose] = (await exportApp(app, "compose")).files;
  t.regex(compose?.content ?? "", /- 127\.0\.0\.1:8081:8080\/tcp\n +- "?\[::1\]:8082:8082\/tcp"?\n/);
  const [unit] = (await exportApp(app, "quadlet")).files;
  t.regex(
    unit?.content ?? "",
    /^PublishPort=127\.0\.0\.1:8081:8080\/tcp\nPublishPort=\[::1\]:8082:8082\/tcp$/m,
  );
  for (const to of ["kubernetes", "nomad"] as const) {
    const { notes } = await exportApp(app, to);
    t.true(
      notes.some((note) => note.startsWith("port 8081 is reachable only at 127.0.0.1 here, but ")),
      to,
    );
  }
});

test("host resources of a container are exported, and no value is a systemd specifier", async (t) => {
  const app = await appOf(odd);
  const [job] = (await exportApp(app, "nomad")).files;
  for (const line of [
    /"pid_mode": "host"/,
    /"ipc_mode": "host"/,
    /"group_add": \[\s+"44"/,
    /"host_path": "\/dev\/fuse"/,
  ])
    t.regex(job?.content ?? "", line);
  t.regex(
    (await exportApp(app, "kubernetes")).files[0]?.content ?? "",
    /runAsUser: 1000\n +runAsGroup: 1001\n/,
  );
  const named = await exportApp(await appOf(odd.replace('"1000:1001"', "web")), "kubernetes");
  t.notRegex(named.files[0]?.content ?? "", /runAs/);
  t.true(named.notes.some((note) => note.includes('the app runs as "web" here')));
  const unit = (await exportApp({ ...app, version: "50%" }, "quadlet")).files[0]?.content ?? "";
  t.regex(unit, /^WorkingDir=\/srv\/%%h$/m);
  t.regex(unit, /^Description=odd 50%%$/m);
  const twice = await exportApp({ ...app, placement: { replicas: 2, ports: "mesh" } }, "compose");
  t.true(twice.notes.includes("the app runs once there instead of 2 times"));
});

const composeProgram = [["docker-compose"], ["docker", "compose"]].find(([program = "", ...args]) => {
  try {
    execFileSync(program, [...args, "version"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
});
const composeTest = composeProgram === undefined ? test.skip : test;
const needsCompose = composeProgram === undefined ? " (skipped: needs docker compose or docker-compose)" : "";

composeTest(`compose itself accepts an export and reads the app's values in it${needsCompose}`, async (t) => {
  const exported = await exportApp(await shop(), "compose");
  const config = await readByCompose(exported, { PASSWORD: secret });
  t.like(config, {
    services: {
      shop: {
        image: "registry.example/shop:1",
        command: ["serve", "--price=$5", "cheap $(and) good"],
        environment: { MODE: "live", SVC_APP_ID: "shop", PASSWORD: secret },
      },
    },
  });
  await t.throwsAsync(readByCompose(exported, {}), { message: /set PASSWORD/ }, "a secret that is not set");
});

async function readByCompose({ files }: ExportedApp, env: Record<string, string>): Promise<object> {
  const dir = await mkdtemp(join(tmpdir(), "svc-export-"));
  try {
    for (const { name, content } of files) await writeFile(join(dir, name), content);
    const [program = "", ...args] = composeProgram ?? [];
    const options = { cwd: dir, env: { PATH: process.env["PATH"] ?? "", HOME: dir, ...env } };
    const { stdout } = await promisify(execFile)(program, [...args, "-f", "compose.yaml", "config"], options);
    const [document] = parseAllDocuments(unescaped(stdout));
    return document?.toJS() as object;
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

/** Its output is a compose file again. */
function unescaped(text: string): string {
  return text.replaceAll("$$", "$");
}

interface Document {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly spec: Record<string, unknown>;
  readonly data?: Record<string, string>;
}

async function projectDocuments(): Promise<Map<string, Document>> {
  const [file] = (await exportShape("project", "kubernetes")).files;
  const documents = parseAllDocuments(file?.content ?? "").map((each) => each.toJS() as Document);
  const byName = new Map(documents.map((each) => [`${each.kind} ${each.metadata.name}`, each]));
  assert.equal(byName.size, documents.length, "two with one name");
  return byName;
}

test("the services of a project are found by their names on Kubernetes, and share its claims", async (t) => {
  const documents = await projectDocuments();
  for (const [name, part] of Object.entries({
    web: "web",
    www: "web",
    db: "db",
    "app-2fa": "2fa",
    jobs: "jobs",
  })) {
    t.like(documents.get(`Service ${name}`)?.spec, {
      clusterIP: "None",
      selector: { "app.kubernetes.io/name": `project-${part}` },
    });
  }
  const claims = [...documents.keys()].filter((key) => key.startsWith("PersistentVolumeClaim"));
  t.deepEqual(
    claims,
    ["project-shared", "project-db-data", "project-data-dump"].map((name) => `PersistentVolumeClaim ${name}`),
  );
  const { template } = documents.get("Deployment project-web")?.spec as {
    template: { spec: { containers: object[]; volumes: object[] } };
  };
  const [container] = template.spec.containers;
  t.like(container, {
    resources: { limits: { memory: "67108864" } },
    readinessProbe: { httpGet: { path: "/ready", port: 8080 } },
    securityContext: { readOnlyRootFilesystem: true, capabilities: { drop: ["ALL"] } },
  });
  t.like(documents.get("ConfigMap project-web")?.data, {
    "env.MODE": "live",
    "0-greeting": "good day\n",
    "1-nginx.conf": "server {}\n",
    "2-theme.txt": "dark",
  });
  t.like(documents.get("Deployment project-2fa")?.spec, { replicas: 2 });
  t.like(documents.get("Deployment project-db")?.spec, {
    template: {
      spec: {
        containers: [{ readinessProbe: { exec: { command: ["/bin/sh", "-c", "pg_isready -U $USER"] } } }],
      },
    },
  });
});

test("the services of a project are tasks of one group on Nomad, which find each other", async (t) => {
  const { files, notes } = await exportShape("project", "nomad");
  const { Job } = JSON.parse(files[0]?.content ?? "") as {
    Job: {
      TaskGroups: {
        Count: number;
        Services: { Provider: string }[];
        Tasks: { Name: string; Config: object }[];
      }[];
    };
  };
  t.is(Job.TaskGroups.length, 1);
  const [group] = Job.TaskGroups;
  t.deepEqual(
    group?.Tasks.map(({ Name }) => Name),
    ["web", "2fa", "db", "jobs"].map((part) => `project-${part}`),
  );
  for (const { Config } of group?.Tasks ?? [])
    t.like(Config, { extra_hosts: ["web", "www", "2fa", "db", "jobs"].map((name) => `${name}:127.0.0.1`) });
  t.deepEqual(new Set(group?.Services.map(({ Provider }) => Provider)), new Set(["consul"]));
  t.true(
    notes.some((note) => note.startsWith('services "web" and "jobs" listen at the same port, 8080/tcp')),
  );
});

test("the services of a project are separate Quadlet units in its networks", async (t) => {
  const { files } = await exportShape("project", "quadlet");
  const unit = (name: string): string[] =>
    files.find((file) => file.name === name)?.content.split("\n") ?? [];
  for (const line of [
    "Network=project-front.network:alias=web,alias=www",
    "Network=project-back.network:alias=web,alias=www",
    "After=project-db.service",
    "Wants=project-db.service",
    "Volume=project-shared.volume:/shared:ro",
    "Tmpfs=/tmp:size=16777216",
    "ReadOnly=true",
    "DropCapability=ALL",
  ])
    t.true(unit("project-web.container").includes(line), line);
  for (const line of [
    "Secret=project-db-postgres-password,type=env,target=POSTGRES_PASSWORD",
    'HealthCmd=["/bin/sh","-c","pg_isready -U $$USER"]',
    "Volume=project-shared.volume:/shared",
  ])
    t.true(unit("project-db.container").includes(line), line);
  t.true(unit("project-back.network").includes("Internal=true"));
  t.false(unit("project-front.network").includes("Internal=true"));
  const names = files.map(({ name }) => name);
  t.is(new Set(names).size, names.length);
  for (const name of ["project-shared.volume", "project-db-data.volume", "project-data-dump.volume"])
    t.true(names.includes(name), name);
});

test("an exported project has its own networks and volumes, except those that its file names", async (t) => {
  const { files } = await exportShape("project", "compose");
  const [document] = parseAllDocuments(files[0]?.content ?? "");
  t.like(document?.toJS(), {
    networks: { front: {}, back: { internal: true } },
    volumes: { db_data: {}, shared: { name: "of-all" } },
  });
  t.notRegex(files[0]?.content ?? "", /svc-project_/);
});

for (const to of ["kubernetes", "nomad", "quadlet", "compose"] satisfies ExportAppRequestTo[]) {
  test(`a project has no secret in an export to ${to}, and notes list what is missing`, async (t) => {
    const { files, notes } = await exportShape("project", to);
    const text = JSON.stringify({ files, notes });
    t.deepEqual(
      notes.filter((note) => /^its? /.test(note)),
      [],
      "each note names its subject",
    );
    t.false(text.includes("sesame"));
    t.false(text.includes("belongs-here"));
    t.false(/"[^"]*\/x\/(?:repo|data)/.test(JSON.stringify(files)), "a path of this host");
    for (const said of [
      /the secret "password" is not exported/,
      /secret "key" is not exported/,
      /^the app's data is not exported/,
      /service "web" mounts (\.\/repo\/)?html of its package/,
      /service "jobs": its image is built from the package/,
      ...(to === "compose" ? [] : [/service "2fa": sysctls is not exported/]),
      ...(to === "compose" ? [] : [/service "db": .*pids_limit.* not exported/]),
      ...(to === "compose" ? [] : [/service "web" waits for "db" \(service_healthy\) here/]),
    ])
      t.true(
        notes.some((note) => said.test(note)),
        `${String(said)}: ${notes.join("; ")}`,
      );
  });
}

test("an app of a regular user exports no numeric ID of this host", async (t) => {
  for (const to of ["kubernetes", "nomad", "quadlet", "compose"] as const) {
    const { files, notes } = await exportShape("user-project", to);
    t.notRegex(files[0]?.content ?? "", /1000:1000|runAsUser|^User=/m, to);
    t.true(
      notes.some((note) => note.includes("its owner") || note.includes("their owner")),
      to,
    );
  }
});

composeTest(`compose itself accepts an exported project${needsCompose}`, async (t) => {
  const exported = await exportShape("project", "compose");
  const config = await readByCompose(exported, { PASSWORD: secret });
  t.like(config, {
    services: {
      web: { command: ["serve", "--price=$5"], environment: { DB_URL: `postgres://app:${secret}@db/app` } },
      db: { environment: { POSTGRES_PASSWORD: secret } },
      jobs: { restart: "on-failure:3" },
    },
  });
  // An empty value in .env is not set.
  await t.throwsAsync(readByCompose(exported, {}), { message: /set PASSWORD/ });
  t.like(await readByCompose(await exportShape("user-project", "compose"), {}), {
    services: { web: { restart: "always" } },
  });
});
