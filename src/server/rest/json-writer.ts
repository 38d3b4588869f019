/**
 * Writes messages as the JSON of REST: ProtoJSON, but with 64-bit integers as numbers, and with every field without presence,
 * so that clients need no defaults. `optional` fields and messages are absent if they are not set.
 * A writer is compiled once per message type, which takes half the time of `toJson` and `JSON.stringify`.
 */
import {
  ScalarType,
  getOption,
  toJson,
  type DescEnum,
  type DescField,
  type DescMessage,
  type Message,
} from "@bufbuild/protobuf";
import { base64Encode } from "@bufbuild/protobuf/wire";
import {
  FeatureSet_FieldPresence,
  TimestampSchema,
  hasCustomJsonRepresentation,
  isWrapperDesc,
} from "@bufbuild/protobuf/wkt";
import { rules } from "../../../gen/svc/v1/rules_pb.ts";
import { timestampWriter } from "./timestamp-text.ts";

type WriteValue = (value: never) => string;
type WriteMessage = (message: Message) => string;
/** Writes a member with its name, or nothing. */
type WriteMember = (message: Readonly<Record<string, unknown>>) => string;
/** A field with its writer, and the item type of a list of messages. */
interface Member {
  readonly write: WriteMember;
  readonly field: DescField;
  readonly itemType: DescMessage | undefined;
}

/** Number of messages from which a list is written in slices. */
const longList = 20;
/** Length of a slice in characters; writing one takes a few milliseconds. */
const sliceLength = 64 << 10;

export class JsonWriter {
  readonly #writers = new Map<DescMessage, WriteMessage>();
  /** Members of the types that were written in slices. */
  readonly #members = new Map<DescMessage, readonly Member[]>();

  /** The JSON text of a message. */
  message(type: DescMessage, message: Message): string {
    return this.#writerOf(type)(message);
  }

  /** Whether a message has a list that should be written in slices. */
  isLong(type: DescMessage, message: Message): boolean {
    if (hasCustomJsonRepresentation(type)) return false;
    const record = recordOf(message);
    return this.#membersOf(type).some(({ field, itemType }) => {
      const items = itemType === undefined ? undefined : record[field.localName];
      return Array.isArray(items) && items.length >= longList;
    });
  }

  /** The JSON of a long message as UTF-8 in slices. The caller can do other work between two slices. */
  *slices(type: DescMessage, message: Message): Generator<Buffer, void> {
    const record = recordOf(message);
    let text = "{";
    let separator = "";
    for (const { write, field, itemType } of this.#membersOf(type)) {
      const items = itemType === undefined ? undefined : record[field.localName];
      if (itemType === undefined || !Array.isArray(items)) {
        const member = write(record);
        if (member === "") continue;
        text += separator + member;
      } else {
        if (items.length === 0 && write(record) === "") continue;
        text += `${separator}${memberName(field)}[`;
        for (const [at, item] of (items as Message[]).entries()) {
          text += (at === 0 ? "" : ",") + this.message(itemType, item);
          if (text.length < sliceLength) continue;
          yield Buffer.from(text);
          text = "";
        }
        text += "]";
      }
      separator = ",";
    }
    yield Buffer.from(`${text}}`);
  }

  /** The JSON text of one field of a message; `null` if it is not set. */
  field(field: DescField, message: Message): string {
    const record = recordOf(message);
    const value = field.oneof === undefined ? record[field.localName] : valueInOneof(field, record);
    return value === undefined ? "null" : this.#valueWriter(field)(value as never);
  }

  #writerOf(type: DescMessage): WriteMessage {
    let writer = this.#writers.get(type);
    if (writer === undefined) {
      // Set the writer before compiling its members, because a type can contain itself.
      const members: WriteMember[] = [];
      writer = hasCustomJsonRepresentation(type) ? this.#wellKnownWriter(type) : objectWriter(members);
      this.#writers.set(type, writer);
      for (const field of inOrder(type)) members.push(this.#memberWriter(field));
    }
    return writer;
  }

  #wellKnownWriter(type: DescMessage): WriteMessage {
    if (isWrapperDesc(type)) {
      const write = scalarWriter(type.fields[0].scalar) as (value: unknown) => string;
      return (message) => write((message as Message & { value: unknown }).value);
    }
    if (type.typeName === TimestampSchema.typeName) return timestampWriter() as WriteMessage;
    return (message) => JSON.stringify(toJson(type, message));
  }

  #memberWriter(field: DescField): WriteMember {
    const name = memberName(field);
    const { localName } = field;
    const write = this.#valueWriter(field) as (value: unknown) => string;
    if (field.oneof !== undefined) {
      return (message) => {
        const value = valueInOneof(field, message);
        return value === undefined ? "" : name + write(value);
      };
    }
    if (getOption(field, rules).omitEmpty === true) {
      return (message) => {
        const items = message[localName] as readonly unknown[];
        return items.length === 0 ? "" : name + write(items);
      };
    }
    if (field.presence === FeatureSet_FieldPresence.IMPLICIT)
      return (message) => name + write(message[localName]);
    return (message) => {
      const value = message[localName];
      return value === undefined || !Object.hasOwn(message, localName) ? "" : name + write(value);
    };
  }

  #valueWriter(field: DescField): WriteValue {
    switch (field.fieldKind) {
      case "list":
        return listWriter(this.#singleWriter(field));
      case "map":
        return mapWriter(this.#singleWriter(field));
      default:
        return this.#singleWriter(field);
    }
  }

  #singleWriter(field: DescField): WriteValue {
    if (field.enum !== undefined) return enumWriter(field.enum);
    if (field.scalar !== undefined) return scalarWriter(field.scalar);
    const type = field.message;
    // protobuf-es stores a Struct in a field as plain JSON, and a wrapper as the wrapped value.
    if (type.typeName === "google.protobuf.Struct" && field.parent.typeName !== "google.protobuf.Value")
      return JSON.stringify;
    if (isWrapperDesc(type) && field.fieldKind === "message" && field.oneof === undefined) {
      return scalarWriter(type.fields[0].scalar);
    }
    return (message: Message) => this.#writerOf(type)(message);
  }

  #membersOf(type: DescMessage): readonly Member[] {
    let members = this.#members.get(type);
    if (members === undefined) {
      members = inOrder(type).map((field) => ({
        write: this.#memberWriter(field),
        field,
        itemType: itemTypeOf(field),
      }));
      this.#members.set(type, members);
    }
    return members;
  }
}

