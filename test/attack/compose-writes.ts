/**
 * A regular user whose compose file contains programs that run as root and write into the user's own directory, or
 * exceed a limit.
 */
import assert from "node:assert/strict";
import { chmod, lstat, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { stringify } from "yaml";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { composeGenerations, type ComposeGeneration } from "../support/compose-generations.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { startEngine, whyNoDocker, type TestEngine } from "../support/docker.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { writeFiles } from "../support/packages.ts";
import type { Finding } from "./scenario.ts";

const attacker = 65534;

interface Attempt {
  readonly attack: string;
  /** Keys of the started service. */
  readonly service?: object;
  /** The rest of the compose file. */
  readonly rest?: object;
  /** The error of the install or the start. */
  readonly refusal: RegExp;
}

const content = { configs: { c: { content: "#!/bin/sh\nid\n" } } };
const drop = { volumes: ["./drop:/drop"] };
const config = (more: object, mounts: object = drop): object => ({
  ...mounts,
  configs: [{ source: "c", ...more }],
});

/** Older compose programs reject keys that they do not know. */
const attempts: readonly Attempt[] = [
  {
    attack: "content with the set-user-ID bit in a mount",
    ...{ service: config({ target: "/drop/x", mode: 0o4755 }), rest: content },
    refusal: /special mode|inside what it mounts at \/drop/,
  },
  {
    attack: "content with the set-group-ID bit",
    ...{ service: config({ target: "/x", mode: 0o2755 }), rest: content },
    refusal: /special mode/,
  },
  {
    attack: "content in a mount",
    ...{ service: config({ target: "/drop/x" }), rest: content },
    refusal: /inside what it mounts at \/drop/,
  },
  {
    attack: "content in a mount, by dots",
    ...{ service: config({ target: "/etc/../drop//x" }), rest: content },
    refusal: /inside what it mounts at \/drop/,
  },
  {
    attack: "content in a mount that is spelled with dots",
    ...{ service: config({ target: "/drop/x" }, { volumes: ["./drop:/etc/../drop/"] }), rest: content },
    refusal: /inside what it mounts at \/drop/,
  },
  {
    attack: "content in a volume",
    ...{ service: config({ target: "/kept/x" }, { volumes: ["kept:/kept"] }) },
    rest: { ...content, volumes: { kept: {} } },
    refusal: /inside what it mounts at \/kept/,
  },
  {
    attack: "content in a mount inside of a file system in memory",
    ...{ service: config({ target: "/run/drop/x" }, { volumes: ["./drop:/run/drop"], tmpfs: ["/run"] }) },
    rest: content,
    refusal: /inside what it mounts at \/run\/drop/,
  },
  {
    attack: "content in a file system in memory inside of a mount",
    ...{ service: config({ target: "/drop/run/x" }, { ...drop, tmpfs: ["/drop/run"] }), rest: content },
    refusal: /inside what it mounts at \/drop/,
  },
  {
    attack: "content of root's",
    ...{ service: config({ target: "/x", uid: "0" }), rest: content },
    refusal: /must belong to the app's owner/,
  },
  {
    attack: "a secret of a variable in a mount",
    service: { ...drop, secrets: [{ source: "s", target: "/drop/s" }] },
    rest: { secrets: { s: { environment: "TEXT" } } },
    refusal: /inside what it mounts at \/drop/,
  },
  {
    attack: "a hook that runs as root",
    service: { post_start: [{ command: ["id"], user: "root", privileged: true }] },
    refusal: /runs a (privileged )?command after its start|"post_start"/,
  },
  {
    attack: "a hook that runs as root without privileges",
    service: { post_start: [{ command: ["id"], user: "root" }] },
    refusal: /runs a command after its start as "root"|"post_start"/,
  },
  {
    attack: "content in a mount of another service",
    service: { volumes_from: ["other"], configs: [{ source: "c", target: "/drop/x" }] },
    rest: { ...content, services: { other: { image: "svc/attack:1", volumes: ["./drop:/drop"] } } },
    refusal: /inside what it mounts at \/drop/,
  },
  {
    attack: "a config of another service in a mount",
    service: { ...drop, volumes_from: ["other"] },
    rest: {
      ...content,
      services: { other: { image: "svc/attack:1", configs: [{ source: "c", target: "/drop/x" }] } },
    },
    refusal: /inside what it mounts at \/drop/,
  },
  {
    attack: "a subnet behind which the host may have a server",
    service: { networks: ["n"] },
    rest: { networks: { n: { ipam: { config: [{ subnet: "10.0.0.0/24" }] } } } },
    refusal: /sets the subnet "10.0.0.0\/24"/,
  },
  {
    attack: "a provider, which is a program of the host",
    service: { provider: { type: "sh", options: { c: "id" } } },
    refusal: /sets "provider"/,
  },
  {
    attack: "a log buffer of 500 MB in the engine",
    service: { logging: { options: { mode: "non-blocking", "max-buffer-size": "500m" } } },
    refusal: /buffers 500m of its log/,
  },
  {
    attack: "a log of 500 GB",
    service: { logging: { driver: "local", options: { "max-size": "500g" } } },
    refusal: /log files of 500g/,
  },
  {
    attack: "a log of millions of tiny files, which the engine renames one by one",
    service: { logging: { options: { "max-size": "1", "max-file": "500000000" } } },
    refusal: /keeps 500000000 log files/,
  },
  {
    attack: "a real-time priority",
    service: { ulimits: { rtprio: 99 } },
    refusal: /sets the limit "rtprio"/,
  },
  {
    attack: "locked memory",
    service: { ulimits: { memlock: 65_536 } },
    refusal: /sets the limit "memlock"/,
  },
  {
    attack: "health checks without a pause",
    service: { healthcheck: { test: "true", interval: "1ms" } },
    refusal: /checks its health every/,
  },
  {
    attack: "memory without end",
    service: { tmpfs: ["/x:size=0"] },
    refusal: /sets the size of an in-memory file system to 0 bytes/,
  },
  {
    attack: "any of root's ports",
    service: { ports: ["0-1023:80"] },
    refusal: /ports below 1024|publishes 1024 ports/,
  },
  {
    attack: "a range that ends above the last port",
    service: { ports: ["1023-1030:80"] },
    refusal: /ports below 1024|publishes 1024 ports/,
  },
  {
    attack: "labels of SELinux for a directory of the host",
    service: { volumes: ["./drop:/drop:Z"] },
    refusal: /labelled for SELinux/,
  },
];

/** A project with text content, which is written as its owner. */
const harmless = {
  service: {
    command: [
      "/bin/sh",
      "-c",
      "stat -c '%n %u:%g %a' /etc/c /run/secrets/s; cat /etc/c /run/secrets/s; echo; exec sleep 3600",
    ],
    configs: [{ source: "c", target: "/etc/c", mode: 0o755 }],
    secrets: ["s"],
    tmpfs: ["/run"],
    read_only: true,
  },
  rest: { configs: { c: { content: "hello\n" } }, secrets: { s: { environment: "TEXT" } } },
};

/** Findings of each compose version that this host has. */
export async function attackComposeWrites(): Promise<Finding[]> {
  if (whyNoDocker !== undefined) {
    return [{ attack: "compose files", text: `skipped: ${whyNoDocker}`, isGood: true }];
  }
  await using engine = await startEngine();
  await engine.images.build("svc/attack:1");
  const findings: Finding[] = [];
  for (const generation of composeGenerations) {
    findings.push(
      ...(generation.missing === ""
        ? await attackWith(engine, generation)
        : [{ attack: generation.name, text: generation.missing.trim(), isGood: true }]),
    );
  }
  return findings;
}

async function attackWith(
  engine: TestEngine,
  { name, dirs, isClassic }: ComposeGeneration,
): Promise<Finding[]> {
  const path = `[apps]\npath = ${JSON.stringify(dirs)}\n`;
  await using daemon = await startDaemon({ config: `${engine.config}\n${path}` });
  const findings: Finding[] = [];
  for (const { attack, service = {}, rest = {}, refusal } of attempts) {
    const { problem, found } = await install(daemon, service, rest);
    // Compose v1 supports fewer keys and reports the others.
    const isRefused = refusal.test(problem) || (isClassic && /compose\.yaml: /.test(problem));
    findings.push({
      attack: `${name}: ${attack}`,
      text: [problem || "it started", ...found].join("; "),
      isGood: isRefused && found.length === 0,
    });
  }
  if (!isClassic) findings.push(await readInside(daemon, name));
  return findings;
}

/** Installs and starts the package as the attacker. @returns its error, and files of other users in its directory */
async function install(
  daemon: TestDaemon,
  service: object,
  rest: object,
): Promise<{ problem: string; found: string[] }> {
  const dir = await writePackage(daemon, service, rest);
  await using owner = await daemon.as(attacker);
  const apps = owner.client(AppService);
  const refused = await errorOf(apps.installApp({ spec: dir }).then(({ id }) => apps.startApp({ id }))).catch(
    () => undefined,
  );
  const directory = join(daemon.storeDir, "apps/attack");
  const found = await strange(directory);
  await apps.removeApp({ id: "attack" }).catch(() => undefined);
  return { problem: refused?.message ?? "", found };
}

async function readInside(daemon: TestDaemon, name: string): Promise<Finding> {
  const dir = await writePackage(daemon, harmless.service, harmless.rest);
  await using owner = await daemon.as(attacker);
  const apps = owner.client(AppService);
  const { id, directory } = await apps.installApp({ spec: dir });
  await apps.startApp({ id });
  const lines = await eventually(async () => {
    const { lines: all } = await apps.getAppLogs({ id, tail: 10 });
    assert.equal(all.length, 4);
    return all.map(({ text }) => text.replace(/^\S+ +\| /, ""));
  }, 30_000);
  const found = await strange(directory);
  const expected = [
    `/etc/c ${attacker}:${attacker} 755`,
    `/run/secrets/s ${attacker}:${attacker} 444`,
    "hello",
    "from a setting",
  ];
  const isSame = expected.every((line, index) => lines[index] === line);
  const kept = await readFile(join(directory, "inline/configs-c"), "utf8");
  await apps.removeApp({ id });
  return {
    attack: `${name}: content as a file of its owner`,
    text: [...lines, ...found].join("; "),
    isGood: isSame && found.length === 0 && kept === "hello\n",
  };
}

async function writePackage(daemon: TestDaemon, service: object, rest: object): Promise<string> {
  const dir = join(daemon.dir, "attack");
  const { services = {}, ...sections } = rest as { services?: object };
  const web = { image: "svc/attack:1", stop_grace_period: "0s", ...service };
  await writeFiles(dir, {
    "svc.yaml":
      'id: attack\nname: Attack\nversion: "1.0.0"\ncompose: { file: compose.yaml, env: { TEXT: "from a setting" } }\nstop: { grace: 1s }\n',
    "compose.yaml": stringify({ ...sections, services: { web, ...services } }),
  });
  await chmod(dir, 0o755);
  return dir;
}

/** Entries that are neither the attacker's nor parent directories of theirs, and entries with special bits. */
async function strange(directory: string): Promise<string[]> {
  const entries = await readdir(directory, { recursive: true }).catch(() => []);
  const found: string[] = [];
  for (const entry of entries) {
    const stats = await lstat(join(directory, entry)).catch(() => undefined);
    if (stats === undefined) continue;
    const isTheirs = stats.uid === attacker || (stats.isDirectory() && stats.uid === process.getuid?.());
    if (!isTheirs || (stats.mode & 0o7000) !== 0) {
      found.push(`${entry} of uid ${stats.uid} with mode ${stats.mode.toString(8)}`);
    }
  }
  return found;
}
