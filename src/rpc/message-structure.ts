/** How much there is in a binary message, told without making anything of it: that is what parsing it costs. */
import type { DescMessage } from "@bufbuild/protobuf";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";

/** As protobuf-es has it, which refuses what is nested deeper. */
const maxDepth = 100;

/** The fields that are messages, by number. */
type Shape = Map<number, Shape>;

export class MessageStructure {
  readonly #shapes = new Map<DescMessage, Shape>();

  /** Whether there are more than `most` fields in it, those that are messages counted twice; `false` for what is no message. */
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

/** Number of the value's field in an entry of a map; the key's is 1. */
const mapValue = 2;

/** @returns how many of `left` are left at `end`, less than none when there are more fields */
function countDown(reader: BinaryReader, end: number, shape: Shape, left: number, depth: number): number {
  while (reader.pos < end && left >= 0) {
    const [number, wireType] = reader.tag();
    const inner = wireType === WireType.LengthDelimited && depth < maxDepth ? shape.get(number) : undefined;
    left--;
    if (inner === undefined) {
      reader.skip(wireType, number);
    } else {
      const size = reader.uint32();
      left = countDown(reader, reader.pos + size, inner, left - 1, depth + 1);
    }
  }
  return left;
}
