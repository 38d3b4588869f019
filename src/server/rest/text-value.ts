/** Converts text of a path or a query to JSON by the type of its field. */
import {
  ScalarType,
  type DescEnum,
  type DescField,
  type DescMessage,
  type JsonValue,
} from "@bufbuild/protobuf";
import { isWrapperDesc } from "@bufbuild/protobuf/wkt";

/** A text that is not valid for its type. The message names the text and the expected value. */
export class TextValueError extends Error {}

/** How a single value of a field is written as text. */
export type TextKind =
  | { readonly kind: "scalar"; readonly scalar: ScalarType }
  | { readonly kind: "enum"; readonly enum: DescEnum }
  | { readonly kind: "string" };

const stringMessages = new Set([
  "google.protobuf.Timestamp",
  "google.protobuf.Duration",
  "google.protobuf.FieldMask",
]);

/** How values of `field`, or items of a list, are written as text; undefined for messages and maps, which have no text form. */
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
      // In a query, the plus of standard base64 is decoded as a space; base64 itself has no spaces.
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
