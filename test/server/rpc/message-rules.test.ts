/** The rules of a message, and the limit of its structure. */
import { create, type DescMessage, type MessageInitShape, fromJson, toBinary } from "@bufbuild/protobuf";
import { StructSchema } from "@bufbuild/protobuf/wkt";
import test from "ava";
import { InstallAppRequestSchema, GetAppStatsRequestSchema } from "../../../gen/svc/v1/app_pb.ts";
import { PruneDockerRequestSchema } from "../../../gen/svc/v1/docker_pb.ts";
import { DeletePathsRequestSchema } from "../../../gen/svc/v1/file_pb.ts";
import { SignalProcessRequestSchema } from "../../../gen/svc/v1/process_pb.ts";
import {
  ReplaceManagedSchedulesRequestSchema,
  UpsertScheduleRequestSchema,
} from "../../../gen/svc/v1/schedule_pb.ts";
import { IssueAccessTokenRequestSchema } from "../../../gen/svc/v1/token_pb.ts";
import { SvcError } from "../../../src/errors.ts";
import { hasMoreStructure } from "../../../src/lib/json.ts";
import { MessageStructure } from "../../../src/server/rpc/connect/message-structure.ts";
import { Validator } from "../../../src/server/rpc/rules.ts";
import { quoteValue } from "../../../src/server/rpc/value-rules.ts";

const validator = new Validator();

function violationsOf<T extends DescMessage>(type: T, init: MessageInitShape<T>): string[] {
  try {
    validator.check(type, create(type, init));
    return [];
  } catch (error) {
    const { violations = [] } = (error as SvcError<"invalid_request">).payload ?? {};
    return violations.map(({ field, description }) => `${field ?? ""}: ${description ?? ""}`);
  }
}

const cases: [name: string, type: DescMessage, init: object, expected: string[]][] = [
  ["a required string that is empty", InstallAppRequestSchema, {}, ["spec: is required"]],
  ["a required string that is there", InstallAppRequestSchema, { spec: "hello" }, []],
  [
    "a string that is too long",
    InstallAppRequestSchema,
    { spec: "hello", name: "x".repeat(65) },
    ["name: must have at most 64 characters, not 65"],
  ],
  [
    "characters count, not code units",
    InstallAppRequestSchema,
    { spec: "hello", source: "🚀".repeat(64) },
    [],
  ],
  [
    "a number below its bound",
    IssueAccessTokenRequestSchema,
    { ttlSecs: 0 },
    ["ttl_secs: must be at least 1, not 0"],
  ],
  [
    "a number above its bound",
    IssueAccessTokenRequestSchema,
    { ttlSecs: 86401 },
    ["ttl_secs: must be at most 86400, not 86401"],
  ],
  ["an optional number that is absent", IssueAccessTokenRequestSchema, {}, []],
  [
    "a required bool that is not said",
    PruneDockerRequestSchema,
    { target: "images" },
    ["danglingOnly: is required"],
  ],
  ["a required bool that is false", PruneDockerRequestSchema, { target: "images", danglingOnly: false }, []],
  [
    "a word outside of its set",
    SignalProcessRequestSchema,
    { pid: 7, signal: "segv" },
    ['signal: must be one of term, kill, hup, int, stop, cont, usr1, usr2, not "segv"'],
  ],
  ["an empty required list", DeletePathsRequestSchema, { paths: [] }, ["paths: is required"]],
  [
    "too many entries",
    GetAppStatsRequestSchema,
    { ids: Array.from({ length: 1001 }, () => "a") },
    ["ids: must have at most 1000 entries, not 1001"],
  ],
  [
    "an entry of a list",
    GetAppStatsRequestSchema,
    { ids: ["a", ""] },
    ["ids[1]: must have at least 1 characters, not 0"],
  ],
  [
    "one violation for each of several fields",
    InstallAppRequestSchema,
    { name: "x".repeat(65), tag: "y".repeat(256) },
    [
      "spec: is required",
      "name: must have at most 64 characters, not 65",
      "tag: must have at most 255 characters, not 256",
    ],
  ],
];

for (const [name, type, init, expected] of cases) {
  test(name, (t) => t.deepEqual(violationsOf(type, init as never), expected));
}

const job = { trigger: "hourly", action: { type: "http", url: "https://example.org/" } };

test("a nested message is named by its path", (t) => {
  const found = violationsOf(UpsertScheduleRequestSchema, {
    id: "nightly",
    ...job,
    action: { ...job.action, url: "ftp://example.org" },
  });
  t.true(
    found.some((line) => line.includes('url: must be an http or https URL, not "ftp://example.org"')),
    found.join("\n"),
  );
});

