/** Exports are held against what the engines themselves say of files: compose's own check, and the shapes that the others document. */
import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { parseAllDocuments } from "yaml";
import type { ExportAppRequestTo } from "../../gen/svc/v1/words.ts";
import { exportApp as exportWith } from "../../src/export/export.ts";
import type { ExportedApp } from "../../src/export/workload.ts";
import type { RunnableApp } from "../../src/runtimes/runtime.ts";
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

const exportApp = (app: RunnableApp, to: ExportAppRequestTo): ExportedApp =>
  exportWith(app, to, { usersAddress: "127.0.0.1" });

const shop = (): Promise<RunnableApp> => appOf(manifest, { password: secret, key: secret });

for (const to of ["kubernetes", "nomad", "quadlet", "compose"] satisfies ExportAppRequestTo[]) {
  test(`no secret is in an export to ${to}, and a note says so`, async (t) => {
    const exported = exportApp(await shop(), to);
    t.false(JSON.stringify(exported).includes("sesame"));
    for (const name of ["password", "key"]) {
      t.true(exported.notes.some((note) => note.includes(`the secret "${name}" is not exported`)));
    }
    t.true(exported.notes.some((note) => note.includes("its data are not exported")));
  });
}

test("what is no container cannot be exported", async (t) => {
  const app = await appOf('id: plain\nname: Plain\nversion: "1"\nprocess: { exec: [sleep, "1"] }\n');
  t.throws(() => exportApp(app, "kubernetes"), { message: /runs on the process runtime/ });
});

