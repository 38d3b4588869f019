/**
 * Explains why JSON is not valid for a message. `fromJson` stops at the first problem and uses terms of protobuf; this reports
 * every field in terms of the API. It runs only after `fromJson` has failed.
 */
import { ScalarType, fromJson, type DescField, type DescMessage, type JsonValue } from "@bufbuild/protobuf";
import { hasCustomJsonRepresentation } from "@bufbuild/protobuf/wkt";
import type { FieldViolation } from "../../errors.ts";
import { isObject } from "../../lib/json.ts";

/** Limits the size of the response to a bad request. */
const maxViolations = 50;
const maxShownCharacters = 60;
const maxShownNames = 16;

/** One violation for each field of `json` that is not valid for `message`, at least 1 and at most 50. */
export function explainJson(message: DescMessage, json: JsonValue): FieldViolation[] {
  const violations = [...explainMessage(message, json, "").take(maxViolations)];
  return violations.length > 0
    ? violations
    : [{ field: "", description: `the body is not a valid ${message.name}` }];
}

/** The field of `message` with this JSON name or name in the contract. */
export function findField(message: DescMessage, name: string): DescField | undefined {
  return message.fields.find((field) => field.jsonName === name || field.name === name);
}

/** A violation for a name that `message` does not have. */
export function unknownField(message: DescMessage, field: string): FieldViolation {
  const known = message.fields.map((candidate) => candidate.jsonName);
  if (known.length === 0) return { field, description: "unknown field; the message has no fields" };
  const hint = known.length > maxShownNames ? "" : `; known fields: ${known.join(", ")}`;
  return { field, description: `unknown field${hint}` };
}

function* explainMessage(message: DescMessage, json: JsonValue, path: string): Generator<FieldViolation> {
  if (hasCustomJsonRepresentation(message)) {
    if (!isValid(message, json))
      yield { field: path, description: `${show(json)} must be ${expectedOf(message)}` };
    return;
  }
  if (!isObject(json)) {
    yield { field: path, description: `${show(json)} must be an object` };
    return;
  }
  const setBy = new Map<object, string>();
  for (const [key, value] of Object.entries(json)) {
    const at = path === "" ? key : `${path}.${key}`;
    const field = findField(message, key);
    if (field === undefined) {
      yield unknownField(message, at);
      continue;
    }
    const group = field.oneof ?? field;
    const other = setBy.get(group);
    if (other !== undefined)
      yield { field: at, description: `only one of "${other}" and "${key}" may be set` };
    setBy.set(group, key);
    if (value !== null) yield* explainField(field, value, at);
  }
}

function* explainField(field: DescField, value: JsonValue, path: string): Generator<FieldViolation> {
  if (field.fieldKind === "list") {
    if (!Array.isArray(value)) {
      yield { field: path, description: `${show(value)} must be a list` };
      return;
    }
    for (const [index, item] of value.entries())
      yield* explainValue(field, item, `${path}[${index}]`, [item]);
  } else if (field.fieldKind === "map") {
    if (!isObject(value)) {
      yield { field: path, description: `${show(value)} must be an object` };
      return;
    }
    for (const [key, item] of Object.entries(value)) {
      yield* explainValue(field, item, `${path}[${JSON.stringify(key)}]`, { [key]: item });
    }
  } else {
    yield* explainValue(field, value, path, value);
  }
}

/** @param whole value of the field if it contained only `value` */
function* explainValue(
  field: DescField,
  value: JsonValue,
  path: string,
  whole: JsonValue,
): Generator<FieldViolation> {
  if (field.message !== undefined) {
    yield* explainMessage(field.message, value, path);
  } else if (!isValid(field.parent, { [field.jsonName]: whole })) {
    // A secret must not appear in the message.
    const shown = field.proto.options?.debugRedact === true ? "the value" : show(value);
    yield { field: path, description: `${shown} must be ${expectedOf(field)}` };
  }
}

function isValid(message: DescMessage, json: JsonValue): boolean {
  try {
    fromJson(message, json);
    return true;
  } catch {
    return false;
  }
}

function expectedOf(type: DescField | DescMessage): string {
  if (type.kind === "message") return expectedMessages[type.typeName] ?? `a ${type.typeName}`;
  if (type.enum !== undefined) return `one of ${type.enum.values.map((value) => value.name).join(", ")}`;
  return type.scalar === undefined ? "an object" : expectedScalars[type.scalar];
}

const expectedMessages: Readonly<Record<string, string>> = {
  "google.protobuf.Timestamp": "an RFC 3339 time such as 2025-01-31T12:00:00Z",
  "google.protobuf.Duration": "a duration in seconds such as 1.5s",
  "google.protobuf.FieldMask": "field names in camelCase, separated by commas",
  "google.protobuf.Struct": "an object",
  "google.protobuf.ListValue": "a list",
};

const int32 = "a whole number from -2147483648 to 2147483647";
const uint32 = "a whole number from 0 to 4294967295";
const int64 = "a whole number that fits into 64 bits";
const uint64 = "a whole number from 0 that fits into 64 bits";
const expectedScalars: Readonly<Record<ScalarType, string>> = {
  [ScalarType.DOUBLE]: "a number",
  [ScalarType.FLOAT]: "a number that fits into 32 bits",
  [ScalarType.INT64]: int64,
  [ScalarType.UINT64]: uint64,
  [ScalarType.INT32]: int32,
  [ScalarType.FIXED64]: uint64,
  [ScalarType.FIXED32]: uint32,
  [ScalarType.BOOL]: "true or false",
  [ScalarType.STRING]: "a string of valid Unicode",
  [ScalarType.BYTES]: "base64",
  [ScalarType.UINT32]: uint32,
  [ScalarType.SFIXED32]: int32,
  [ScalarType.SFIXED64]: int64,
  [ScalarType.SINT32]: int32,
  [ScalarType.SINT64]: int64,
};

function show(json: JsonValue): string {
  const text = JSON.stringify(json);
  return text.length > maxShownCharacters ? `${text.slice(0, maxShownCharacters)}…` : text;
}
