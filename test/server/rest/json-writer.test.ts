/** The JSON of responses: its values, absent keys, and responses that are written once. */
import assert from "node:assert/strict";
import {
  create,
  equals,
  fromBinary,
  fromJson,
  toJson,
  type DescField,
  type DescMessage,
  type JsonValue,
  type Message,
  ScalarType,
  type MessageInitShape,
} from "@bufbuild/protobuf";
import { TimestampSchema, isWrapperDesc, NullValue } from "@bufbuild/protobuf/wkt";
import test from "ava";
import fc from "fast-check";
import { AppImageSchema, AppSettingsSchema, LogLineSchema } from "../../../gen/svc/v1/app_pb.ts";
import { BackupStorageSchema, S3LocationSchema } from "../../../gen/svc/v1/backup_pb.ts";
import { ContainerSchema, ImageSchema, VolumeSchema } from "../../../gen/svc/v1/docker_pb.ts";
import { ErrorDetailSchema } from "../../../gen/svc/v1/error_pb.ts";
import { GetMetricsHistoryResponseSchema, ListeningPortSchema } from "../../../gen/svc/v1/monitor_pb.ts";
import { ProcessSchema } from "../../../gen/svc/v1/process_pb.ts";
import { ScheduleRunSchema, ScheduleSchema } from "../../../gen/svc/v1/schedule_pb.ts";
import { JsonWriter } from "../../../src/server/rest/json-writer.ts";
import { timestampWriter } from "../../../src/server/rest/timestamp-text.ts";
import { loadTestContract } from "./support/contract.ts";
import { startRestServer } from "./support/rest-server.ts";

const contract = await loadTestContract();

const { kinds } = await loadTestContract();
const writer = new JsonWriter();

/** Arbitrary JSON that is valid for `type`. */
function jsonOf(type: DescMessage, depth: number): fc.Arbitrary<JsonValue> {
  const oneofs = new Map<unknown, DescField[]>();
  const entries: Record<string, fc.Arbitrary<JsonValue>> = {};
  for (const field of type.fields) {
    if (depth === 0 && field.message?.typeName === type.typeName) continue;
    if (field.oneof === undefined) entries[field.jsonName] = fieldJson(field, depth);
    else oneofs.set(field.oneof, [...(oneofs.get(field.oneof) ?? []), field]);
  }
  const plain = fc.record(entries, { requiredKeys: [] }) as fc.Arbitrary<Record<string, JsonValue>>;
  return [...oneofs.values()].reduce<fc.Arbitrary<Record<string, JsonValue>>>(
    (object, fields) =>
      fc
        .tuple(
          object,
          fc.oneof(
            fc.constant({}),
            ...fields.map((field) => fc.record({ [field.jsonName]: fieldJson(field, depth) })),
          ),
        )
        .map(([rest, chosen]) => ({ ...rest, ...(chosen as Record<string, JsonValue>) })),
    plain,
  );
}

function fieldJson(field: DescField, depth: number): fc.Arbitrary<JsonValue> {
  const single = singleJson(field, depth);
  if (field.fieldKind === "list") return fc.array(single, { maxLength: 3 });
  if (field.fieldKind !== "map") return single;
  const key =
    field.mapKey === ScalarType.INT32
      ? fc.integer().map(String)
      : fc.oneof(fc.string(), fc.constant("__proto__"));
  return fc
    .array(fc.tuple(key, single), { maxLength: 3 })
    .map((pairs) => Object.fromEntries(pairs) as JsonValue);
}

