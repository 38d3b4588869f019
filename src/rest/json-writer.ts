/**
 * Messages to JSON text as REST has it: ProtoJSON with 64-bit integers as numbers and every field that has a meaning at
 * zero written, so that a client never has to guess a default; `optional` fields and messages are absent when unset.
 * A writer is put together once per message type, which halves the cost of `toJson` and `JSON.stringify`. The text of a
 * frozen message is kept for as long as the message is: whoever freezes one freezes all that it holds.
 */
import { ScalarType, toJson } from "@bufbuild/protobuf";
import type { DescEnum, DescField, DescMessage, Message } from "@bufbuild/protobuf";
import { base64Encode } from "@bufbuild/protobuf/wire";
import {
  FeatureSet_FieldPresence,
  TimestampSchema,
  hasCustomJsonRepresentation,
  isWrapperDesc,
} from "@bufbuild/protobuf/wkt";
import { timestampWriter } from "./timestamp-text.ts";

type WriteValue = (value: never) => string;
type WriteMessage = (message: Message) => string;
/** Writes a member with its name, or nothing. */
type WriteMember = (message: Readonly<Record<string, unknown>>) => string;

export class JsonWriter {
  readonly #writers = new Map<DescMessage, WriteMessage>();
  /** Texts of frozen messages that others hold. */
  readonly #kept = new WeakMap<Message, string>();
  #isKeeping = false;

  /** The JSON text of a message. */
  message(type: DescMessage, message: Message): string {
    return this.#writerOf(type)(message);
  }

  /** The JSON text of one field of a message; `null` when it is unset. */
  field(field: DescField, message: Message): string {
    const record = message as unknown as Readonly<Record<string, unknown>>;
    const value = field.oneof === undefined ? record[field.localName] : valueInOneof(field, record);
    return value === undefined ? "null" : this.#valueWriter(field)(value as never);
  }

  #writerOf(type: DescMessage): WriteMessage {
    let writer = this.#writers.get(type);
    if (writer === undefined) {
      // Types can hold themselves: the writer is known before its members are compiled.
      const members: WriteMember[] = [];
      writer = hasCustomJsonRepresentation(type) ? this.#wellKnownWriter(type) : objectWriter(members);
      this.#writers.set(type, writer);
      for (const field of type.fields.toSorted((a, b) => a.number - b.number))
        members.push(this.#memberWriter(field));
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
    const name = `${JSON.stringify(field.jsonName)}:`;
    const { localName } = field;
    const write = this.#valueWriter(field) as (value: unknown) => string;
    if (field.oneof !== undefined) {
      return (message) => {
        const value = valueInOneof(field, message);
        return value === undefined ? "" : name + write(value);
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
    // protobuf-es keeps a Struct in a field as plain JSON, and a wrapper as the value that it wraps.
    if (type.typeName === "google.protobuf.Struct" && field.parent.typeName !== "google.protobuf.Value")
      return JSON.stringify;
    if (isWrapperDesc(type) && field.fieldKind === "message" && field.oneof === undefined) {
      return scalarWriter(type.fields[0].scalar);
    }
    return (message: Message) =>
      Object.isFrozen(message) ? this.#frozen(type, message) : this.#writerOf(type)(message);
  }

  #frozen(type: DescMessage, message: Message): string {
    const kept = this.#kept.get(message);
    if (kept !== undefined) return kept;
    const write = this.#writerOf(type);
    // What it holds is part of its text, and not worth keeping twice.
    if (this.#isKeeping) return write(message);
    this.#isKeeping = true;
    try {
      // Copied into one piece: a text as it was put together would be gathered from its many parts each time.
      const text = Buffer.from(write(message)).toString();
      this.#kept.set(message, text);
      return text;
    } finally {
      this.#isKeeping = false;
    }
  }
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
      // Booleans and integers of any size: what they print as is their JSON.
      return String;
  }
}

function numberText(value: number): string {
  return Object.is(value, -0) ? "-0" : String(value);
}

/** Most strings need no escape, and looking is much cheaper than escaping. */
function stringText(text: string): string {
  return /["\\\p{Cc}\p{Cs}]/u.test(text) ? JSON.stringify(text) : `"${text}"`;
}

function valueInOneof(field: DescField, message: Readonly<Record<string, unknown>>): unknown {
  const chosen = message[field.oneof?.localName ?? ""] as { case?: string; value?: unknown };
  return chosen.case === field.localName ? chosen.value : undefined;
}
