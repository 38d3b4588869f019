/**
 * JSON Schemas of messages and fields, as REST reads and writes them. 64-bit integers are JSON numbers. `oneof` is expressed with
 * `not`, so that all properties stay in one place. Well-known types have the schema of their JSON form.
 */
import { ScalarType, type DescField, type DescMessage } from "@bufbuild/protobuf";
import { FeatureSet_FieldPresence, isWrapperDesc } from "@bufbuild/protobuf/wkt";
import type { FieldRules } from "../../gen/svc/v1/rules_pb.ts";
import type { ContractOptions } from "./contract-options.ts";
import type { Schema } from "./openapi-document.ts";

const wellKnown: Readonly<Record<string, Schema>> = {
  "google.protobuf.Timestamp": { type: "string", format: "date-time" },
  "google.protobuf.Duration": { type: "string", pattern: "^-?[0-9]+(?:\\.[0-9]{1,9})?s$" },
  "google.protobuf.FieldMask": { type: "string" },
  "google.protobuf.Struct": { type: "object", additionalProperties: true },
  "google.protobuf.Value": {},
  "google.protobuf.ListValue": { type: "array", items: {} },
  "google.protobuf.Empty": { type: "object", additionalProperties: false },
};

const int32: Schema = { type: "integer", format: "int32", minimum: -(2 ** 31), maximum: 2 ** 31 - 1 };
const uint32: Schema = { type: "integer", minimum: 0, maximum: 2 ** 32 - 1 };
/** Range in which JSON numbers are exact everywhere (RFC 8259, section 6). All values of the contract are in it. */
const maxExact = Number.MAX_SAFE_INTEGER;
const int64: Schema = { type: "integer", format: "int64", minimum: -maxExact, maximum: maxExact };
const uint64: Schema = { type: "integer", format: "int64", minimum: 0, maximum: maxExact };
const scalars: Readonly<Record<ScalarType, Schema>> = {
  [ScalarType.DOUBLE]: { type: "number", format: "double" },
  [ScalarType.FLOAT]: { type: "number", format: "float" },
  [ScalarType.INT64]: int64,
  [ScalarType.UINT64]: uint64,
  [ScalarType.INT32]: int32,
  [ScalarType.FIXED64]: uint64,
  [ScalarType.FIXED32]: uint32,
  [ScalarType.BOOL]: { type: "boolean" },
  [ScalarType.STRING]: { type: "string" },
  [ScalarType.BYTES]: { type: "string", contentEncoding: "base64" },
  [ScalarType.UINT32]: uint32,
  [ScalarType.SFIXED32]: int32,
  [ScalarType.SFIXED64]: int64,
  [ScalarType.SINT32]: int32,
  [ScalarType.SINT64]: int64,
};

/** Use of a schema. A response always has its fields without presence, so that clients need no defaults. */
export type Direction = "request" | "response";

export class SchemaWriter {
  readonly #options: ContractOptions;
  readonly #describe: (field: DescField) => string | undefined;

  /** @param describe returns the comment of a field in the contract */
  constructor(options: ContractOptions, describe: (field: DescField) => string | undefined) {
    this.#options = options;
    this.#describe = describe;
  }

  /** Schema of an object with some fields of a message. */
  object(fields: readonly DescField[], direction: Direction): Schema {
    const schema: Schema = { type: "object" };
    if (fields.length > 0) {
      schema.properties = Object.fromEntries(fields.map((field) => [field.jsonName, this.field(field)]));
    }
    const required = fields
      .filter((field) => this.#isRequired(field, direction))
      .map((field) => field.jsonName);
    if (required.length > 0) schema.required = required;
    schema.additionalProperties = false;
    const choices = exclusivePairs(fields);
    if (choices.length > 0) schema.allOf = choices.map((pair) => ({ not: { required: pair } }));
    return schema;
  }