function singleJson(field: DescField, depth: number): fc.Arbitrary<JsonValue> {
  if (field.enum !== undefined)
    return fc.oneof(fc.constantFrom("COLOR_UNSPECIFIED", "COLOR_RED"), fc.constant(77));
  if (field.scalar !== undefined) return scalarJson(field.scalar);
  const type = field.message;
  if (isWrapperDesc(type)) return scalarJson(type.fields[0].scalar);
  switch (type.typeName) {
    case "google.protobuf.Timestamp":
      return fc
        .date({
          min: new Date("0001-01-01T00:00:00Z"),
          max: new Date("9999-12-31T23:59:59Z"),
          noInvalidDate: true,
        })
        .map((date) => date.toISOString());
    case "google.protobuf.Duration":
      return fc
        .integer({ min: -1e9, max: 1e9 })
        .map(
          (ms) =>
            `${ms < 0 ? "-" : ""}${Math.floor(Math.abs(ms) / 1000)}.${String(Math.abs(ms) % 1000).padStart(3, "0")}s`,
        );
    case "google.protobuf.FieldMask":
      return fc.constantFrom("", "a", "fooBar,baz");
    case "google.protobuf.Struct":
      return fc.dictionary(fc.string(), fc.jsonValue() as fc.Arbitrary<JsonValue>);
    case "google.protobuf.ListValue":
      return fc.array(fc.jsonValue() as fc.Arbitrary<JsonValue>);
    case "google.protobuf.Value":
      return fc.jsonValue() as fc.Arbitrary<JsonValue>;
    default:
      return jsonOf(type, depth - 1);
  }
}

function scalarJson(scalar: ScalarType): fc.Arbitrary<JsonValue> {
  switch (scalar) {
    case ScalarType.STRING:
      return fc.string({ unit: "grapheme" });
    case ScalarType.BYTES:
      return fc.uint8Array().map((bytes) => Buffer.from(bytes).toString("base64"));
    case ScalarType.BOOL:
      return fc.boolean();
    case ScalarType.DOUBLE:
      return fc.oneof(
        fc.double({ noNaN: true, noDefaultInfinity: true }),
        fc.constantFrom("NaN", "Infinity", "-Infinity"),
      );
    case ScalarType.FLOAT:
      return fc.oneof(
        fc.float({ noNaN: true, noDefaultInfinity: true }),
        fc.constantFrom("NaN", "Infinity", "-Infinity"),
      );
    case ScalarType.INT64:
    case ScalarType.SINT64:
    case ScalarType.SFIXED64:
      return fc.maxSafeInteger().map(String);
    case ScalarType.UINT64:
    case ScalarType.FIXED64:
      return fc.maxSafeNat().map(String);
    case ScalarType.UINT32:
    case ScalarType.FIXED32:
      return fc.nat({ max: 0xffffffff });
    default:
      return fc.integer();
  }
}

/** Converts ProtoJSON to the JSON of REST, with 64-bit integers as numbers. */
function asRest(type: DescMessage, json: JsonValue): JsonValue {
  if (isWrapperDesc(type)) return asRestScalar(type.fields[0].scalar, json);
  if (type.typeName.startsWith("google.protobuf.")) return json;
  return Object.fromEntries(
    Object.entries(json as Record<string, JsonValue>).map(([name, value]) => {
      const field = type.fields.find((candidate) => candidate.jsonName === name) as DescField;
      const single = (item: JsonValue): JsonValue =>
        field.message === undefined ? asRestScalar(field.scalar, item) : asRest(field.message, item);
      if (field.fieldKind === "list") return [name, (value as JsonValue[]).map(single)];
      if (field.fieldKind !== "map") return [name, single(value)];
      return [
        name,
        Object.fromEntries(
          Object.entries(value as object).map(([key, item]) => [key, single(item as JsonValue)]),
        ),
      ];
    }),
  );
}

function asRestScalar(scalar: ScalarType | undefined, json: JsonValue): JsonValue {
  const is64Bits = scalar !== undefined && [3, 4, 6, 16, 18].includes(scalar);
  return is64Bits ? Number(json) : json;
}

/** Removes negative zeros, which JSON.stringify does not write. */
function plain(json: JsonValue): unknown {
  return JSON.parse(JSON.stringify(json));
}

