/** The inputs of a generated manifest: common compose files, Dockerfiles, Procfiles and programs. */
import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { checkPackage } from "../../src/authoring/check.ts";
import { planManifest, type Plan } from "../../src/authoring/derive.ts";
import { PackageFiles } from "../../src/authoring/package-files.ts";
import { templateFiles, templateNames } from "../../src/authoring/templates.ts";
import { programs } from "../support/programs.ts";

const { settingsThread } = programs;

async function directory(t: ExecutionContext, files: Readonly<Record<string, string>>): Promise<string> {
  const parent = await mkdtemp(join(tmpdir(), "svc-authoring-"));
  t.teardown(() => rm(parent, { recursive: true }));
  const dir = join(parent, "My App");
  await mkdir(dir);
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(join(dir, name)), { recursive: true });
    await writeFile(join(dir, name), text);
  }
  return dir;
}

const plan = async (t: ExecutionContext, files: Readonly<Record<string, string>>): Promise<Plan> =>
  planManifest(new PackageFiles(await directory(t, files)));

for (const name of templateNames) {
  test(`a package generated from ${name} has no findings except its limits`, async (t) => {
    const dir = await directory(t, templateFiles(name));
    const { manifest, text } = await planManifest(new PackageFiles(dir));
    t.is(manifest.id, "my-app");
    await writeFile(join(dir, "svc.yaml"), text);
    const { problems, advice } = await checkPackage(dir, settingsThread);
    t.deepEqual(problems, []);
    t.deepEqual(
      advice.filter(({ message }) => !message.includes("limits")),
      [],
    );
  });
}

/** One service of each; `asks` are the permissions that it needs. */
const shapes: readonly { name: string; service: string; asks: readonly string[]; rest?: string }[] = [
  {
    name: "a web server with a named volume",
    service: "volumes: [state:/data]",
    rest: "volumes: { state: {} }",
    asks: [],
  },
  {
    name: "data beside the file",
    service: "volumes: ['./data:/data', './conf/app.ini:/app.ini:ro']",
    asks: [],
  },
  { name: "the time of the host", service: "volumes: ['/etc/localtime:/etc/localtime:ro']", asks: [] },
  { name: "a data directory with a default", service: "volumes: ['${DATA:-./data}:/data']", asks: [] },
  { name: "a media library", service: "volumes: ['/mnt/media:/media:ro']", asks: ["host_mounts"] },
  {
    name: "a mounted engine socket",
    service: "volumes: ['/var/run/docker.sock:/var/run/docker.sock']",
    asks: ["engine_socket"],
  },
  { name: "all of the host", service: "volumes: ['/:/host:ro']", asks: ["engine_socket"] },
  { name: "host networking", service: "network_mode: host", asks: ["host_network"] },
  {
    name: "a build on the host's network",
    service: "build: { context: ., network: host }",
    asks: ["host_network"],
  },
  { name: "a graphics processor", service: "devices: ['/dev/dri:/dev/dri']", asks: ["gpu"] },
  { name: "a radio stick", service: "devices: ['/dev/ttyUSB0:/dev/ttyUSB0']", asks: ["serial"] },
  {
    name: "a tunnel",
    service: "cap_add: [NET_ADMIN]\n    devices: [/dev/net/tun]",
    asks: ["capabilities", "tun"],
  },
  { name: "the processes of the host", service: "pid: host", asks: ["host_pid"] },
  { name: "a privileged one", service: "privileged: true", asks: ["privileged"] },
  { name: "kernel parameters of the host", service: "sysctls: { kernel.panic: 1 }", asks: ["privileged"] },
  {
    name: "settings that affect only its containers",
    service: "sysctls: { net.core.somaxconn: 1024 }\n    cap_add: [CHOWN]\n    networks: [lan]",
    rest: "networks: { lan: { ipam: { config: [{ subnet: 172.28.0.0/16 }] } } }",
    asks: [],
  },
  {
    name: "a network that others are on",
    service: "networks: [proxy]",
    rest: "networks: { proxy: { external: true } }",
    asks: ["networks"],
  },
];

