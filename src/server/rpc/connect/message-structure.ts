/** Counts the fields of a binary message without parsing it; the count determines the cost of parsing. */
import type { DescMessage } from "@bufbuild/protobuf";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";

/** The limit of protobuf-es for nested messages. */
const maxDepth = 100;

/** Message fields by number. */
type Shape = Map<number, Shape>;

export class MessageStructure {
  readonly #shapes = new Map<DescMessage, Shape>();

  /** Whether it has more than `most` fields; message fields count twice. `false` for invalid messages. */
  hasMore(desc: DescMessage, bytes: Uint8Array, most: number): boolean {
    try {
      return countDown(new BinaryReader(bytes), bytes.length, this.#shapeOf(desc), most, 1) < 0;
    } catch {
      return false;
    }
  }

  #shapeOf(desc: DescMessage): Shape {
    const known = this.#shapes.get(desc);
    if (known !== undefined) return known;
    const shape: Shape = new Map();
    this.#shapes.set(desc, shape);
    for (const field of desc.fields) {
      if (field.message === undefined) {
        if (field.fieldKind === "map") shape.set(field.number, new Map());
      } else if (field.fieldKind === "map") {
        shape.set(field.number, new Map([[mapValue, this.#shapeOf(field.message)]]));
      } else {
        shape.set(field.number, this.#shapeOf(field.message));
      }
    }
    return shape;
  }
}

/** Field number of the value in a map entry; the key is 1. */
const mapValue = 2;

/** @returns how many of `remaining` are left at `end`; negative if there are more fields */
function countDown(
  reader: BinaryReader,
  end: number,
  shape: Shape,
  remaining: number,
  depth: number,
): number {
  while (reader.pos < end && remaining >= 0) {
    const [number, wireType] = reader.tag();
    const inner = wireType === WireType.LengthDelimited && depth < maxDepth ? shape.get(number) : undefined;
    remaining--;
    if (inner === undefined) {
      reader.skip(wireType, number);
    } else {
      const size = reader.uint32();
      remaining = countDown(reader, reader.pos + size, inner, remaining - 1, depth + 1);
    }
  }
  return remaining;
}