for (const shape of Object.keys(shapes)) {
  test(`an app of the shape "${shape}" is exported as Kubernetes and Nomad document it`, async (t) => {
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
  const [file] = exportApp(await shop(), "kubernetes").files;
  assert.ok(file !== undefined);
  const documents = parseAllDocuments(file.content).map((each) => each.toJS() as Record<string, unknown>);
  t.deepEqual(
    documents.map(({ kind }) => kind),
    ["ConfigMap", "Secret", "PersistentVolumeClaim", "Deployment", "Service"],
  );
  const [config, secrets, claim, deployment, service] = documents;
  t.like(config, { data: { "env.MODE": "live", "1-theme.txt": "dark" } });
  t.like(secrets, { stringData: { "env.PASSWORD": "REPLACE-ME", "0-key.txt": "REPLACE-ME" } });
  t.like(claim, { metadata: { name: "shop-keep" } });
  const { spec } = deployment as unknown as {
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
  for (const { metadata } of documents as unknown as { metadata: { name: string } }[]) {
    t.regex(metadata.name, /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/);
  }
});

test("Nomad gets a job with its port, check, volume and templates", async (t) => {
  const [file] = exportApp(await shop(), "nomad").files;
  const { Job } = JSON.parse(file?.content ?? "") as { Job: { TaskGroups: Record<string, unknown>[] } };
  t.like(Job.TaskGroups[0], {
    Count: 1,
    Networks: [{ Mode: "bridge", ReservedPorts: [{ Label: "http", Value: 8081, To: 8080 }] }],
    Volumes: { keep: { Type: "host", Source: "shop-keep" } },
    Services: [{ Checks: [{ Type: "http", Path: "/healthz", PortLabel: "http", Interval: 5e9 }] }],
  });
});

test("a port of tcp and of udp is one port to Nomad", async (t) => {
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
  const { files, notes } = exportApp(await appOf(both), "nomad");
  const { Job } = JSON.parse(files[0]?.content ?? "") as { Job: { TaskGroups: Record<string, unknown>[] } };
  const [group] = Job.TaskGroups;
  t.deepEqual(group?.["Networks"], [
    { Mode: "bridge", ReservedPorts: [{ Label: "udp", Value: 53, To: 5353 }] },
  ]);
  t.like(group, { Services: [{ Checks: [{ PortLabel: "udp" }] }], Tasks: [{ Config: { ports: ["udp"] } }] });
  t.true(notes.some((note) => note.startsWith("its port 53 leads to 53 for tcp here alone")));
});

test("Quadlet gets units, with what systemd would expand spelt out", async (t) => {
  const { files, notes } = exportApp(await shop(), "quadlet");
  const [unit] = files;
  t.is(unit?.name, "shop.container");
  const lines = unit?.content.split("\n") ?? [];
  for (const line of [
    "Image=registry.example/shop:1",
    'Exec="serve" "--price=$$5" "cheap $$(and) good"',
    "Secret=shop-password,type=env,target=PASSWORD",
    "PublishPort=8081:8080/tcp",
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

test("what a package says begins no other line of a unit, and is no template", async (t) => {
  const [unit] = exportApp(await appOf(hostile), "quadlet").files;
  t.notRegex(unit?.content ?? "", /[\0-\x09\x0b-\x1f\x7f]/);
  t.true(unit?.content.includes(String.raw`Exec="a\x0d[Service]\x0dExecStartPre=/bin/sh" "\x1b"`));
  const bent = await appOf(hostile.replace("docker:", String.raw`docker:${"\n"}  working_dir: "/srv\\"`));
  t.throws(() => exportApp(bent, "quadlet"), {
    message: "WorkingDir= cannot end in a backslash, or go over several lines",
  });
  const [job] = exportApp(await appOf(hostile), "nomad").files;
  const { Job } = JSON.parse(job?.content ?? "") as {
    Job: { TaskGroups: { Tasks: { Templates: { EmbeddedTmpl: string; LeftDelim: string }[] }[] }[] };
  };
  const [template] = Job.TaskGroups[0]?.Tasks[0]?.Templates ?? [];
  t.is(template?.EmbeddedTmpl, '<<<svc: {{ key "x" }} :svc>>>');
  t.false(template?.EmbeddedTmpl.includes(template.LeftDelim));
});

const pythonTest = canReadYaml() ? test : test.skip;

for (const to of ["kubernetes", "compose"] satisfies ExportAppRequestTo[]) {
  pythonTest(`text stays text in an export to ${to}, to who reads YAML 1.1`, async (t) => {
    const [file] = exportApp(await appOf(hostile), to).files;
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

test("ports stay at the addresses that they have here, or a note says that they do not", async (t) => {
  const app = { ...(await appOf(odd)), ownerUid: 1000 };
  const [compose] = exportApp(app, "compose").files;
  t.regex(compose?.content ?? "", /- 127\.0\.0\.1:8081:8080\/tcp\n +- "?\[::1\]:8082:8082\/tcp"?\n/);
  const [unit] = exportApp(app, "quadlet").files;
  t.regex(
    unit?.content ?? "",
    /^PublishPort=127\.0\.0\.1:8081:8080\/tcp\nPublishPort=\[::1\]:8082:8082\/tcp$/m,
  );
  for (const to of ["kubernetes", "nomad"] as const) {
    const { notes } = exportApp(app, to);
    t.true(
      notes.some((note) => note.startsWith("here port 8081 is reached at 127.0.0.1 alone; there ")),
      to,
    );
  }
});

test("what a container has of its host goes along, and no value is a specifier of systemd", async (t) => {
  const app = await appOf(odd);
  const [job] = exportApp(app, "nomad").files;
  for (const line of [
    /"pid_mode": "host"/,
    /"ipc_mode": "host"/,
    /"group_add": \[\s+"44"/,
    /"host_path": "\/dev\/fuse"/,
  ])
    t.regex(job?.content ?? "", line);
  t.regex(exportApp(app, "kubernetes").files[0]?.content ?? "", /runAsUser: 1000\n +runAsGroup: 1001\n/);
  const named = exportApp(await appOf(odd.replace('"1000:1001"', "web")), "kubernetes");
  t.notRegex(named.files[0]?.content ?? "", /runAs/);
  t.true(named.notes.some((note) => note.includes('it runs as "web" here')));
  const unit = exportApp({ ...app, version: "50%" }, "quadlet").files[0]?.content ?? "";
  t.regex(unit, /^WorkingDir=\/srv\/%%h$/m);
  t.regex(unit, /^Description=odd 50%%$/m);
  const twice = exportApp({ ...app, placement: { replicas: 2, ports: "mesh" } }, "compose");
  t.true(twice.notes.includes("it runs once there, not 2 times"));
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

composeTest(`compose itself takes an export, and reads in it what the app has${needsCompose}`, async (t) => {
  const exported = exportApp(await shop(), "compose");
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

/** What it prints is a compose file again. */
function unescaped(text: string): string {
  return text.replaceAll("$$", "$");
}
