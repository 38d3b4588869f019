/** Binds query parameters to the fields that neither the path nor the body sets. */
import type { DescField, DescMessage, JsonValue } from "@bufbuild/protobuf";
import type { FieldViolation } from "../../errors.ts";
import { findField, unknownField } from "./explain-json.ts";
import { TextValueError, jsonFromText, textKindOf } from "./text-value.ts";

/** The path of a field from the request message, and its value. */
export interface BoundValue {
  readonly fields: readonly DescField[];
  readonly value: JsonValue;
}

/**
 * Reads a query without its question mark. Names are JSON names or names of the contract, with dots for fields of messages. A
 * repeated field may be repeated or separated by commas. Adds problems to `violations`.
 */
export function readQuery(message: DescMessage, query: string, violations: FieldViolation[]): BoundValue[] {
  const texts = new Map<string, { fields: readonly DescField[]; name: string; texts: string[] }>();
  for (const pair of query.split("&")) {
    if (pair === "") continue;
    const equals = pair.indexOf("=");
    const name = decode(equals < 0 ? pair : pair.slice(0, equals));
    const text = equals < 0 ? "" : decode(pair.slice(equals + 1));
    if (name === undefined || text === undefined) {
      violations.push({
        field: name ?? pair,
        description: "has broken escapes, or escapes that are not UTF-8",
      });
      continue;
    }
    const fields = resolve(message, name, violations);
    if (fields === undefined) continue;
    const key = fields.map((field) => field.number).join(".");
    const entry = texts.get(key) ?? { fields, name, texts: [] };
    entry.texts.push(text);
    texts.set(key, entry);
  }
  return [...texts.values()].flatMap((entry) => bind(entry, violations));
}

/** The fields of a dotted name. */
function resolve(message: DescMessage, name: string, violations: FieldViolation[]): DescField[] | undefined {
  const fields: DescField[] = [];
  let within: DescMessage | undefined = message;
  for (const part of name.split(".")) {
    const field: DescField | undefined = within && findField(within, part);
    if (field === undefined) {
      violations.push(unknownField(within ?? message, name));
      return undefined;
    }
    fields.push(field);
    within = field.fieldKind === "message" && textKindOf(field) === undefined ? field.message : undefined;
  }
  return fields;
}

function bind(
  { fields, name, texts }: { fields: readonly DescField[]; name: string; texts: readonly string[] },
  violations: FieldViolation[],
): BoundValue[] {
  const field = fields.at(-1);
  const kind = field && textKindOf(field);
  if (field === undefined || kind === undefined) {
    violations.push({ field: name, description: "an object cannot be a query parameter" });
    return [];
  }
  if (field.proto.options?.debugRedact === true) {
    // URLs are stored in logs and histories.
    violations.push({ field: name, description: "a secret must be in the body, not in the URL" });
    return [];
  }
  try {
    if (field.fieldKind === "list") {
      const items = texts.flatMap((text) => text.split(",")).filter((item) => item !== "");
      return [{ fields, value: items.map((item) => jsonFromText(kind, item)) }];
    }
    if (texts.length > 1) throw new TextValueError(`is given ${texts.length} times, but has one value`);
    return [{ fields, value: jsonFromText(kind, texts[0] ?? "") }];
  } catch (error) {
    if (!(error instanceof TextValueError)) throw error;
    violations.push({ field: name, description: error.message });
    return [];
  }
}

function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch {
    return undefined;
  }
}
