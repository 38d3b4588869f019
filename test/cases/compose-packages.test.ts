/** Compose files as people write them: what svc plans before the install, with each version of compose. */
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { findCompose } from "../../src/authoring/compose-program.ts";
import { planManifest, type Plan } from "../../src/authoring/derive.ts";
import { PackageFiles } from "../../src/authoring/package-files.ts";
import { composeGenerations } from "../support/compose-generations.ts";

type Files = Readonly<Record<string, string>>;

async function planned(t: ExecutionContext, files: Files, dirs: readonly string[]): Promise<Plan> {
  const root = await mkdtemp(join(tmpdir(), "svc-case-"));
  t.teardown(() => rm(root, { recursive: true }));
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(join(root, name)), { recursive: true });
    await writeFile(join(root, name), text);
  }
  const env = { PATH: dirs.join(delimiter) };
  return planManifest(new PackageFiles(root), { findCompose: () => findCompose(env) });
}

const app = (more: string, rest = ""): string =>
  `services:\n  app:\n    image: example/app:1\n    ${more}\n${rest}\n`;

interface Case {
  readonly name: string;
  readonly files: Files;
  readonly permissions?: readonly string[];
  /** Settings by name. */
  readonly settings?: Readonly<Record<string, object>>;
  readonly required?: readonly string[];
  readonly ports?: readonly object[];
  readonly notes?: RegExp;
  readonly from?: string;
  /** The error of docker-compose 1.29, if it does not support the file. */
  readonly classicError?: RegExp;
}

const inDotenv = { description: "Default: the value in .env.", type: "string" };

