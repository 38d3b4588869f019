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

/** The setting of a port whose number the file fixes. */
function fixedPort(service: string, target: number, port: number): object {
  const description = `Host port for port ${target} of service ${service}.`;
  return { ...{ title: "Port", description, type: "integer" }, minimum: 1, maximum: 65_535, default: port };
}

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
    name: "mounts in the long form, volumes and devices that .env names",
    files: {
      ".env": "D=./data\nV=state\nDEV=/dev/null\n",
      "compose.yaml": app(
        'volumes: ["${V}:/v", { type: bind, source: "${D:?where}", target: /d }]\n    devices: ["${DEV}:/dev/x"]',
        "volumes: { state: {} }",
      ),
    },
    settings: {
      d: { ...inDotenv, env: "D" },
      dev: { ...inDotenv, env: "DEV" },
      v: { ...inDotenv, env: "V" },
    },
    permissions: ["devices"],
    notes: /^[^\n]*\/dev\/null[^\n]*$/,
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
    settings: {
      app_port: fixedPort("app", 80, 18_880),
      app_90_port: fixedPort("app", 90, 18_890),
      app_91_port: fixedPort("app", 91, 18_891),
      app_92_port: fixedPort("app", 92, 18_892),
      app_8200_port: fixedPort("app", 8200, 18_400),
    },
    ports: [
      { name: "app", setting: "app_port" },
      { name: "app-90", setting: "app_90_port" },
      { name: "app-91", setting: "app_91_port" },
      { name: "app-92", setting: "app_92_port" },
      { name: "app-8200", setting: "app_8200_port" },
    ],
    notes: /^service "app" publishes port 8201 at any free port; .*$/,
  },
  {
    name: "one number for both protocols, beside a variable that has the setting's name",
    files: { "compose.yaml": app('environment: { P: "${APP_PORT:-x}" }\n    ports: ["53:53", "53:53/udp"]') },
    settings: {
      app_port: { description: "Default: x (in compose.yaml).", type: "string", env: "APP_PORT" },
      app_port_2: fixedPort("app", 53, 53),
    },
    ports: [
      { name: "app", setting: "app_port_2" },
      { name: "app-53", protocol: "udp", setting: "app_port_2" },
    ],
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
    settings: { app_port: fixedPort("app", 9000, 19_080) },
    ports: [{ name: "app", setting: "app_port" }],
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
    settings: { app_port: fixedPort("app", 80, 18_702) },
    ports: [{ name: "app", setting: "app_port" }],
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
    settings: { app_port: fixedPort("app", 80, 18_700) },
    ports: [{ name: "app", setting: "app_port" }],
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
    name: "a default that contains a variable",
    files: { ".env": "A=one\n", "compose.yaml": app('environment: { B: "${B:-${A}}" }') },
    settings: { a: { ...inDotenv, env: "A" }, b: { type: "string", env: "B" } },
    classicError:
      /^compose.yaml: docker-compose 1\.29 does not support the variable in "\$\{B:-\$\{A\}\}"; .*install compose 2$/,
  },
  {
    name: "a value that depends on whether a variable is set",
    files: { "compose.yaml": app('environment: { URL: "${HOST:+https://$HOST}" }') },
    settings: { host: { type: "string", env: "HOST" } },
    classicError: /does not support the variable in "\$\{HOST:\+https:\/\/\$HOST\}"/,
  },
  {
    name: "mounted directories in variables that nothing sets, and one of the owner",
    files: { "compose.yaml": app('volumes: ["$HOME_DIR/config:/config", "${PWD}/data:/data"]') },
    settings: { home_dir: { type: "string", env: "HOME_DIR" } },
    required: ["home_dir"],
  },
  {
    name: "mounts that consist of a variable without a value",
    files: {
      "compose.yaml": app('volumes: ["${D}:/d", { type: bind, source: "${E}", target: /e }, "${F:-./f}:/f"]'),
    },
    settings: {
      d: { type: "string", env: "D" },
      e: { type: "string", env: "E" },
      f: { description: "Default: ./f (in compose.yaml).", type: "string", env: "F" },
    },
    required: ["d", "e"],
  },
  {
    name: "images whose name or tag nothing sets",
    files: {
      "compose.yaml": `services:
  a: { image: "$IMAGE" }
  b: { image: "$REGISTRY/x:\${TAG}-slim" }
  c: { image: "\${PREFIX}x:\${KNOWN:-1}" }
`,
    },
    settings: {
      image: { type: "string", env: "IMAGE" },
      registry: { type: "string", env: "REGISTRY" },
      tag: { type: "string", env: "TAG" },
      prefix: { type: "string", env: "PREFIX" },
      known: { description: "Default: 1 (in compose.yaml).", type: "string", env: "KNOWN" },
    },
    required: ["image", "registry", "tag"],
    notes: /^\$\{PREFIX\} is empty, [^\n]*$/,
  },
  {
    name: "a variable that nothing sets",
    files: { "compose.yaml": app('environment: { A: "$A" }') },
    settings: { a: { type: "string", env: "A" } },
    notes: /^\$\{A\} is empty, because nothing sets it; set "a" if it needs a value$/,
  },
  {
    name: "an example of .env that nobody has copied",
    files: { ".env.example": "A=1\n", "compose.yaml": app('environment: { A: "${A:-0}" }') },
    settings: { a: { description: "Default: 0 (in compose.yaml).", type: "string", env: "A" } },
    notes: /^\.env\.example is not read; to use its values, copy it to \.env and edit the copy$/,
  },
  {
    name: "an example of .env beside the copy",
    files: {
      "example.env": "A=1\n",
      ".env": "A=2\n",
      "compose.yaml": app('environment: { A: "${A:-0}" }'),
    },
    settings: { a: { ...inDotenv, env: "A" } },
  },
  {
    name: "merge keys with the tag that some programs write",
    files: {
      "compose.yaml": `x-common: &common { restart: always }\n${app("!!merge <<: *common")}`,
    },
  },
  {
    name: "a variable that is true",
    files: { "compose.yaml": app("environment: { TELEMETRY: true }") },
    classicError:
      /services\.app\.environment\.TELEMETRY is not text, which docker-compose 1\.29 does not support: write it in quotes/,
  },
  {
    name: "a service that extends one with dependencies",
    files: {
      "base.yaml": "services: { base: { image: a, depends_on: [db] } }\n",
      "compose.yaml": app("extends: { file: base.yaml, service: base }", "  db: { image: a }"),
    },
    classicError: /with 'depends_on' cannot be extended; docker-compose 1\.29 does not support it/,
  },
  {
    name: "a port in an included file",
    files: {
      "compose.yaml": `include: [sub/compose.yaml]\n${app("command: [sleep, '600']")}`,
      "sub/compose.yaml": 'services: { b: { image: a, ports: ["18702:80"] } }\n',
    },
    settings: { b_port: fixedPort("b", 80, 18_702) },
    ports: [{ name: "b", setting: "b_port" }],
    classicError: /'include' .*; docker-compose 1\.29 does not support it: .*install compose 2$/,
  },
  {
    name: "the port 0, for which the engine chooses",
    files: { "compose.yaml": app('ports: ["0:80"]') },
    notes: /^service "app" publishes port 80 at any free port; .*$/,
  },
  {
    name: "volumes that mount directories of the package",
    files: {
      "compose.yaml": app(
        'volumes: ["db:/db", "media:/media:ro"]',
        `volumes:
  db: { driver: local, driver_opts: { type: none, o: bind, device: ./db } }
  media: { driver_opts: { type: none, o: "bind,ro", device: "\${PWD}/media" } }`,
      ),
    },
  },
  {
    name: "a volume that mounts a directory of the host",
    files: {
      "compose.yaml": app(
        'volumes: ["db:/db"]',
        "volumes: { db: { driver: local, driver_opts: { type: none, o: bind, device: /srv/db } } }",
      ),
    },
    permissions: ["host_mounts"],
    notes:
      /^volume "db" gives a volume driver the options device, o, type, which only root's own apps may do/,
  },
  {
    name: "paths of files in variables",
    files: {
      ".env": "FILES=./files\n",
      "compose.yaml": `${app(
        'env_file: ["${ENV_FILE:-app.env}", "$PWD/more.env"]\n    build: "${CONTEXT:-.}"\n    extends: { file: "${BASE:-base}/base.yaml", service: base }',
      )}secrets: { key: { file: "\${FILES}/key.txt" }, own: { file: "\${PWD}/key.txt" } }
configs: { site: { file: "\${SITE-./site.conf}" } }
`,
      "app.env": "A=1\n",
      "more.env": "B=1\n",
      "base/base.yaml": 'services: { base: { env_file: "${BASE_ENV:-base}.env" } }\n',
      "base/base.env": "C=1\n",
    },
    settings: {
      files: { ...inDotenv, env: "FILES" },
      env_file: { description: "Default: app.env (in compose.yaml).", type: "string", env: "ENV_FILE" },
      context: { description: "Default: . (in compose.yaml).", type: "string", env: "CONTEXT" },
      base: { description: "Default: base (in compose.yaml).", type: "string", env: "BASE" },
      base_env: { description: "Default: base (in compose.yaml).", type: "string", env: "BASE_ENV" },
      site: { description: "Default: ./site.conf (in compose.yaml).", type: "string", env: "SITE" },
    },
  },
  {
    name: "an include with its own environment files",
    files: {
      ".env": "OWN=own\n",
      "compose.yaml": `include: [{ path: mon/compose.yaml, env_file: [mon/mon.env, more.env] }, { path: db/compose.yaml }]\n${app("command: [sleep, '600']")}`,
      "mon/mon.env": 'MON_PORT=18103\nNAME="a b"\n',
      "more.env": "MON_PORT=18104\n",
      "mon/compose.yaml":
        'services: { mon: { image: a, ports: ["${MON_PORT}:80"], environment: { N: "${NAME}", O: "${OWN}" } } }\n',
      "db/.env": "DB_IMAGE=postgres:16\n",
      "db/compose.yaml": 'services: { db: { image: "${DB_IMAGE}" } }\n',
    },
    settings: {
      db_image: { ...inDotenv, env: "DB_IMAGE" },
      mon_port: {
        ...{ title: "Port", description: "TCP port to listen on.", type: "integer" },
        ...{ minimum: 1, maximum: 65_535, default: 18_104, env: "MON_PORT" },
      },
      name: { ...inDotenv, env: "NAME" },
      own: { ...inDotenv, env: "OWN" },
    },
    ports: [{ name: "mon", setting: "mon_port" }],
    classicError: /'include' .*; docker-compose 1\.29 does not support it: .*install compose 2$/,
  },
  {
    name: "several files of one include, and a service that extends a service of them",
    files: {
      "compose.yaml":
        'include: [{ path: [base/compose.yaml, tweak.yaml] }]\nservices: { front: { extends: { file: base/compose.yaml, service: back }, ports: !override ["18700:80"] } }\n',
      "base/compose.yaml":
        'services: { back: { image: a, ports: ["18701:80"], volumes: ["./conf:/conf:ro"] } }\n',
      "base/conf/x": "x",
      "tweak.yaml": 'services: { back: { ports: !override ["18702:80"] } }\n',
    },
    settings: { back_port: fixedPort("back", 80, 18_702), front_port: fixedPort("front", 80, 18_700) },
    ports: [
      { name: "back", setting: "back_port" },
      { name: "front", setting: "front_port" },
    ],
    classicError: /docker-compose 1\.29 does not support it/,
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
      t.regex(notes.join("\n"), expected.notes ?? /^$/);
    });
  }
}

