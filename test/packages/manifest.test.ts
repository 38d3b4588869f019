/** Manifests: their values, their schemas, and the thread that parses them. */
import { readFile } from "node:fs/promises";
import { Ajv } from "ajv";
import test from "ava";
import fc from "fast-check";
import { manifestTypes, type ManifestSchema } from "../../src/codegen/manifest-types.ts";
import { SvcError } from "../../src/errors.ts";
import type { Manifest } from "../../src/packages/manifest/manifest.ts";
import { parseDuration, parseSize } from "../../src/packages/manifest/quantities.ts";
import { YamlThread } from "../../src/packages/manifest/yaml-thread.ts";
import { programs } from "../support/programs.ts";
import { parseManifest } from "./support/manifests.ts";

const head = `id: hello\nname: Hello\nversion: "1.0.0"\n`;
const minimal = `${head}process: {exec: [node, server.js]}\n`;

async function problemsOf(text: string): Promise<string> {
  try {
    await parseManifest(text);
    return "";
  } catch (error) {
    if (
      error instanceof SvcError &&
      error.code === "invalid_argument" &&
      error.reason === "package_invalid"
    ) {
      return error.message;
    }
    throw error;
  }
}

test("a minimal manifest gets its defaults", async (t) => {
  t.deepEqual(await parseManifest(minimal), {
    id: "hello",
    name: "Hello",
    version: "1.0.0",
    summary: "",
    homepage: "",
    runtime: { kind: "process", argv: ["node", "server.js"], build: [], env: {}, workingDir: "." },
    ports: [],
    volumes: [],
    stop: { signal: "SIGTERM", graceMs: 10_000 },
    restart: {
      policy: "on-failure",
      delayMs: 1_000,
      maxDelayMs: 60_000,
      maxAttempts: 10,
      resetAfterMs: 600_000,
    },
    limits: {},
    permissions: [],
  } satisfies Manifest);
});

test("a full manifest keeps all its values", async (t) => {
  const manifest = await parseManifest(`
id: media
name: Media Server
version: "2.1.0"
summary: Plays films
homepage: https://media.example
x-note: anything
process:
  exec: [node, server.js, "--data", "\${data}", "--media=\${volumes.films}"]
  working_dir: app
  env: {NODE_ENV: production, PUBLIC: "http://localhost:\${ports.http}"}
  build:
    - {exec: [npm, ci], timeout: 5m, env: {CI: "1"}, working_dir: app}
settings:
  required: [title]
  properties:
    port: {type: integer, default: 8080, env: PORT}
    title: {type: string, arg: "--title=\${value}", x-order: 1}
ports:
  - {name: http, setting: port}
  - {name: discovery, protocol: udp, default: 5353}
volumes:
  - {name: films, backup: false}
  - {name: state, path: deep/state, excludes: ["*.tmp"]}
health: {http: {port: http, path: /healthz}, start_period: 1m30s, retries: 5}
stop: {signal: SIGINT, grace: 30s}
restart: {policy: always, delay: 500ms, max_delay: 2m, max_attempts: 0, reset_after: 1h}
limits: {memory: 512MiB, cpus: 1.5, open_files: 4096}
backup: {trigger: daily@03:00, storages: [local], keep: 7, mode: stop, dump: {exec: [./dump.sh]}, after: {exec: [./tidy.sh]}}
console: {exec: [node, repl.js]}
migrate: {exec: [node, migrate.js], timeout: 1h}
`);
  t.like(manifest, {
    runtime: {
      kind: "process",
      workingDir: "app",
      build: [{ argv: ["npm", "ci"], workingDir: "app", env: { CI: "1" }, timeoutMs: 300_000 }],
    },
    ports: [
      { name: "http", protocol: "tcp", setting: "port" },
      { name: "discovery", protocol: "udp", default: 5353 },
    ],
    volumes: [
      { name: "films", path: "films", backup: false },
      { name: "state", path: "deep/state", backup: true, excludes: ["*.tmp"] },
    ],
    health: { probe: { kind: "http", port: "http", path: "/healthz" }, startPeriodMs: 90_000, retries: 5 },
    stop: { signal: "SIGINT", graceMs: 30_000 },
    restart: { policy: "always", delayMs: 500, maxDelayMs: 120_000, maxAttempts: 0, resetAfterMs: 3_600_000 },
    limits: { memoryBytes: 512 * 2 ** 20, cpus: 1.5, openFiles: 4096 },
    backup: {
      ...{ trigger: "daily@03:00", keep: 7, mode: "stop" },
      ...{ dump: { argv: ["./dump.sh"] }, after: { argv: ["./tidy.sh"] } },
    },
    migrate: { timeoutMs: 3_600_000 },
  });
  t.deepEqual(structuredClone(JSON.parse(JSON.stringify(manifest))), manifest, "it is plain JSON");
});