  /** Schema of a field's value, with its rules and its description. */
  field(field: DescField): Schema {
    const rules = this.#options.rules(field);
    const description = this.#describe(field);
    const schema = this.#value(field, rules);
    return {
      ...schema,
      ...(description !== undefined && { description }),
      ...(this.#options.isOutputOnly(field) && { readOnly: true }),
    };
  }

  isRequired(field: DescField): boolean {
    return this.#options.isRequired(field);
  }

  #isRequired(field: DescField, direction: Direction): boolean {
    if (this.isRequired(field)) return true;
    if (direction === "request" && this.#options.rules(field)?.stated === true) return true;
    return (
      direction === "response" &&
      field.presence === FeatureSet_FieldPresence.IMPLICIT &&
      field.oneof === undefined &&
      this.#options.rules(field)?.omitEmpty !== true
    );
  }

  #value(field: DescField, rules: FieldRules | undefined): Schema {
    const isRequired = this.isRequired(field);
    if (field.fieldKind === "list") {
      const schema: Schema = { type: "array", items: withRules(singleSchema(field), rules?.items, false) };
      const minItems = rules?.minItems ?? (isRequired ? 1 : undefined);
      if (minItems !== undefined) schema.minItems = minItems;
      if (rules?.maxItems !== undefined) schema.maxItems = rules.maxItems;
      return schema;
    }
    if (field.fieldKind === "map") {
      const schema: Schema = {
        type: "object",
        additionalProperties: withRules(singleSchema(field), rules?.items, false),
      };
      const keys = withRules({}, rules?.keys, false);
      if (Object.keys(keys).length > 0) schema.propertyNames = keys;
      if (rules?.minItems !== undefined) schema.minProperties = rules.minItems;
      if (rules?.maxItems !== undefined) schema.maxProperties = rules.maxItems;
      return schema;
    }
    const schema = withRules(singleSchema(field), rules, isRequired);
    // Where empty means absent, the pattern does not apply.
    const isOptional =
      rules?.mayBeEmpty === true || (!isRequired && field.presence === FeatureSet_FieldPresence.IMPLICIT);
    if (isOptional && rules?.pattern !== undefined) schema.pattern = `^(?:${rules.pattern})?$`;
    return schema;
  }
}

/** Name of a message in the components. */
export function componentName(message: DescMessage): string {
  return message.typeName.slice(message.file.proto.package.length + 1).replaceAll(".", "_");
}

/** Whether REST writes a message as something other than an object of its fields. */
export function isInlined(message: DescMessage): boolean {
  return message.typeName in wellKnown || isWrapperDesc(message);
}

function singleSchema(field: DescField): Schema {
  if (field.enum !== undefined) return { type: "string", enum: field.enum.values.map((value) => value.name) };
  if (field.scalar !== undefined) return { ...scalars[field.scalar] };
  const message = field.message;
  if (isWrapperDesc(message)) return { ...scalars[message.fields[0].scalar] };
  return { ...(wellKnown[message.typeName] ?? { $ref: `#/components/schemas/${componentName(message)}` }) };
}

function withRules(schema: Schema, rules: FieldRules | undefined, isRequired: boolean): Schema {
  // Without presence, empty means absent, so a required string cannot be empty.
  const minLength =
    rules?.minLen ?? (isRequired && schema.type === "string" && schema.format === undefined ? 1 : undefined);
  if (minLength !== undefined && (rules?.in.length ?? 0) === 0) schema.minLength = minLength;
  if (rules === undefined) return schema;
  if (rules.gte !== undefined) schema.minimum = rules.gte;
  if (rules.lte !== undefined) schema.maximum = rules.lte;
  if (rules.maxLen !== undefined) schema.maxLength = rules.maxLen;
  if (rules.pattern !== undefined) schema.pattern = `^(?:${rules.pattern})$`;
  if (rules.in.length > 0) schema.enum = rules.mayBeEmpty === true ? [...rules.in, ""] : rules.in;
  return schema;
}

/** Pairs of fields that exclude each other. */
function exclusivePairs(fields: readonly DescField[]): [string, string][] {
  return fields.flatMap((field, index) =>
    fields
      .slice(index + 1)
      .filter((other) => field.oneof !== undefined && other.oneof === field.oneof)
      .map((other): [string, string] => [field.jsonName, other.jsonName]),
  );
}