for (const { name, service, rest = "", asks } of shapes) {
  test(`a compose file with ${name}`, async (t) => {
    const compose = `services:\n  app:\n    image: example/app:1\n    ${service}\n${rest}\n`;
    const dir = await directory(t, { "compose.yaml": compose });
    const { manifest, notes, text } = await planManifest(new PackageFiles(dir));
    t.deepEqual([...(manifest.permissions ?? [])].sort(), asks);
    t.is(
      notes.filter((note) => /only root's own apps may do, with the permission/.test(note)).length,
      asks.length,
    );
    await writeFile(join(dir, "svc.yaml"), text);
    t.deepEqual((await checkPackage(dir, settingsThread)).problems, []);
    // Without them the check names each, at the service.
    await writeFile(join(dir, "svc.yaml"), text.replace(/^permissions:.*$/m, ""));
    const { problems } = await checkPackage(dir, settingsThread);
    t.deepEqual(problems.map(({ message }) => /add "(\w+)" to permissions/.exec(message)?.[1]).sort(), asks);
    t.true(problems.every(({ file, line }) => file === "compose.yaml" && line > 1));
  });
}

test("variables of a compose file become settings, and ports are reported", async (t) => {
  const { manifest, notes } = await plan(t, {
    "docker-compose.yml": `name: wiki
x-casaos: { title: { en_us: A Wiki }, tagline: { en_us: Pages for all } }
x-env: &env { DB_PASSWORD: "\${DB_PASSWORD:?say one}", TZ: "\${TZ:-UTC}" }
services:
  db: { image: "postgres:\${PG:-16}", environment: { <<: *env, LITERAL: "$$HOME" } }
  web:
    image: example/wiki:2
    environment: [ "TITLE=$TITLE", "API_KEY=\${API_KEY-}" , "SVC_X=\${SVC_X}" ]
    ports: [ "\${WEB_PORT:-3000}:3000", "127.0.0.1:9000:9000/udp", "4000-4001:4000-4001", "4000:4000/udp" ]
`,
    ".env": "TITLE='Our wiki'\nDB_PASSWORD=kept\n",
  });
  const { properties = {}, required = [] } = manifest.settings ?? {};
  t.is(manifest.id, "wiki");
  t.is(manifest.name, "A Wiki");
  t.is(manifest.summary, "Pages for all");
  t.deepEqual(Object.keys(properties).sort(), [
    ...["api_key", "db_password", "pg", "title", "tz"],
    ...["web_4000_port", "web_4001_port", "web_9000_port", "web_port"],
  ]);
  t.like(properties["db_password"], { secret: true, env: "DB_PASSWORD" });
  t.true(
    Object.values(properties).every((setting) => setting.type === "integer" || !("default" in setting)),
    "values stay in the compose file and in .env",
  );
  t.is(properties["tz"]?.description, "Default: UTC (in svc.compose.yaml).");
  t.like(properties["api_key"], { secret: true });
  t.like(properties["web_port"], { type: "integer", default: 3000 });
  t.deepEqual(required, ["db_password"], "without compose .env is not read");
  t.deepEqual(manifest.ports, [
    { name: "web", setting: "web_port" },
    { name: "web-9000", protocol: "udp", setting: "web_9000_port" },
    { name: "web-4000", setting: "web_4000_port" },
    { name: "web-4001", setting: "web_4001_port" },
    { name: "web-4000-udp", protocol: "udp", setting: "web_4000_port" },
  ]);
  t.like(properties["web_4001_port"], {
    description: "Host port for port 4001 of service web.",
    default: 4001,
  });
  for (const said of [/compose is not installed here/, /SVC_X.*does not become a setting/])
    t.true(
      notes.some((note) => said.test(note)),
      String(said),
    );
});

test("a mandatory variable is a required setting", async (t) => {
  const { manifest } = await plan(t, {
    "compose.yaml":
      'services: { a: { image: x/y:1, environment: { A: "${A:?no A}", SECRET_B: "${SECRET_B}", C: "${C}" } } }\n',
  });
  t.deepEqual(manifest.settings?.required, ["a", "secret_b"]);
});

test("a project's own name becomes a valid app ID", async (t) => {
  const { manifest } = await plan(t, {
    "compose.yaml": "name: My_Project\nservices: { a: { image: x/y:1 } }\n",
  });
  t.is(manifest.id, "my_project");
});

test("an unreadable compose file is reported with its line", async (t) => {
  await t.throwsAsync(plan(t, { "compose.yaml": "services:\n  a: [\n" }), {
    message: /^compose\.yaml: line \d/,
  });
  await t.throwsAsync(plan(t, { "compose.yaml": "version: '3'\n" }), { message: /"services" is missing/ });
});

test("a Dockerfile contributes the ports and volumes of its last stage", async (t) => {
  const { manifest, notes } = await plan(t, {
    Dockerfile: `FROM golang:1 AS build
EXPOSE 9999
FROM debian:12
ENV MODE=fast \\
  LEVEL=3
EXPOSE 80 443/tcp 53/udp
VOLUME ["/var/lib/app", "/cache"]
HEALTHCHECK CMD true
`,
  });
  t.deepEqual(manifest.docker, { build: {} });
  t.is(manifest.settings?.properties["port"]?.default, 8080);
  t.deepEqual(manifest.ports, [
    { name: "http", setting: "port", container_port: 80 },
    { name: "port-443", default: 8443, container_port: 443 },
    { name: "port-53-udp", default: 8053, container_port: 53, protocol: "udp" },
  ]);
  t.deepEqual(manifest.volumes, [
    { name: "app", path: "/var/lib/app" },
    { name: "volume-2", path: "/cache" },
  ]);
  t.regex(notes.join("\n"), /^variables keep the image's values \(MODE, LEVEL\)/m);
  t.regex(notes.join("\n"), /HEALTHCHECK is ignored/);
});

test("a Procfile's web runs, its release migrates, and the others are reported", async (t) => {
  const { manifest, notes } = await plan(t, {
    Procfile:
      "web: gunicorn app:app --bind 127.0.0.1:$PORT\nworker: python work.py\nrelease: python migrate.py\n",
    "requirements.txt": "gunicorn\n",
  });
  t.deepEqual(manifest.process?.exec, ["sh", "-c", "exec gunicorn app:app --bind 127.0.0.1:$PORT"]);
  t.is(manifest.process?.build?.length, 2);
  t.regex(manifest.process?.env?.["PATH"] ?? "", /^\$\{repo\}\/\.venv\/bin:/);
  t.deepEqual(manifest.migrate, { exec: ["python", "migrate.py"] });
  t.regex(notes.join("\n"), /not worker/);
});

for (const [line, exec] of [
  ["node server.js --port 80", ["node", "server.js", "--port", "80"]],
  ["gunicorn app:app --name 'my app'", ["sh", "-c", "exec gunicorn app:app --name 'my app'"]],
  ["NODE_ENV=production node a.js", ["sh", "-c", "NODE_ENV=production node a.js"]],
  ["cd web && npm start", ["sh", "-c", "cd web && npm start"]],
  ["node a.js && node b.js", ["sh", "-c", "node a.js && node b.js"]],
  ["node a.js; node b.js", ["sh", "-c", "node a.js; node b.js"]],
  ["export A=b", ["sh", "-c", "export A=b"]],
  [". ./env.sh", ["sh", "-c", ". ./env.sh"]],
  ["exec node a.js", ["sh", "-c", "exec node a.js"]],
  ["./bin/start", ["./bin/start"]],
  // A manifest would interpret it as a placeholder.
  ["serve --port ${PORT:-80}", ["sh", "-c", "exec serve --port $${PORT:-80}"]],
] as const) {
  test(`a line of a Procfile: ${line}`, async (t) => {
    const { manifest } = await plan(t, { Procfile: `web: ${line}\nrelease: ${line}\n` });
    t.deepEqual(manifest.process?.exec, [...exec]);
    t.deepEqual(manifest.migrate, { exec: [...exec] });
  });
}

test("EXPOSE contributes variables, ranges and protocols in upper case; others are noted", async (t) => {
  const { manifest, notes } = await plan(t, {
    Dockerfile: `ARG BASE=debian:12
FROM $BASE
ARG PORT=3000
ENV PORT=$PORT OTHER="8124"
ENV SINGLE 9
EXPOSE $PORT \${OTHER} $SINGLE/tcp
EXPOSE 5000-5002/tcp 53/UDP
EXPOSE \${UNKNOWN:-7000} $UNKNOWN 80/sctp 1-60000 9-8 0 70000
`,
  });
  const all = manifest.ports?.map(({ container_port, protocol = "tcp" }) => `${container_port}/${protocol}`);
  t.deepEqual(all, [
    ...["3000/tcp", "8124/tcp", "9/tcp", "5000/tcp", "5001/tcp", "5002/tcp", "53/udp", "7000/tcp"],
  ]);
  for (const text of ["$UNKNOWN", "80/sctp", "1-60000", "9-8", "0", "70000"])
    t.true(
      notes.some((note) => note.startsWith(`EXPOSE ${text} is left out`)),
      text,
    );
});

test("a Dockerfile below the package is built with the package as its context", async (t) => {
  const dir = await directory(t, { "docker/Dockerfile": "FROM debian:12\n", Dockerfile: "FROM debian:11\n" });
  const of = async (from: string) => (await planManifest(new PackageFiles(dir), { from })).manifest.docker;
  t.deepEqual(await of("docker/Dockerfile"), { build: { dockerfile: "docker/Dockerfile" } });
  t.deepEqual(await of("./Dockerfile"), { build: {} });
});

for (const json of ["{", "null", '"text"']) {
  test(`a package.json that is ${json} is reported by name`, async (t) => {
    await t.throwsAsync(plan(t, { "package.json": json }), { message: /^package\.json: / });
  });
}

test("a package.json contributes its start command and its dependencies", async (t) => {
  const json = {
    name: "my-site",
    version: "2.3.4",
    scripts: { start: "next start", build: "next build" },
    dependencies: { next: "1" },
  };
  const { manifest, notes } = await plan(t, { "package.json": JSON.stringify(json) });
  t.deepEqual(manifest.process, {
    build: [{ exec: ["npm", "install", "--no-audit", "--no-fund"] }, { exec: ["npm", "run", "build"] }],
    exec: ["npm", "start"],
  });
  t.like(manifest, { id: "my-site", version: "2.3.4" });
  t.regex(notes.join("\n"), /no lockfile/);
});

const npmCi = { exec: ["npm", "ci", "--no-audit", "--no-fund"] };
const npmInstall = { exec: ["npm", "install", "--no-audit", "--no-fund"] };
const npmBuild = { exec: ["npm", "run", "build"] };

for (const { name, json, files = {}, process } of [
  {
    name: "only node, which needs no npm",
    json: { scripts: { start: " node server.js " } },
    process: { exec: ["node", "server.js"] },
  },
  { name: "its main file", json: { main: "lib/main.js" }, process: { exec: ["node", "lib/main.js"] } },
  {
    name: "start before main, though it says nothing but a shell's line",
    json: { main: "lib/main.js", scripts: { start: "node a.js --port $PORT" } },
    process: { exec: ["npm", "start"] },
  },
  {
    name: "a lockfile of npm's",
    json: { main: "a.js", dependencies: { a: "1" } },
    files: { "package-lock.json": "{}", "yarn.lock": "" },
    process: { build: [npmCi], exec: ["node", "a.js"] },
  },
  {
    name: "a lockfile of yarn's",
    json: { main: "a.js", dependencies: { a: "1" } },
    files: { "yarn.lock": "" },
    process: { build: [{ exec: ["yarn", "install", "--frozen-lockfile"] }], exec: ["node", "a.js"] },
  },
  {
    name: "tools to build with",
    json: { main: "a.js", scripts: { build: "tsc" }, devDependencies: { typescript: "1" } },
    process: { build: [npmInstall, npmBuild], exec: ["node", "a.js"] },
  },
  {
    name: "tools that nothing is built with",
    json: { main: "a.js", devDependencies: { prettier: "1" } },
    process: { exec: ["node", "a.js"] },
  },
  {
    name: "a build that needs nothing",
    json: { main: "a.js", scripts: { build: "node make.js" } },
    process: { build: [npmBuild], exec: ["node", "a.js"] },
  },
]) {
  test(`a package.json with ${name}`, async (t) => {
    const { manifest, notes } = await plan(t, { "package.json": JSON.stringify(json), ...files });
    t.deepEqual(manifest.process, process);
    const isLocked = Object.keys(files).length > 0;
    t.is(notes.join("\n").includes("no lockfile"), "build" in process && !isLocked);
  });
}

test("a script is a program for Node, unless it belongs to pages", async (t) => {
  const built = await plan(t, {
    "server.mjs": "",
    "index.html": "",
    "package.json": '{"dependencies": {"a": "1"}}',
  });
  t.deepEqual(built.manifest.process, { build: [npmInstall], exec: ["node", "server.mjs"] });
  t.deepEqual((await plan(t, { "app.js": "" })).manifest.process, { exec: ["node", "app.js"] });
  t.is((await plan(t, { "app.js": "", "index.html": "" })).from, "index.html");
});

test("a package.json without a start command has no precedence", async (t) => {
  const files = { "package.json": '{"scripts": {"test": "ava"}}', "app.py": "" };
  t.is((await plan(t, files)).from, "app.py");
});

test("a package.json's own declarations count if a manifest could contain them", async (t) => {
  const of = async (said: object) =>
    (await plan(t, { "package.json": JSON.stringify({ main: "a.js", ...said }) })).manifest;
  const good = { name: "web-2", version: "1.0.0-rc.1+b2", homepage: "https://example.org/a" };
  t.like(await of({ ...good, description: "Pages." }), { ...good, name: "Web-2", summary: "Pages." });
  const { name: _, ...rest } = good;
  t.like(await of(good), { id: "web-2", ...rest, summary: "A program for Node." });
  const bad = await of({ name: "@scope/web", version: "1 or 2", homepage: "javascript:alert(1)" });
  t.like(bad, { id: "my-app", version: "1.0.0" });
  t.is(bad.homepage, undefined);
  t.is((await of({ description: "x".repeat(300) })).summary?.length, 256);
});

test("of several files the one with a start command counts, and another may be named", async (t) => {
  const dir = await directory(t, {
    Dockerfile: "FROM debian:12\n",
    "compose.yaml": "services: { a: { build: . } }\n",
  });
  t.is((await planManifest(new PackageFiles(dir))).from, "compose.yaml");
  t.is((await planManifest(new PackageFiles(dir), { from: "Dockerfile" })).from, "Dockerfile");
  await t.throwsAsync(planManifest(new PackageFiles(dir), { from: "app.tar.gz" }), {
    message: "app.tar.gz is an archive; unpack it, and run: svc install ./DIR",
  });
  await t.throwsAsync(planManifest(new PackageFiles(dir), { from: "notes.txt" }), {
    message: /supported: .*compose.yaml/,
  });
});

test("a directory with nothing known, and one behind a link, are not packages", async (t) => {
  await t.throwsAsync(plan(t, { "notes.txt": "" }), {
    message:
      /^(\/.+) contains no file that svc can create a package from .*: svc package init '\1' --template NAME, where NAME is one of node, python, go, static, container, compose$/,
  });
  await t.throwsAsync(plan(t, { "docker-compose.production.yml": "services: { a: { image: a } }\n" }), {
    message: /^(\/.+) contains no file .*\); to use (.*): svc install '\1\/\2'$/,
  });
  const dir = await directory(t, {});
  await symlink("/etc/hostname", join(dir, "compose.yaml"));
  await t.throwsAsync(planManifest(new PackageFiles(dir)), {
    message: /contains no file that svc can create a package from/,
  });
});

test("an app of a CasaOS store stores its data in the package, and its page's port can be chosen", async (t) => {
  const dir = await directory(t, {
    "docker-compose.yml": `name: notes
services:
  notes:
    image: example/notes:1.2.3
    container_name: notes
    network_mode: bridge
    environment: { PUID: $PUID, TZ: $TZ, TITLE: "\${TITLE:-Notes}" }
    ports:
      - { target: 80, published: "8085", protocol: tcp }
      - "9443:9443"
    volumes:
      - { type: bind, source: /DATA/AppData/$AppID/config, target: /config }
      - /DATA/AppData/notes:/data
      - /DATA/Media:/media
    x-casaos: { envs: [] }
x-casaos:
  title: { en_us: Notes, de_de: Notizen }
  tagline: { en_us: Writes things down }
  port_map: "8085"
`,
  });
  const { manifest, notes, files = {}, from } = await planManifest(new PackageFiles(dir));
  t.is(from, "docker-compose.yml");
  t.like(manifest, { id: "notes", name: "Notes", summary: "Writes things down" });
  t.deepEqual(manifest.compose, { file: "svc.compose.yaml" });
  t.deepEqual(Object.keys(manifest.settings?.properties ?? {}).toSorted(), [
    ...["notes_9443_port", "port", "puid", "title", "tz"],
  ]);
  t.like(manifest.settings?.properties["port"], { type: "integer", default: 8085, env: "PORT" });
  t.deepEqual(manifest.ports, [
    { name: "notes", setting: "port" },
    { name: "notes-9443", setting: "notes_9443_port" },
  ]);
  t.deepEqual(manifest.permissions, ["host_mounts"], "shared paths there are the host's");
  t.true(notes.some((note) => note.includes("/DATA/Media")));
  const made = files["svc.compose.yaml"] ?? "";
  for (const part of ["source: ./data/config", "- ./data:/data", "${PUID:-1000}"])
    t.true(made.includes(part), part);
  t.false(made.includes("network_mode"), "the network of all containers is only for root's apps");
  t.notRegex(
    made,
    /container_name|AppID|Notizen|^name:/m,
    "an old docker-compose does not support the project's name",
  );
});

for (const { form, file } of [
  {
    form: "its own form",
    file: {
      "docker-compose.json": JSON.stringify({
        services: [
          {
            name: "wiki",
            image: "example/wiki:3",
            isMain: true,
            internalPort: 3000,
            environment: [
              { key: "DB_PASSWORD", value: "${WIKI_PASSWORD}" },
              { key: "NAME", value: "${WIKI_NAME}" },
              { key: "THEME", value: "${WIKI_THEME}" },
            ],
            volumes: [{ hostPath: "${APP_DATA_DIR}/data", containerPath: "/data" }],
            dependsOn: ["db"],
            extraLabels: { a: "b" },
          },
          { name: "db", image: "postgres:16", addPorts: [{ hostPort: 5433, containerPort: 5432 }] },
        ],
      }),
    },
  },
  {
    form: "a compose file",
    file: {
      "docker-compose.yml": `services:
  wiki:
    image: example/wiki:3
    container_name: wiki
    ports: ["\${APP_PORT}:3000"]
    environment: { DB_PASSWORD: "\${WIKI_PASSWORD}", NAME: "\${WIKI_NAME}", THEME: "\${WIKI_THEME}" }
    volumes: ["\${APP_DATA_DIR}/data:/data"]
    depends_on: [db]
    networks: [tipi_main_network]
    labels: { traefik.enable: true }
  db: { image: "postgres:16", ports: ["5433:5432"] }
networks: { tipi_main_network: { external: true } }
`,
    },
  },
]) {
  test(`an app of a Runtipi store with ${form} has the settings of its form`, async (t) => {
    const fields = [
      { type: "random", label: "Password", env_variable: "WIKI_PASSWORD", required: true },
      { type: "text", label: "Name", env_variable: "WIKI_NAME", required: true },
      { type: "text", label: "Theme", env_variable: "WIKI_THEME", required: true, default: "dark" },
      { type: "fqdn", label: "Host", env_variable: "WIKI_HOST" },
      { type: "text", label: "Without a variable" },
    ];
    const config = {
      ...{ id: "wiki", name: "A Wiki", short_desc: "Pages for all", version: "v3.2", port: 8123 },
      ...{ tipi_version: 4, form_fields: fields },
    };
    const dir = await directory(t, { ...file, "config.json": JSON.stringify(config) });
    const { manifest, notes, files = {} } = await planManifest(new PackageFiles(dir));
    t.like(manifest, { id: "wiki", name: "A Wiki", summary: "Pages for all", version: "3.2" });
    t.deepEqual(manifest.settings?.required?.toSorted(), ["wiki_name", "wiki_password"]);
    t.like(manifest.settings?.properties["wiki_theme"], { title: "Theme", default: "dark" });
    t.like(manifest.settings?.properties["wiki_password"], { title: "Password", secret: true });
    t.like(manifest.settings?.properties["port"], { type: "integer", default: 8123 });
    t.deepEqual(manifest.ports, [
      { name: "wiki", setting: "port" },
      { name: "db", setting: "db_port" },
    ]);
    t.is(manifest.permissions, undefined);
    const made = files["svc.compose.yaml"] ?? "";
    t.true(made.includes("./data:/data"));
    t.notRegex(made, /tipi|traefik|container_name/);
    t.deepEqual(
      notes.filter((note) => note.includes("its form")),
      ["WIKI_HOST of its form is ignored: no service uses it"],
    );
    t.is(
      notes.some((note) => note.includes("extraLabels")),
      form === "its own form",
    );
    const [name = "", text = ""] = Object.entries(files)[0] ?? [];
    await writeFile(join(dir, name), text);
    await writeFile(join(dir, "svc.yaml"), (await planManifest(new PackageFiles(dir))).text);
    t.deepEqual((await checkPackage(dir, settingsThread)).problems, []);
  });
}

test("another program's config.json does not belong to a store", async (t) => {
  const { from } = await plan(t, { "config.json": "{}", Procfile: "web: node a.js\n" });
  t.is(from, "Procfile");
});
