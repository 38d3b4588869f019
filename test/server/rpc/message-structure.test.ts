/** Elements that are counted in a message before it is parsed. */
import { create, fromJson, toBinary } from "@bufbuild/protobuf";
import { StructSchema } from "@bufbuild/protobuf/wkt";
import test from "ava";
import { InstallAppRequestSchema } from "../../../gen/svc/v1/app_pb.ts";
import { ReplaceManagedSchedulesRequestSchema } from "../../../gen/svc/v1/schedule_pb.ts";
import { MessageStructure } from "../../../src/server/rpc/connect/message-structure.ts";
import { hasMoreStructure } from "../../../src/lib/json.ts";

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