const cases: readonly Case[] = [
  {
    name: "a blank value in .env, with the next variable below it",
    files: { ".env": "A=\nB=second\n", "compose.yaml": app('environment: { A: "${A}", B: "${B}" }') },
    settings: { a: { ...inDotenv, env: "A" }, b: { ...inDotenv, env: "B" } },
  },
  {
    name: "a port in .env with a comment behind it",
    files: { ".env": "P=18099   # a port\n", "compose.yaml": app('ports: ["${P}:80"]') },
    settings: {
      p: {
        ...{ title: "Port", description: "TCP port to listen on.", type: "integer" },
        ...{ minimum: 1, maximum: 65_535, default: 18_099, env: "P" },
      },
    },
    ports: [{ name: "app", setting: "p" }],
  },
  {
    name: "a default in the file, which stays there",
    files: { "compose.yaml": app('environment: { TZ: "${TZ:-UTC}" }') },
    settings: { tz: { description: "Default: UTC (in compose.yaml).", type: "string", env: "TZ" } },
  },
  {
    name: "a directory of the package that .env names",
    files: { ".env": "D=./data\n", "compose.yaml": app('volumes: ["${D}:/d", "${D}/sub:/sub"]') },
    settings: { d: { ...inDotenv, env: "D" } },
  },
  {
    name: "a directory of the host that .env names",
    files: { ".env": "D=/srv/media\n", "compose.yaml": app('volumes: ["${D}:/d"]') },
    settings: { d: { ...inDotenv, env: "D" } },
    permissions: ["host_mounts"],
    notes: /service "app" mounts \/srv\/media/,
  },
  {
    name: "a directory that must be chosen",
    files: { "compose.yaml": app('volumes: ["${D:?where}:/d"]') },
    settings: { d: { type: "string", env: "D" } },
    required: ["d"],
  },
  {
    name: "a secret and a config in files of the package",
    files: {
      "compose.yaml": app(
        "secrets: [s]\n    configs: [c]",
        "secrets: { s: { file: ./s.txt } }\nconfigs: { c: { file: ./c.txt } }",
      ),
      "s.txt": "x",
      "c.txt": "y",
    },
  },
  {
    name: "a secret and a config from variables",
    files: {
      ".env": "S_VAL=one\nC_VAL=two\n",
      "compose.yaml": app(
        "secrets: [s]\n    configs: [c]",
        "secrets: { s: { environment: S_VAL } }\nconfigs: { c: { environment: C_VAL } }",
      ),
    },
    settings: {
      s_val: { ...inDotenv, secret: true, env: "S_VAL" },
      c_val: { ...inDotenv, env: "C_VAL" },
    },
    classicError:
      /(?:secrets\.s|configs\.c) value 'environment' .*; docker-compose 1\.29 does not support it: .*install compose 2$/,
  },
  {
    name: "a range of ports, and one fixed port",
    files: { "compose.yaml": app('ports: ["18880:80", "18890-18892:90-92", "[::1]:18400:8200", "8201"]') },
    ports: [
      { name: "app", default: 18_880 },
      { name: "app-90", default: 18_890 },
      { name: "app-91", default: 18_891 },
      { name: "app-92", default: 18_892 },
      { name: "app-8200", default: 18_400 },
    ],
    notes: /^service "app" publishes port 8201 at any free port; .*\nport 18880 is fixed in compose.yaml; /,
  },
  {
    name: "a port in a variable that begins as those of compose do",
    files: { "compose.yaml": app('ports: ["${COMPOSE_PORT_HTTP:-19080}:9000"]') },
    settings: {
      compose_port_http: {
        ...{ title: "Port", description: "TCP port to listen on.", type: "integer" },
        ...{ minimum: 1, maximum: 65_535, default: 19_080, env: "COMPOSE_PORT_HTTP" },
      },
    },
    ports: [{ name: "app", setting: "compose_port_http" }],
  },
  {
    name: "a port in a variable that packages cannot set",
    files: { "compose.yaml": app('ports: ["${SVC_PORT:-19080}:9000"]') },
    ports: [{ name: "app", default: 19_080 }],
    notes: /\$\{SVC_PORT\} does not become a setting/,
  },
  {
    name: "an override file",
    files: {
      "compose.yaml": app("command: [sleep, '600']"),
      "compose.override.yaml": "services: { app: { privileged: true } }\n",
    },
    permissions: ["privileged"],
    notes: /compose merges compose.yaml, compose.override.yaml/,
  },
  {
    name: "a list of files in .env",
    files: {
      ".env": "COMPOSE_FILE=a.yml:b.yml # both\n",
      "a.yml": app("command: [sleep, '600']"),
      "b.yml": 'services: { app: { ports: ["18702:80"] } }\n',
    },
    from: "a.yml",
    ports: [{ name: "app", default: 18_702 }],
    notes: /compose merges a.yml, b.yml/,
  },
  {
    name: "a service of a profile that is not chosen",
    files: {
      "compose.yaml": app(
        "command: [sleep, '600']",
        "  debug: { image: a, privileged: true, profiles: [debug] }",
      ),
    },
  },
  {
    name: "a service of a profile that .env chooses",
    files: {
      ".env": "COMPOSE_PROFILES=debug\n",
      "compose.yaml": app(
        "command: [sleep, '600']",
        "  debug: { image: a, privileged: true, profiles: [debug] }",
      ),
    },
    permissions: ["privileged"],
    notes: /service "debug" runs privileged/,
  },
  {
    name: "tags that replace a part of another file",
    files: {
      "compose.yaml": app('ports: ["18701:80"]\n    privileged: true'),
      "compose.override.yaml":
        'services: { app: { ports: !override ["18700:80"], privileged: !reset null } }\n',
    },
    ports: [{ name: "app", default: 18_700 }],
    notes: /compose merges/,
    classicError: /tag '!\w+'; docker-compose 1\.29 does not support it/,
  },
  {
    name: "an optional dependency",
    files: {
      "compose.yaml": app(
        "depends_on: { db: { condition: service_started, required: false } }",
        "  db: { image: a, profiles: [bundled] }",
      ),
    },
    classicError: /unsupported option: 'required'; docker-compose 1\.29 does not support it/,
  },
  {
    name: "a port in an included file",
    files: {
      "compose.yaml": `include: [sub/compose.yaml]\n${app("command: [sleep, '600']")}`,
      "sub/compose.yaml": 'services: { b: { image: a, ports: ["18702:80"] } }\n',
    },
    ports: [{ name: "b", default: 18_702 }],
    classicError: /'include' .*; docker-compose 1\.29 does not support it: .*install compose 2$/,
  },
];

for (const { name: compose, dirs, isClassic, missing } of composeGenerations) {
  for (const { name, files, classicError, ...expected } of cases) {
    (missing === "" ? test : test.skip)(`${name}: ${compose}${missing}`, async (t) => {
      if (isClassic && classicError !== undefined) {
        const error = await t.throwsAsync(planned(t, files, dirs));
        t.regex(error.message, classicError);
        return;
      }
      const { manifest, notes, from } = await planned(t, files, dirs);
      t.deepEqual(manifest.permissions, expected.permissions?.slice());
      t.deepEqual(manifest.settings?.properties, expected.settings);
      t.deepEqual(manifest.settings?.required, expected.required?.slice());
      t.deepEqual(manifest.ports, expected.ports?.slice());
      t.is(from, expected.from ?? "compose.yaml");
      t.regex(notes.join("\n"), expected.notes ?? /^(?:port \d+ is fixed.*)?$/);
    });
  }
}