test("the writer writes the JSON of toJson, with 64-bit integers as numbers", (t) => {
  fc.assert(
    fc.property(jsonOf(kinds, 1), (json) => {
      const message = fromJson(kinds, json);
      const expected = asRest(kinds, toJson(kinds, message, { alwaysEmitImplicit: true }));
      assert.deepEqual(plain(JSON.parse(writer.message(kinds, message)) as JsonValue), plain(expected));
    }),
    { numRuns: 300 },
  );
  t.pass();
});

test("the written JSON parses to the same message", (t) => {
  fc.assert(
    fc.property(jsonOf(kinds, 1), (json) => {
      const message = fromJson(kinds, json);
      const again = fromJson(kinds, JSON.parse(writer.message(kinds, message)) as JsonValue);
      t.true(equals(kinds, again, message) || JSON.stringify(json).includes("NaN"));
    }),
    { numRuns: 150 },
  );
});

test("a message decoded from bytes is written like a created one", (t) => {
  t.is(writer.message(kinds, fromBinary(kinds, new Uint8Array())), writer.message(kinds, create(kinds)));
});

test("strings are escaped where JSON requires it", (t) => {
  for (const text of ['"', "\\", "\n", "\u0000", "\u007f", "\u2028", "\ud800", "😀", "</script>", "é"]) {
    const message = Object.assign(create(kinds), { text }) as Message;
    t.is((JSON.parse(writer.message(kinds, message)) as { text: string }).text, text);
    t.false(/[\u0000-\u001f]/.test(writer.message(kinds, message)));
  }
});

test("64-bit integers beyond the safe range keep all their digits", (t) => {
  const message = Object.assign(create(kinds), { uint64Value: 2n ** 64n - 1n }) as Message;
  t.regex(writer.message(kinds, message), /"uint64Value":18446744073709551615,/);
});

test("timestamps are written as toJson writes them", (t) => {
  const write = timestampWriter();
  const instant = fc.record({
    seconds: fc.bigInt({ min: -62135596800n, max: 253402300799n }),
    nanos: fc.oneof(
      fc.constant(0),
      fc.nat({ max: 999 }).map((n) => n * 1_000_000),
      fc.nat({ max: 999_999 }).map((n) => n * 1000),
      fc.nat({ max: 999_999_999 }),
    ),
  });
  fc.assert(
    fc.property(instant, (init) => {
      const timestamp = create(TimestampSchema, init);
      return JSON.parse(write(timestamp)) === toJson(TimestampSchema, timestamp);
    }),
    { numRuns: 5000 },
  );
  for (const init of [
    { seconds: 253402300800n },
    { seconds: -62135596801n },
    { nanos: -1 },
    { nanos: 1e9 },
  ]) {
    t.throws(() => write(create(TimestampSchema, init)));
  }
});

test("the slices of a long message are small, and together are its JSON", (t) => {
  const samples = Array.from({ length: 1_000 }, (_, n) => ({
    cpuPercent: n / 3,
    interfaces: Array.from({ length: 10 }, (_unused, at) => ({ name: `"eth${at}"` })),
  }));
  const message = create(GetMetricsHistoryResponseSchema, { samples, intervalSecs: 10 });
  const [type, text] = [
    GetMetricsHistoryResponseSchema,
    writer.message(GetMetricsHistoryResponseSchema, message),
  ];
  t.true(writer.isLong(type, message));
  const slices = [...writer.slices(type, message)];
  t.is(Buffer.concat(slices).toString(), text);
  t.true(slices.length > 10 && slices.every(({ length }) => length < 128 * 1024));
  const short = create(type, { samples: samples.slice(0, 10) });
  t.false(writer.isLong(type, short));
  t.is(Buffer.concat([...writer.slices(type, short)]).toString(), writer.message(type, short));
  const empty = create(type);
  t.is(Buffer.concat([...writer.slices(type, empty)]).toString(), writer.message(type, empty));
});