test("map keys and values are named by their key", (t) => {
  const found = violationsOf(ReplaceManagedSchedulesRequestSchema, {
    managedBy: "platform",
    schedules: [
      { id: "a", ...job, action: { ...job.action, headers: { "bad key": "x", Accept: "y".repeat(8193) } } },
    ],
  });
  t.true(
    found.some((line) =>
      line.startsWith('schedules[0].action.headers["bad key"]: must be the name of an HTTP header'),
    ),
    found.join("\n"),
  );
  t.true(
    found.includes('schedules[0].action.headers["Accept"]: must have at most 8192 characters, not 8193'),
    found.join("\n"),
  );
});

test("patterns match the whole value", (t) => {
  const found = violationsOf(UpsertScheduleRequestSchema, { id: "ok\nevil", ...job });
  t.true(
    found.some((line) =>
      line.startsWith(
        "id: must be 1 to 64 letters, digits, '.', '_' and '-', but not '.' or '..', not \"ok\\nevil\"",
      ),
    ),
    found.join("\n"),
  );
});

test("a response stays small whatever is sent", (t) => {
  const ids = Array.from({ length: 1000 }, () => "");
  t.is(violationsOf(GetAppStatsRequestSchema, { ids }).length, 64);
});

test("check throws invalid_request with the violations as payload", (t) => {
  const error = t.throws(() => validator.check(InstallAppRequestSchema, create(InstallAppRequestSchema)), {
    instanceOf: SvcError,
  });
  t.is(error.code, "invalid_argument");
  t.deepEqual((error as SvcError<"invalid_request">).payload, {
    violations: [{ field: "spec", description: "is required" }],
  });
});

const shown: [value: unknown, expected: string][] = [
  ["plain", '"plain"'],
  ["a\u001b[31mred\u0007", '"a\\u001b[31mred\\u0007"'],
  ["\u009b\u202e\u2028", '"\\u009b\\u202e\\u2028"'],
  ["x".repeat(65), `"${"x".repeat(64)}…"`],
  [12n, "12"],
  [new Uint8Array(3), "3 bytes"],
];
for (const [value, expected] of shown) {
  test(`a message shows ${expected}`, (t) => t.is(quoteValue(value), expected));
}

// Elements that are counted in a message before it is parsed.

const structure = new MessageStructure();
const settings = (json: object): Uint8Array =>
  toBinary(InstallAppRequestSchema, fromJson(InstallAppRequestSchema, { settings: json } as never));

for (const [what, desc, bytes, count] of [
  ["nothing", InstallAppRequestSchema, new Uint8Array(), 0],
  ["text", InstallAppRequestSchema, settings({ a: "x".repeat(100_000) }), 2 + 2 + 1 + 2 + 1],
  [
    "empty lists",
    StructSchema,
    toBinary(StructSchema, fromJson(StructSchema, { a: [[], []] })),
    2 + 1 + 2 + 2 + 2 * 4,
  ],
  [
    "messages",
    ReplaceManagedSchedulesRequestSchema,
    toBinary(
      ReplaceManagedSchedulesRequestSchema,
      create(ReplaceManagedSchedulesRequestSchema, { managedBy: "m", schedules: [{ id: "a" }, {}] }),
    ),
    1 + 3 + 2,
  ],
  ["fields that nobody knows", InstallAppRequestSchema, Buffer.from("f80100f80100f80100", "hex"), 3],
] as const) {
  test(`a binary message of ${what} is counted`, (t) => {
    t.false(structure.hasMore(desc, bytes, count));
    if (count > 0) t.true(structure.hasMore(desc, bytes, count - 1));
  });
}

test("an invalid message has no count above its size: its parser rejects it", (t) => {
  for (const bytes of ["0aff", "07", "0affffffffff0f", "0b0b0b"])
    t.false(structure.hasMore(InstallAppRequestSchema, Buffer.from(bytes, "hex"), 100), bytes);
  // Deeper than protobuf-es goes: the counter does not exhaust the stack.
  let deep: Buffer = Buffer.alloc(0);
  for (let level = 0; level < 5_000; level++)
    deep = Buffer.concat([Buffer.from("32", "hex"), varint(deep.length), deep]);
  t.false(structure.hasMore(StructSchema, deep, 100_000));
});

function varint(value: number): Buffer {
  const bytes = [];
  for (let left = value; bytes.length === 0 || left > 0; left >>>= 7)
    bytes.push((left & 0x7f) | (left > 0x7f ? 0x80 : 0));
  return Buffer.from(bytes);
}

for (const [json, count] of [
  ['""', 2],
  ["[]", 2],
  ['{"a":1,"b":[null,true]}', 12],
  [String.raw`"[{,:}]\"[[\\"`, 2],
  [String.raw`["\\\"[",","]`, 7],
  ['"[[[[', 0],
] as const) {
  test(`JSON structure is counted outside of strings: ${json}`, (t) => {
    t.false(hasMoreStructure(json, count));
    if (count > 0) t.true(hasMoreStructure(json, count - 1));
  });
}
