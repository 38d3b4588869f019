import test from "ava";
import { SvcError, type FieldViolation } from "../../src/errors.ts";
import type { JsonObject } from "../../src/lib/json.ts";
import { valueOfText } from "../../src/lib/typed-text.ts";
import { nearWord } from "../../src/lib/near-word.ts";
import { portViolations } from "../../src/packages/settings/chosen-ports.ts";
import type { Manifest } from "../../src/packages/manifest/manifest.ts";
import { expandPlaceholders, placeholdersIn } from "../../src/packages/manifest/placeholders.ts";
import { YamlThread } from "../../src/packages/manifest/yaml-thread.ts";
import { valuesOfTexts } from "../../src/packages/settings/setting-texts.ts";
import { settingsSchema } from "../../src/packages/settings/settings-schema.ts";
import { createSettingsValidator } from "../../src/packages/settings/settings-validator.ts";
import {
  retainMaskedSecrets,
  maskSecrets,
  mergeDefaults,
  resolvePorts,
  resolveSettings,
} from "../../src/packages/settings/settings.ts";
import { programs } from "../support/programs.ts";
import { parseManifest } from "./support/manifests.ts";

const validator = createSettingsValidator({ threadUrl: programs.settingsThread });

const manifestOf = (rest: string): Promise<Manifest> =>
  parseManifest(`id: x\nname: X\nversion: "1"\nprocess: {exec: [x]}\n${rest}`);

const example = await manifestOf(`
ports:
  - {name: http, setting: port}
  - {name: peers, protocol: udp, default: 7000}
settings:
  title: Example
  required: [name]
  properties:
    port: {type: integer, default: 8080, env: PORT}
    name: {type: string, minLength: 1, env: NAME, arg: ["--name", "\${value}"]}
    verbose: {type: boolean, default: false, arg: -v}
    allow: {type: array, items: {type: string, pattern: "^[a-z]+$"}, arg: "--allow=\${value}"}
    theme: {type: string, enum: [dark, light], default: dark, file: {path: conf/app.json, pointer: /ui/theme}}
    size: {type: integer, file: {path: conf/app.json, pointer: "/ui/a~1b"}}
    motd: {type: string, file: {path: motd.txt}}
    password: {type: string, secret: true, env: PASSWORD, x-hint: long}
    limits: {type: object, properties: {cpu: {type: number}}, required: [cpu], env: LIMITS}
`);

async function violationsOf(
  manifest: Manifest,
  values: JsonObject,
  by = validator,
): Promise<readonly FieldViolation[]> {
  try {
    await by.validate(manifest, values, 0);
    return [];
  } catch (error) {
    if (!(error instanceof SvcError) || error.reason !== "invalid_request") throw error;
    return (error as SvcError<"invalid_request">).payload?.violations ?? [];
  }
}

test("defaults are merged with the chosen values, which have precedence", (t) => {
  t.deepEqual(mergeDefaults(example, { name: "a", theme: "light" }), {
    port: 8080,
    verbose: false,
    theme: "light",
    name: "a",
  });
});

test("values reach environment, arguments, files and placeholders", (t) => {
  const values = {
    name: "a b",
    verbose: true,
    allow: ["x", "y"],
    size: 3,
    motd: "Hi\n",
    password: "${settings.name}",
    limits: { cpu: 1.5 },
  };
  const resolved = resolveSettings(example, values);
  t.deepEqual(resolved.env, {
    PORT: "8080",
    NAME: "a b",
    PASSWORD: "${settings.name}",
    LIMITS: `{"cpu":1.5}`,
  });
  t.deepEqual(resolved.args, ["--name", "a b", "-v", "--allow=x", "--allow=y"]);
  t.deepEqual(resolved.files, [
    { path: "motd.txt", content: "Hi\n" },
    {
      path: "conf/app.json",
      content: `${JSON.stringify({ ui: { theme: "dark", "a/b": 3 } }, undefined, 2)}\n`,
    },
  ]);
  t.is(resolved.texts["allow"], `["x","y"]`);
});

test("a switch that is off and an unset value are omitted", (t) => {
  const { env, args } = resolveSettings(example, { name: "a" });
  t.deepEqual(args, ["--name", "a"]);
  t.deepEqual(env, { PORT: "8080", NAME: "a" });
});

