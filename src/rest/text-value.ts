/** Values that arrive as text, in a path or a query: what they are in JSON, by the type of their field. */
import {
  ScalarType,
  type DescEnum,
  type DescField,
  type DescMessage,
  type JsonValue,
} from "@bufbuild/protobuf";
import { isWrapperDesc } from "@bufbuild/protobuf/wkt";

/** A text that is no value of its type; the message names the text and what is expected. */
export class TextValueError extends Error {}

/** What a single value of a field looks like as text. */
export type TextKind =
  | { readonly kind: "scalar"; readonly scalar: ScalarType }
  | { readonly kind: "enum"; readonly enum: DescEnum }
  | { readonly kind: "string" };

const stringMessages = new Set([
  "google.protobuf.Timestamp",
  "google.protobuf.Duration",
  "google.protobuf.FieldMask",
]);

/** How the values of `field` (of a list: its items) are written as text; undefined for messages and maps, which cannot be. */
export function textKindOf(field: DescField): TextKind | undefined {
  if (field.fieldKind === "map") return undefined;
  if (field.enum !== undefined) return { kind: "enum", enum: field.enum };
  if (field.scalar !== undefined) return { kind: "scalar", scalar: field.scalar };
  return textKindOfMessage(field.message);
}

function textKindOfMessage(message: DescMessage): TextKind | undefined {
  if (isWrapperDesc(message)) return { kind: "scalar", scalar: message.fields[0].scalar };
  return stringMessages.has(message.typeName) ? { kind: "string" } : undefined;
}

/**
 * The JSON value of a text.
 * @throws TextValueError
 */
export function jsonFromText(kind: TextKind, text: string): JsonValue {
  if (kind.kind === "string") return text;
  if (kind.kind === "enum") return enumFromText(kind.enum, text);
  switch (kind.scalar) {
    case ScalarType.STRING:
      return text;
    case ScalarType.BYTES:
      // A plus of standard base64 reads as a space in a query; base64 has no spaces.
      return text.replaceAll(" ", "+");
    case ScalarType.BOOL:
      if (text === "true" || text === "1") return true;
      if (text === "false" || text === "0") return false;
      throw new TextValueError(`"${text}" must be true, false, 1 or 0`);
    case ScalarType.DOUBLE:
    case ScalarType.FLOAT:
      if (/^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$/.test(text)) return text;
      if (text === "NaN" || text === "Infinity" || text === "-Infinity") return text;
      throw new TextValueError(`"${text}" must be a number`);
    default:
      if (/^(?:0|-?[1-9][0-9]*)$/.test(text)) return text;
      throw new TextValueError(`"${text}" must be a whole number`);
  }
}

function enumFromText(descriptor: DescEnum, text: string): JsonValue {
  if (/^(?:0|-?[1-9][0-9]*)$/.test(text)) return Number(text);
  const value = descriptor.values.find((candidate) => candidate.name === text);
  if (value !== undefined) return value.name;
  throw new TextValueError(
    `"${text}" must be one of ${descriptor.values.map((candidate) => candidate.name).join(", ")}`,
  );
}