// A handler that returns a long message again has not changed it, so its JSON is written once.

for (const [title, length, isWrittenOnce] of [
  ["a long message that a handler returns again is written once", 20, true],
  ["a short message is written for each request", 1, false],
] as const) {
  test(title, async (t) => {
    await using server = await startRestServer("HTTP/1.1", contract.routes);
    const list = (text: string) => create(contract.kinds, { children: Array(length).fill({ text }) });
    const read = async (response: Message): Promise<unknown> => {
      server.pipeline.respond = () => response;
      const { body } = await server.send({ method: "GET", path: "/v1/kinds" });
      return (JSON.parse(body.toString()) as { children: { text: string }[] }).children[0]?.text;
    };
    const [first, second] = [list("first"), list("second")];
    t.is(await read(first), "first");
    t.is(await read(second), "second");
    const [child] = (first as unknown as { children: { text: string }[] }).children;
    (child ?? t.fail()).text = "changed";
    t.is(await read(first), isWrittenOnce ? "first" : "changed");
    const { headers } = await server.send({ method: "HEAD", path: "/v1/kinds" });
    t.true(Number(headers["content-length"]) > 0);
  });
}

// Responses that omit a key, or are an empty object, if the value does not exist or was not requested.

const cases: [title: string, type: DescMessage, absent: string[]][] = [
  ["a local storage of the operator", BackupStorageSchema, ["managed_by", "s3", "local"]],
  ["an S3 storage, whose credentials are not listed", S3LocationSchema, ["access_key", "secret_key"]],
  [
    "an operator's job that never fires and never ran",
    ScheduleSchema,
    ["managed_by", "next_run_unix", "last_run", "keep"],
  ],
  ["a running run", ScheduleRunSchema, ["ended_at", "exit_code", "http_status"]],
  ["a container without an app, listed without sizes", ContainerSchema, ["app_id", "size_bytes"]],
  ["an image that no app uses", ImageSchema, ["protected_reason"]],
  ["a volume that no app uses", VolumeSchema, ["protected_reason"]],
  ["a process outside of containers and apps", ProcessSchema, ["container", "app_id"]],
  ["a port whose process is unknown", ListeningPortSchema, ["pid", "process", "container", "app_id"]],
  ["a log line without a timestamp", LogLineSchema, ["time"]],
  [
    "an error without a payload",
    ErrorDetailSchema,
    ["token_denied", "license_required", "ambiguous", "owned_by_app"],
  ],
];
for (const [title, type, absent] of cases) {
  test(`${title} has no ${absent.join(", ")}`, (t) => {
    const json = JSON.parse(writer.message(type, create(type))) as Record<string, unknown>;
    for (const name of absent) {
      const field = type.fields.find((each) => each.name === name);
      t.truthy(field, `${type.name} has a field ${name}`);
      t.false(field!.jsonName in json, name);
    }
  });
}

test("the image of an app without one is an empty object, with each method of the writer", (t) => {
  const image = create(AppImageSchema);
  t.is(writer.message(AppImageSchema, image), "{}");
  t.is(Buffer.concat([...writer.slices(AppImageSchema, image)]).toString(), "{}");
});

test("only the image of a compose app has services", (t) => {
  const keysOf = (image: MessageInitShape<typeof AppImageSchema>) =>
    Object.keys(JSON.parse(writer.message(AppImageSchema, create(AppImageSchema, image))) as object);
  t.deepEqual(keysOf({ reference: "web:1" }), ["reference"]);
  t.deepEqual(keysOf({ services: [{ service: "db", image: { reference: "db:1" } }] }), ["services"]);
});

test("settings without a schema have a schema of null", (t) => {
  const settings = create(AppSettingsSchema, {
    schema: { kind: { case: "nullValue", value: NullValue.NULL_VALUE } },
  });
  t.is((JSON.parse(writer.message(AppSettingsSchema, settings)) as { schema: unknown }).schema, null);
});