test("a chosen port is validated by one rule: one violation per setting, with the same message as for others", async (t) => {
  const manifest = await manifestOf(`
ports:
  - {name: http, setting: web-port}
  - {name: http3, protocol: udp, setting: web-port}
  - {name: peers, setting: peers}
settings:
  properties:
    web-port: {type: integer, minimum: 1}
    peers: {type: integer}
`);
  const description = (port: number): string => `${port} is not a port number (1 to 65535)`;
  t.deepEqual(await violationsOf(manifest, { "web-port": 70_000, peers: -1 }), [
    { field: "values.web-port", description: description(70_000) },
    { field: "values.peers", description: description(-1) },
  ]);
  t.deepEqual(
    (await violationsOf(manifest, { "web-port": 0 })).map(({ field }) => field),
    ["values.web-port"],
  );
  t.deepEqual(await violationsOf(manifest, { "web-port": 1, peers: 65_535 }), []);
  t.deepEqual(
    portViolations(manifest, { "web-port": 80 }, (port) =>
      port < 1024 ? { description: "is low" } : undefined,
    ),
    [{ field: "values.web-port", description: "is low" }],
  );
});

test("ports follow the settings", (t) => {
  t.deepEqual(resolvePorts(example, { port: 9000 }), [
    { name: "http", protocol: "tcp", port: 9000 },
    { name: "peers", protocol: "udp", port: 7000 },
  ]);
});

const invalid: [name: string, values: JsonObject, fields: string[]][] = [
  ["a missing one", {}, ["values.name"]],
  ["an unknown key", { name: "a", nope: 1 }, ["values.nope"]],
  ["an odd unknown key", { name: "a", "no.pe": 1 }, [`values["no.pe"]`]],
  ["a wrong type", { name: 1 }, ["values.name"]],
  ["no coercion", { name: "a", port: "8080" }, ["values.port"]],
  ["a port out of range", { name: "a", port: 70_000 }, ["values.port"]],
  ["one entry of a list", { name: "a", allow: ["ok", "NO"] }, ["values.allow[1]"]],
  ["a part of an object", { name: "a", limits: {} }, ["values.limits.cpu"]],
  ["an unknown part", { name: "a", limits: { cpu: 1, gpu: 1 } }, ["values.limits.gpu"]],
  ["several at once", { theme: "pink", verbose: "yes" }, ["values.name", "values.verbose", "values.theme"]],
];

for (const [name, values, fields] of invalid) {
  test(`rejected: ${name}`, async (t) => {
    const violations = await violationsOf(example, values);
    t.deepEqual(violations.map(({ field }) => field).sort(), [...fields].sort());
    t.true(violations.every(({ description }) => description !== ""));
  });
}

const messages: [name: string, values: JsonObject, description: string][] = [
  ["a wrong type", { name: "a", port: "abc" }, 'must be a whole number, got "abc"'],
  ["a choice", { name: "a", theme: "pink" }, 'must be one of ["dark","light"], got "pink"'],
  ["an entry of a list", { name: "a", allow: [7] }, "must be a text, got 7"],
  ["a long value", { name: "a", port: "x".repeat(100) }, `must be a whole number, got "${"x".repeat(59)}…`],
  ["an empty text", { name: "" }, "must not be empty"],
  ["a secret", { name: "a", password: 7 }, "must be a text"],
];

for (const [name, values, description] of messages) {
  test(`the message has the rejected value: ${name}`, async (t) => {
    t.deepEqual(
      (await violationsOf(example, values)).map((violation) => violation.description),
      [description],
    );
  });
}

test("similar settings are found quickly for many long unknown names", (t) => {
  const known = Array.from({ length: 200 }, (_, at) => `${"ab".repeat(30)}${at}`);
  const unknown = Array.from({ length: 50 }, (_, at) => `${"ba".repeat(29)}xx${at}`);
  const start = process.cpuUsage();
  for (const name of [...unknown, "a_B".repeat(80_000)]) t.is(nearWord(name, known), undefined);
  const { user } = process.cpuUsage(start);
  t.true(user < 1_000_000, `${user} µs of CPU time`);
  t.is(nearWord(`ba${"ab".repeat(29)}77`, known), `${"ab".repeat(30)}77`);
});

test("valid values are accepted", async (t) => {
  t.deepEqual(await violationsOf(example, { name: "a", port: 1, allow: ["a"], limits: { cpu: 2 } }), []);
});

