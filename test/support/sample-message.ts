/** Valid requests, generated from the contract's rules. */
import {
  create,
  getOption,
  hasOption,
  ScalarType,
  type DescField,
  type DescMessage,
  type Message,
} from "@bufbuild/protobuf";
import { field_behavior, FieldBehavior } from "../../gen/google/api/field_behavior_pb.ts";
import { rules, type FieldRules } from "../../gen/svc/v1/rules_pb.ts";

/** Values for fields by their local name, if the rules do not determine a useful one. */
export type SampleValues = Readonly<Record<string, unknown>>;

/** The message with its required fields set. */
export function sampleMessage(desc: DescMessage, values: SampleValues): Message {
  const init: Record<string, unknown> = {};
  for (const field of desc.fields) {
    if (isRequired(field) || isStated(field)) init[field.localName] = sampleValue(field, values);
  }
  return create(desc, init);
}

export function isRequired(field: DescField): boolean {
  return (
    hasOption(field, field_behavior) && getOption(field, field_behavior).includes(FieldBehavior.REQUIRED)
  );
}

/** An absent field would violate the rule if the protocol distinguishes it. */
function isStated(field: DescField): boolean {
  return hasOption(field, rules) && getOption(field, rules).stated === true;
}

function sampleValue(field: DescField, values: SampleValues): unknown {
  const known = values[field.localName];
  const rule = hasOption(field, rules) ? getOption(field, rules) : undefined;
  switch (field.fieldKind) {
    case "list":
      return [
        field.listKind === "message"
          ? sampleMessage(field.message, values)
          : (known ?? sampleText(rule?.items)),
      ];
    case "map":
      return {};
    case "message":
      return field.message.typeName.startsWith("google.") ? {} : sampleMessage(field.message, values);
    case "enum":
      return field.enum.values[0]?.number ?? 0;
    case "scalar":
      return known ?? sampleScalar(field.scalar, rule);
  }
}

function sampleScalar(scalar: ScalarType, rule: FieldRules | undefined): unknown {
  switch (scalar) {
    case ScalarType.STRING:
      return sampleText(rule);
    case ScalarType.BOOL:
      return true;
    case ScalarType.BYTES:
      return new Uint8Array();
    default:
      return rule?.gte ?? 1;
  }
}

/** Absolute if the rules require a path. */
function sampleText(rule: FieldRules | undefined): string {
  return rule?.in[0] ?? (rule?.pattern?.startsWith("/") === true ? "/nowhere/web" : "web");
}
