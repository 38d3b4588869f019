import test from "ava";
import fc from "fast-check";
import { SvcError } from "../../src/errors.ts";
import type { Manifest } from "../../src/packages/manifest/manifest.ts";
import { parseDuration, parseSize } from "../../src/packages/manifest/quantities.ts";
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
    /line 7: the default of the setting "a" must be integer/,
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