test("a package without settings has no values, and is not validated in a thread", async (t) => {
  using threadless = createSettingsValidator({ threadUrl: new URL("file:///nonexistent/thread.js") });
  const bare = await manifestOf("");
  t.is(settingsSchema(bare), null);
  await t.notThrowsAsync(threadless.validate(bare, {}, 0));
  t.deepEqual(await violationsOf(bare, { a: 1, "b c": 2 }, threadless), [
    { field: "values.a", description: "is not a setting of x" },
    { field: 'values["b c"]', description: "is not a setting of x" },
  ]);
});

test("values that are too long are rejected", async (t) => {
  const [violation] = await violationsOf(example, { name: "a".repeat(300_000) });
  t.regex(violation?.description ?? "", /longer than 262144 bytes/);
});

test("the public schema is plain JSON Schema", (t) => {
  const schema = settingsSchema(example);
  t.like(schema, { type: "object", title: "Example", required: ["name"], additionalProperties: false });
  const text = JSON.stringify(schema);
  for (const word of ["env", "arg", "file", "secret", "x-hint"]) t.false(text.includes(`"${word}"`), word);
  t.like(schema?.["properties"], { password: { type: "string", writeOnly: true } });
});

test("secrets are masked, and a mask written back keeps them", (t) => {
  t.deepEqual(maskSecrets(example, { name: "a", password: "p" }), { name: "a", password: "***" });
  for (const nothing of ["", null]) {
    t.deepEqual(maskSecrets(example, { name: "a", password: nothing }), { name: "a", password: nothing });
  }
  t.deepEqual(maskSecrets(example, { name: "a" }), { name: "a" });
  t.deepEqual(retainMaskedSecrets(example, { name: "b", password: "***" }, { password: "p" }), {
    name: "b",
    password: "p",
  });
  t.deepEqual(retainMaskedSecrets(example, { name: "b", password: "***" }, {}), { name: "b" });
  t.deepEqual(retainMaskedSecrets(example, { name: "***", password: "q" }, { name: "n" }), {
    name: "***",
    password: "q",
  });
});

test("a pattern with exponential backtracking is matched in linear time", async (t) => {
  const hostile = await manifestOf(
    `settings: {properties: {a: {type: string, pattern: "^(a+)+$", default: "aa", env: A}}}\n`,
  );
  const [violation] = await violationsOf(hostile, { a: `${"a".repeat(200_000)}!` });
  t.is(violation?.field, "values.a");
  t.deepEqual(await violationsOf(hostile, { a: "a".repeat(200_000) }), []);
});

for (const pattern of ["(?=a)a", "(a)\\\\1", "((a{1000}){1000}){1000}"]) {
  test(`a pattern that cannot be matched in linear time is rejected with its package: ${pattern}`, async (t) => {
    const text = `settings: {properties: {a: {type: string, pattern: "${pattern}", env: A}}}\n`;
    const error = await t.throwsAsync(manifestOf(text), { instanceOf: SvcError });
    t.is(error.reason, "package_invalid");
    t.regex(error.message, /linear time/);
  });
}

/** A random but fixed order of a and b: no automaton remembers the last 900 of them. */
function coinTosses(count: number): string {
  let state = 1;
  return Array.from({ length: count }, () => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    return state & 0x1_0000 ? "a" : "b";
  }).join("");
}

/** Stops a check after this CPU time; a check may wait for the CPU as long as a busy host needs. */
const timeoutMs = 300;
const createThread = () => new YamlThread({ threadUrl: programs.settingsThread, timeoutMs, waitMs: 120_000 });

test("a check that takes too long is aborted without blocking others, and the next one runs", async (t) => {
  using yaml = createThread();
  using impatient = createSettingsValidator({ yaml, timeoutMs });
  const slow = await manifestOf(
    `settings: {properties: {a: {type: string, pattern: "^[ab]*a[ab]{900}$", env: A}}}\n`,
  );
  let ticks = 0;
  const timer = setInterval(() => ticks++, 10);
  const error = await t.throwsAsync(impatient.validate(slow, { a: `${coinTosses(250_000)}!` }, 0), {
    instanceOf: SvcError,
  });
  clearInterval(timer);
  t.is(error.reason, "package_invalid");
  t.regex(error.message, /too slow/);
  t.true(ticks > 0, `the event loop turned ${ticks} times in between`);
  await t.notThrowsAsync(validator.validate(example, { name: "a", theme: "light" }, 0));
});

