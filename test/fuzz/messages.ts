/** Random messages of any type, often with edge values. */
import { ScalarType, create, type DescField, type DescMessage, type Message } from "@bufbuild/protobuf";
import type { Random } from "./random.ts";

const maxDepth = 3;

const texts = [
  "",
  "hello",
  "nope",
  "a/b",
  "../../etc/passwd",
  "__proto__",
  "constructor",
  "\0",
  "\u{1f600}",
  "\u202e\u0007",
  "-1",
  "1e999",
  "2026-02-30T25:61:00Z",
  "%2f%00",
  "x".repeat(300),
  "é".repeat(2000),
] as const;
const integers = [0, 1, -1, 2 ** 31 - 1, -(2 ** 31), 255, 65536] as const;
const longs = [0n, 1n, -1n, 2n ** 63n - 1n, -(2n ** 63n)] as const;
const doubles = [0, -0, 1.5, 1e308, Number.NaN, Number.POSITIVE_INFINITY, 5e-324] as const;

export function randomText(random: Random): string {
  return random.once(4) ? random.bytes(24).toString("utf8") : random.pick(texts);
}

export function randomMessage(random: Random, desc: DescMessage, depth = 0): Message {
  const init: Record<string, unknown> = {};
  for (const member of desc.members) {
    if (random.once(3)) continue;
    if (member.kind === "oneof") {
      const field = random.pick(member.fields);
      const value = randomValue(random, field, depth);
      if (value !== undefined) init[member.localName] = { case: field.localName, value };
    } else {
      const value = randomValue(random, member, depth);
      if (value !== undefined) init[member.localName] = value;
    }
  }
  return create(desc, init);
}

/** `undefined` where the nesting ends. */
function randomValue(random: Random, field: DescField, depth: number): unknown {
  const single = (): unknown => {
    if (field.message !== undefined) {
      return depth >= maxDepth ? undefined : randomMessage(random, field.message, depth + 1);
    }
    if (field.enum !== undefined) {
      return random.once(8) ? random.integer(1000) : random.pick(field.enum.values).number;
    }
    return randomScalar(random, field.scalar);
  };
  const several = (): unknown[] =>
    Array.from({ length: random.integer(4) }, single).filter((value) => value !== undefined);
  if (field.fieldKind === "list") return several();
  if (field.fieldKind !== "map") return single();
  const key = (): string => String(randomScalar(random, field.mapKey));
  return Object.fromEntries(several().map((value) => [key(), value]));
}

function randomScalar(random: Random, type: ScalarType): unknown {
  switch (type) {
    case ScalarType.BOOL:
      return random.once(2);
    case ScalarType.STRING:
      return randomText(random);
    case ScalarType.BYTES:
      return random.bytes(64);
    case ScalarType.FLOAT:
    case ScalarType.DOUBLE:
      return type === ScalarType.FLOAT ? Math.fround(random.integer(1000)) : random.pick(doubles);
    case ScalarType.INT64:
    case ScalarType.SINT64:
    case ScalarType.SFIXED64:
      return random.pick(longs);
    case ScalarType.UINT64:
    case ScalarType.FIXED64:
      return BigInt.asUintN(64, random.pick(longs));
    case ScalarType.UINT32:
    case ScalarType.FIXED32:
      return random.pick(integers) >>> 0;
    default:
      return random.pick(integers);
  }
}