function inOrder(type: DescMessage): DescField[] {
  return type.fields.toSorted((a, b) => a.number - b.number);
}

/** The message type of a list; undefined for types with a special JSON form. */
function itemTypeOf(field: DescField): DescMessage | undefined {
  const type = field.fieldKind === "list" ? field.message : undefined;
  return type === undefined || hasCustomJsonRepresentation(type) ? undefined : type;
}

function memberName(field: DescField): string {
  return `${JSON.stringify(field.jsonName)}:`;
}

function objectWriter(members: readonly WriteMember[]): WriteMessage {
  return (message) => {
    let text = "{";
    for (const write of members) {
      const member = write(message);
      if (member !== "") text += text === "{" ? member : `,${member}`;
    }
    return `${text}}`;
  };
}

function listWriter(write: WriteValue): WriteValue {
  return (items: readonly never[]) => `[${items.map(write).join(",")}]`;
}

function mapWriter(write: WriteValue): WriteValue {
  return (entries: Readonly<Record<string, never>>) => {
    let text = "{";
    for (const key of Object.keys(entries)) {
      text += `${text === "{" ? "" : ","}${stringText(key)}:${write(entries[key] as never)}`;
    }
    return `${text}}`;
  };
}

function enumWriter(type: DescEnum): WriteValue {
  if (type.typeName === "google.protobuf.NullValue") return () => "null";
  const names = new Map(type.values.map((value) => [value.number, JSON.stringify(value.name)]));
  return (value: number) => names.get(value) ?? String(value);
}

function scalarWriter(scalar: ScalarType): WriteValue {
  switch (scalar) {
    case ScalarType.STRING:
      return stringText;
    case ScalarType.BYTES:
      return (bytes: Uint8Array) => `"${base64Encode(bytes)}"`;
    case ScalarType.DOUBLE:
    case ScalarType.FLOAT:
      return (value: number) => (Number.isFinite(value) ? numberText(value) : `"${value}"`);
    default:
      // Booleans and integers of any size.
      return String;
  }
}

function numberText(value: number): string {
  return Object.is(value, -0) ? "-0" : String(value);
}

/** Most strings need no escapes, and the check is much faster than escaping. */
function stringText(text: string): string {
  return /["\\\p{Cc}\p{Cs}]/u.test(text) ? JSON.stringify(text) : `"${text}"`;
}

function valueInOneof(field: DescField, message: Readonly<Record<string, unknown>>): unknown {
  const chosen = message[field.oneof?.localName ?? ""] as { case?: string; value?: unknown };
  return chosen.case === field.localName ? chosen.value : undefined;
}

/** The fields of a message by their local names. */
function recordOf(message: Message): Readonly<Record<string, unknown>> {
  return message;
}