test("slow checks of one user delay another user's check only once, however many there are", async (t) => {
  using yaml = createThread();
  using impatient = createSettingsValidator({ yaml, timeoutMs });
  const values = { a: `${coinTosses(250_000)}!` };
  const slow = await Promise.all(
    [901, 902, 903, 904, 905, 906].map((times) =>
      manifestOf(`settings: {properties: {a: {type: string, pattern: "^[ab]*a[ab]{${times}}$", env: A}}}\n`),
    ),
  );
  let ended = 0;
  const others = slow.map((manifest) =>
    impatient
      .validate(manifest, values, 1)
      .catch(() => undefined)
      .finally(() => ended++),
  );
  await impatient.validate(example, { name: "a", theme: "light" }, 2);
  // The one in progress, and the next one.
  t.true(ended <= 2, String(ended));
  await Promise.all(others);
});

test("values that a command references repeatedly are rejected before it is built", async (t) => {
  const text = (count: number): string => `\${settings.name}`.repeat(count);
  const long = "a".repeat(100_000);
  for (const [rest, values] of [
    [
      `health: {exec: [${Array(60)
        .fill(`"${text(200)}"`)
        .join(", ")}]}`,
      { name: long },
    ],
    [`health: {exec: ["${text(11)}"]}`, { name: long }],
    ["health: {exec: [x]}", { name: "x", list: Array.from({ length: 9_000 }, () => "") }],
  ] as const) {
    const manifest = await manifestOf(`${rest}
settings:
  properties:
    name: {type: string, env: NAME}
    list: {type: array, items: {type: string}, arg: ["${"-".repeat(100)}", "=\${value}"]}
`);
    const [violation] = await violationsOf(manifest, { ...values });
    t.regex(violation?.description ?? "", /grow by \d+ characters, more than 1048576/);
    t.deepEqual(await violationsOf(manifest, { name: "a".repeat(80), list: ["b"] }), []);
  }
});

test("lone surrogates are rejected: no program and no address contains them", async (t) => {
  const values = { name: "\ud800", theme: "light" };
  t.deepEqual(await violationsOf(example, values), [
    { field: "values", description: "the values contain a lone surrogate (half of a character)" },
  ]);
  t.deepEqual(await violationsOf(example, { ...values, name: String.raw`\ud800 \\ud800 😀` }), []);
});

test("values with many elements in few bytes are rejected, because backups could not contain them", async (t) => {
  const manifest = await manifestOf("settings: {properties: {list: {type: array, env: LIST}}}\n");
  const [violation] = await violationsOf(manifest, { list: Array.from({ length: 70_000 }, () => 1) });
  t.deepEqual(violation, {
    field: "values",
    description: "the values contain more than 65536 elements and brackets",
  });
  t.deepEqual(await violationsOf(manifest, { list: Array.from({ length: 60_000 }, () => 1) }), []);
});

test("placeholders are expanded once, and only if they are known", (t) => {
  const scope = { data: "/d", "settings.a": "${data}" };
  t.is(expandPlaceholders("${data}/x", scope), "/d/x");
  t.is(expandPlaceholders("${settings.a}", scope), "${data}", "values are never expanded again");
  t.is(expandPlaceholders("$${data} $5 {data} ${", scope), "${data} $5 {data} ${");
  t.is(expandPlaceholders("${toString}", scope), "${toString}");
  t.deepEqual(placeholdersIn("a${b}$${c}${d.e}"), ["b", "d.e"]);
});

for (const [text, type, value] of [
  ["2", "string", "2"],
  ['{"a": 1}', "string", '{"a": 1}'],
  ["2", "integer", 2],
  ["1.10", "number", 1.1],
  ["12345678901234567890", "integer", "12345678901234567890"],
  ["true", "boolean", true],
  ["yes", "boolean", "yes"],
  ['["a"]', "array", ["a"]],
] as const) {
  test(`${text.slice(0, 30)} for a setting of type ${type} is ${JSON.stringify(value).slice(0, 30)}`, (t) => {
    t.deepEqual(valueOfText(text, type), value as never);
  });
}

test("a typed text with too many brackets is not parsed", async (t) => {
  const manifest = await manifestOf(
    "settings: {properties: {a: {type: array, items: {type: array}, env: A}}}",
  );
  const deep = `${"[".repeat(100_000)}${"]".repeat(100_000)}`;
  t.deepEqual(valuesOfTexts(manifest, { a: deep }), { a: deep });
  t.deepEqual(valuesOfTexts(manifest, { a: "[[]]" }), { a: [[]] });
});