/** Files that compose rejects; the error names what to write. */
const rejections: readonly { name: string; files: Files; error: RegExp; classicError?: RegExp }[] = [
  {
    name: "a volume without a declaration, beside variables without a value",
    files: { "compose.yaml": app('environment: { A: "$A", B: "$B" }\n    volumes: ["state:/data"]') },
    error:
      /^compose\.yaml: service "app" uses the volume "state", which is not declared; add it to "volumes" at the top level$/,
    classicError: /^compose\.yaml: Named volume "state:.*" is used .* no declaration was found/,
  },
  {
    name: "a directory that looks like a volume",
    files: { "compose.yaml": app('volumes: ["state/db:/data"]') },
    error:
      /mounts the volume "state\/db", which is not declared; for a directory of the package write "\.\/state\/db"$/,
    classicError: /Named volume "state\/db:.*"/,
  },
  {
    name: "a service without an image",
    files: { "compose.yaml": app("init: true", '  proxy: { environment: { HOST: "$HOST" } }') },
    error:
      /^compose\.yaml: service "proxy" has neither "image" nor "build"; add one of them, or remove the service$/,
    classicError: /proxy has neither an image nor a build context specified/,
  },
  {
    name: "a container port in a variable without a value",
    files: { "compose.yaml": app('environment: { P: "${P:-80}", Q: "$Q" }\n    ports: ["$P"]') },
    error: /^compose\.yaml: .*; these variables have no value: P, Q; set them in \.env$/,
    classicError: /^compose\.yaml: .*; these variables have no value: P, Q; set them in \.env$/,
  },
  {
    name: "an env_file that its example must be copied to",
    files: { "env.example": "A=1\n", "compose.yaml": app("env_file: .env") },
    error:
      /^compose\.yaml: the env_file \/.*\/\.env does not exist; create it; env\.example is not read, copy it to \.env and edit the copy$/,
  },
  {
    name: "a dollar sign that does not start a variable",
    files: { "compose.yaml": app('environment: { A: "a${b:" }') },
    error: /services\.app\.environment\.A has a "\$" that does not start a variable; write "\$\$" instead$/,
    classicError: /Invalid interpolation format/,
  },
  {
    name: "a secret at a path that a variable leads out of the package",
    files: {
      ".env": "FILES=../..\n",
      "compose.yaml": app("init: true", 'secrets: { key: { file: "${FILES}/key.txt" } }'),
    },
    error: /^compose\.yaml: secret "\.\.\/\.\.\/key\.txt" is outside the package; move it into the package$/,
  },
  {
    name: "a build from a git repository",
    files: { "compose.yaml": app("build: https://git.example.org/app.git#main") },
    error: /is not a file of the package; add its files to the package, or write an image$/,
  },
];

for (const { name: compose, dirs, isClassic, missing } of composeGenerations) {
  for (const { name, files, error, classicError } of rejections) {
    (missing === "" ? test : test.skip)(`${name} is rejected: ${compose}${missing}`, async (t) => {
      const thrown = await t.throwsAsync(planned(t, files, dirs));
      t.regex(thrown.message, isClassic ? (classicError ?? error) : error);
    });
  }
}