test("the other runtimes are modeled", async (t) => {
  const docker = await parseManifest(`${head}docker: {image: "nginx:1.27", command: [nginx]}\n`);
  t.like(docker.runtime, { kind: "docker", image: "nginx:1.27", network: "bridge", privileged: false });
  const compose = await parseManifest(`${head}compose: {file: compose.yaml, profiles: [web]}\n`);
  t.like(compose.runtime, { kind: "compose", file: "compose.yaml", profiles: ["web"] });
  const service = await parseManifest(`${head}service: {unit: hello.service}\n`);
  t.like(service.runtime, { kind: "service", unit: "hello.service" });
});

const refused: [name: string, text: string, message: RegExp][] = [
  [
    "an unknown key",
    `${minimal}colour: red\n`,
    /^svc\.yaml: line 5: unknown key "colour"; known keys: id, name/,
  ],
  [
    "an unknown nested key, with a hint",
    `${head}process:\n  exec: [a]\n  workingDir: x\n`,
    /line 6: unknown key "process\.workingDir"; did you mean "working_dir"\?/,
  ],
  [
    "a mistyped key",
    `${minimal}nmae: red\n`,
    /^svc\.yaml: line 5: unknown key "nmae"; did you mean "name"\?/,
  ],
  ["no runtime", head, /line 1: one of the keys process, docker, compose, service is required/],
  [
    "a terminal beside a program to attach to",
    `${minimal}console: {exec: [sh], terminal: true}\n`,
    /line 5: "terminal" and "exec" exclude each other/,
  ],
  [
    "two runtimes",
    `${minimal}compose: {file: c.yaml}\n`,
    /line 5: "compose" and "process" exclude each other/,
  ],
  ["a missing key", `id: x\nname: X\nprocess: {exec: [a]}\n`, /line 1: the key "version" is missing/],
  [
    "several problems at once",
    `${minimal}a: 1\nb: 2\n`,
    /line 5: unknown key "a".*; line 6: unknown key "b"/,
  ],
  ["a number for a version", minimal.replace('"1.0.0"', "1.10"), /line 3: version: 1\.1 is not a version/],
  [
    "a shell string for a command",
    `${head}process: {exec: npm start}\n`,
    /line 4: .*is not a list of the program/,
  ],
  ["an id with a slash", minimal.replace("hello", "../x"), /line 1: id: "\.\.\/x" is not an id/],
  [
    "a path out",
    `${head}compose: {file: a/../../b}\n`,
    /line 4: compose\.file: "a\/\.\.\/\.\.\/b" is not a relative path/,
  ],
  ["an absolute path", `${head}compose: {file: /etc/passwd}\n`, /is not a relative path/],
  [
    "a path out behind a line of its own",
    `${head}compose: {file: "a\\u2028/../../b"}\n`,
    /is not a relative path/,
  ],
  ["a carriage return in a path", `${head}compose: {file: "a\\rb"}\n`, /is not a relative path/],
  ["a NUL in a path", `${head}compose: {file: "a\\0b"}\n`, /is not a relative path/],
  ["a NUL in an argument", `${head}process: {exec: ["a\\0"]}\n`, /is not text without a NUL/],
  [
    "a duration without a unit",
    `${minimal}stop: {grace: 30}\n`,
    /line 5: stop\.grace: 30 is not a duration such as/,
  ],
  [
    "an unlimited grace period",
    `${minimal}stop: {grace: 30d}\n`,
    /line 5: stop\.grace: 30d is not at most 1h/,
  ],
  [
    "a check without a pause",
    `${minimal}ports: [{name: web, default: 8080}]\nhealth: {tcp: {port: web}, interval: 0ms}\n`,
    /line 6: health\.interval: 0ms is not 100ms to 1h/,
  ],
  [
    "a delay beyond timers",
    `${minimal}restart: {delay: 25d}\nmigrate: {exec: [a], timeout: 2d}\n`,
    /restart\.delay: 25d is not at most 1d; line 6: migrate\.timeout: 2d is not at most 1d/,
  ],
  ["a size with an unknown unit", `${minimal}limits: {memory: 5megs}\n`, /is not a size such as/],
  ["a duplicate key", `${minimal}id: other\n`, /line 5: the key "id" appears twice/],
  ["a reserved key", `${minimal}__proto__: {a: 1}\n`, /line 5: the key "__proto__" is reserved/],
  ["broken YAML", `${head}process: {exec: [a\n`, /line 5: /],
  ["several documents", `${minimal}---\na: 1\n`, /multiple documents/],
  ["nothing", "", /line 1: the document is empty$/],
  ["no keys", "hello", /line 1: the document must be a map, but is "hello"$/],
  [
    "a port that names no setting",
    `${minimal}ports: [{name: http, setting: port}]\n`,
    /refers to an unknown setting "port"/,
  ],
  ["a port with neither", `${minimal}ports: [{name: http}]\n`, /exactly one of "default" and "setting"/],
  [
    "an address of a process",
    `${minimal}ports: [{name: http, default: 8080, address: 127.0.0.1}]\n`,
    /line 5: the port "http" has an address, which is supported only for containers/,
  ],
  [
    "an invalid address",
    `${head}docker: {image: a}\nports: [{name: http, default: 8080, address: "1.2.3"}]\n`,
    /line 5: "1\.2\.3" is not an IP address/,
  ],
  [
    "an address twice",
    `${head}docker: {image: a}\nports: [{name: http, default: 8080, address: "::1", address_setting: host}]\n`,
    /must not set both "address" and "address_setting"/,
  ],
  [
    "a setting that need not be an address",
    `${head}docker: {image: a}\nports: [{name: http, default: 8080, address_setting: host}]\nsettings: {properties: {host: {type: string}}}\n`,
    /line 5: the port "http" gets its address from a setting, which must be a string of the format ipv4/,
  ],
  [
    "a duplicate port",
    `${minimal}ports: [{name: a, default: 1}, {name: a, default: 2}]\n`,
    /"a" appears twice/,
  ],
  [
    "a health check of no port",
    `${minimal}health: {tcp: {port: web}}\n`,
    /line 5: health refers to an unknown port "web"/,
  ],
  [
    "an unknown placeholder",
    `${head}process: {exec: [a, "\${prots.x}"]}\n`,
    /line 4: unknown placeholder \$\{prots\.x\}/,
  ],
  [
    "an unknown placeholder in the path of a health check",
    `${minimal}ports: [{name: web, default: 8080}]\nhealth: {http: {port: web, path: "/\${settings.x}"}}\n`,
    /line 6: unknown placeholder \$\{settings\.x\}/,
  ],
  [
    "a reserved variable",
    `${head}process: {exec: [a], env: {SVC_RUN_ID: x}}\n`,
    /"SVC_RUN_ID" is not the name of an env/,
  ],
  [
    "a host grab without permission",
    `${head}docker: {image: a, privileged: true}\n`,
    /add "privileged" to permissions/,
  ],
  [
    "a reference in a settings schema",
    settings(`a: {$ref: "http://evil", env: A}`),
    /unknown key "settings\.properties\.a\.\$ref"/,
  ],
  ["a setting without a use", settings(`a: {type: string}`), /the setting "a" has no effect/],
  [
    "a default against its schema",
    settings(`a: {type: integer, default: x, env: A}`),
    /line 7: the default of the setting "a" must be a whole number/,
  ],
  [
    "a bad pattern",
    settings(`a: {pattern: "(", env: A}`),
    /the pattern \( is not a valid regular expression/,
  ],
  ["an arg without its value", settings(`a: {type: string, arg: "-a"}`), /so its type must be boolean/],
  [
    "a file written twice",
    settings(`a: {file: {path: c}}\n    b: {file: {path: c, pointer: /x}}`),
    /line 8: another setting already writes c/,
  ],
  ["a pointer into a prototype", settings(`a: {file: {path: c, pointer: /__proto__/x}}`), /reserved name/],
];

function settings(properties: string): string {
  return `${minimal}settings:\n  properties:\n    ${properties}\n`;
}

for (const [name, text, message] of refused) {
  test(`rejected: ${name}`, async (t) => {
    t.regex(await problemsOf(text), message);
  });
}

/** Limits on the cost of untrusted YAML. */
const bombs: [name: string, text: string][] = [
  ["billion laughs", bomb()],
  ["an alias of itself", `a: &a [*a]\n`],
  ["deep nesting", "[".repeat(5_000) + "]".repeat(5_000)],
  ["unclosed nesting", "[".repeat(200_000)],
  ["too long", `${minimal}# ${"x".repeat(300_000)}\n`],
  ["many keys", Array.from({ length: 40_000 }, (_, i) => `k${i}:`).join("\n")],
  ["too many tokens", `${minimal}x-list: [${"a,".repeat(4_000)}]\n`],
  ["many wrong brackets", "]".repeat(7_900)],
  ["many errors", `"`.repeat(200_000)],
  ["many anchors", "&a ".repeat(80_000)],
];

function bomb(): string {
  const lines = Array.from({ length: 9 }, (_, i) => `a${i + 1}: &a${i + 1} [${`*a${i}, `.repeat(9)}]`);
  return `a0: &a0 [lol]\n${lines.join("\n")}\n`;
}

for (const [name, text] of bombs) {
  test(`${name} is rejected without a stall`, async (t) => {
    await parseManifest(minimal);
    const start = performance.now();
    t.not(await problemsOf(text), "");
    t.true(performance.now() - start < 3_000);
  });
}

test("a manifest may be long", async (t) => {
  t.is(await problemsOf(`${minimal}x-list: [${"a,".repeat(2_500)}]\n`), "");
});

test("any text is a manifest or a package_invalid error", async (t) => {
  await fc.assert(
    fc.asyncProperty(
      fc.oneof(
        fc.string(),
        fc.json(),
        fc.string().map((s) => minimal + s),
      ),
      async (text) => {
        await problemsOf(text);
      },
    ),
    { numRuns: 300 },
  );
  t.pass();
});

test("durations are read strictly", (t) => {
  const cases: [string, number | undefined][] = [
    ["30s", 30_000],
    ["1h30m", 5_400_000],
    ["500ms", 500],
    ["1d", 86_400_000],
    ["0s", 0],
    ["1m500ms", 60_500],
    ["", undefined],
    ["30", undefined],
    ["30 s", undefined],
    ["-1s", undefined],
    ["1.5s", undefined],
    ["30m1h", undefined],
    ["1s ", undefined],
    ["9999999999s", undefined],
  ];
  for (const [text, expected] of cases) t.is(parseDuration(text), expected, text);
});

test("sizes are read strictly", (t) => {
  const cases: [string, number | undefined][] = [
    ["512MiB", 512 * 2 ** 20],
    ["1.5GB", 1_500_000_000],
    ["100B", 100],
    ["1kB", 1000],
    ["512", undefined],
    ["512mb", undefined],
    ["-1MB", undefined],
    ["1e3MB", undefined],
    ["999999999999TiB", undefined],
  ];
  for (const [text, expected] of cases) t.is(parseSize(text), expected, text);
});

// The schemas of packages and sources are the only definition: they are valid schemas, and types are generated from
// them.

const root = new URL("../../", import.meta.url);

const readSchema = async (name: string): Promise<unknown> =>
  JSON.parse(await readFile(new URL(`src/packages/manifest/${name}.schema.json`, root), "utf8"));

test("the types of a manifest match its schema", async (t) => {
  const types = manifestTypes((await readSchema("manifest")) as ManifestSchema);
  t.is(types, await readFile(new URL("gen/manifest-document.ts", root), "utf8"), "`npm run gen` writes it");
});

test("optional values, enums, lists, maps, and inline or named objects are distinguished", (t) => {
  const types = manifestTypes({
    required: ["name"],
    properties: {
      name: { $ref: "#/definitions/line" },
      mode: { enum: ["live", "stop"] },
      kind: { const: "object" },
      any: {},
      ports: { type: "array", items: { $ref: "#/definitions/port" } },
      env: { type: "object", additionalProperties: { $ref: "#/definitions/line" } },
      arg: { type: ["string", "array"], items: { type: "integer" } },
      inner: { type: "object", properties: { on: { type: "boolean" } } },
      console: { $ref: "#/definitions/console" },
    },
    definitions: {
      line: { type: "string" },
      port: { type: "object", properties: { number: { type: "integer" } } },
      console: { type: ["boolean", "object"], properties: { exec: { type: "number" } } },
    },
  });
  const [, manifest = "", port = "", console = ""] = types.split("export interface ");
  t.is(
    manifest.trim(),
    `ManifestDocument extends Extensible {
  name: string;
  mode?: "live" | "stop";
  kind?: "object";
  any?: unknown;
  ports?: Array<PortDocument>;
  env?: Record<string, string>;
  arg?: string | Array<number>;
  inner?: Extensible & { on?: boolean; };
  console?: boolean | ConsoleDocument;
}`,
  );
  t.is(port.trim(), "PortDocument extends Extensible {\n  number?: number;\n}");
  t.is(console.trim(), "ConsoleDocument extends Extensible {\n  exec?: number;\n}");
});

// The daemon uses them without validation, which would take as long at each start as compiling them.
for (const name of ["manifest", "index"]) {
  test(`${name}.schema.json is a JSON Schema`, async (t) => {
    const ajv = new Ajv({ strict: false });
    t.true(await ajv.validateSchema((await readSchema(name)) as object), ajv.errorsText());
  });
}

// Long untrusted YAML blocks nobody, and is aborted when it takes too long.

const bounds = { maxBytes: 2 << 20, maxTokens: 100_000, maxDepth: 64, maxValues: 100_000 };
/** Each close to the maximum number of tokens. */
const long = `a:\n${"  - {b: c}\n".repeat(6_000)}`;
const longest = `a:\n${"  - {b: c}\n".repeat(60_000)}`;
const manifest = `id: a\nname: A\nversion: "1"\nprocess: {exec: [a]}\nx-long: [${"b,".repeat(2_500)}]\n`;
const packages = Array.from({ length: 4_000 }, (_, at) => `  p${at}: { directory: d${at} }\n`);

for (const [what, read] of [
  ["document", (thread: YamlThread) => thread.read(long, bounds, 1)],
  ["manifest", (thread: YamlThread) => thread.manifest(manifest, 1)],
  ["index", (thread: YamlThread) => thread.index(`packages:\n${packages.join("")}`, 1)],
] as const) {
  test(`others continue while a long ${what} is read`, async (t) => {
    using thread = new YamlThread({ threadUrl: programs.settingsThread });
    await thread.read("a: b", bounds, 1);
    let turns = 0;
    let isOver = false;
    const count = (): void => {
      turns++;
      if (!isOver) setImmediate(count);
    };
    setImmediate(count);
    const reading = await read(thread);
    isOver = true;
    t.false("problems" in reading, JSON.stringify(reading).slice(0, 200));
    t.log(`${turns} turns of the loop`);
    // If it were parsed in this thread, there would be only one.
    t.true(turns > 1_000, String(turns));
  });
}

test("errors in a manifest and an index have their line", async (t) => {
  using thread = new YamlThread({ threadUrl: programs.settingsThread });
  t.deepEqual(await thread.manifest('id: a\nname: "\\ud800"\n', 1), {
    problems: [{ line: 2, message: "the value is not text, a number, true, false or null" }],
  });
  t.deepEqual(await thread.index("packages:\n  a: {}\n", 1), {
    problems: [{ line: 2, message: 'a: exactly one of "repo" and "directory" is required' }],
  });
  t.like(await thread.manifest(`id: a\nname: A\nversion: "1"\nprocess: {exec: [a]}\n`, 1), {
    manifest: { id: "a", restart: { policy: "on-failure" } },
  });
});

test("parsing that takes too long is aborted, and the next one runs", async (t) => {
  const roomy = { ...bounds, maxTokens: 10_000_000, maxValues: 10_000_000 };
  // Far less than loading the thread and parsing this take, with enough time for a busy host.
  using thread = new YamlThread({ threadUrl: programs.settingsThread, timeoutMs: 100, waitMs: 120_000 });
  t.deepEqual(await thread.read(longest, roomy, 1), {
    problems: [{ line: 1, message: "reading it takes more than 100 ms" }],
  });
  using patient = new YamlThread({ threadUrl: programs.settingsThread });
  t.deepEqual(await patient.read("a: [", bounds, 1), {
    problems: [
      {
        line: 1,
        message: "Flow sequence in block collection must be sufficiently indented and end with a ]",
      },
    ],
  });
  t.deepEqual(await patient.read("a: 1", bounds, 1), { value: { a: 1 } });
});

test("a user with many pending documents blocks neither root nor another user", async (t) => {
  using thread = new YamlThread({ threadUrl: programs.settingsThread });
  const flood = await Promise.allSettled([
    ...Array.from({ length: 300 }, () => thread.read("a: b", bounds, 1)),
    thread.read("a: b", bounds, 0),
    thread.read("a: b", bounds, 2),
  ]);
  const failed = flood.filter((result) => result.status === "rejected");
  t.is(failed.length, 300 - 1 - 16);
  t.like(failed[0]?.reason, { reason: "too_many" });
  t.deepEqual(
    flood.slice(-2).map(({ status }) => status),
    ["fulfilled", "fulfilled"],
  );
});
