/** Removes output-only fields from requests, so that clients can send back a resource as they read it. */
import type { DescField, DescMessage, JsonValue } from "@bufbuild/protobuf";
import { outputOnlyFields } from "../../../gen/svc/v1/fields.ts";

/** Output-only fields of a message. */
interface OutputOnly {
  readonly own: readonly DescField[];
  /** Fields whose messages contain output-only fields. */
  readonly within: readonly DescField[];
}

const known = new WeakMap<DescMessage, OutputOnly>();

/** Removes all output-only fields from the JSON of a request. */
export function dropOutputOnly(message: DescMessage, json: JsonValue): void {
  if (typeof json !== "object" || json === null || Array.isArray(json)) return;
  const { own, within } = outputOnlyIn(message);
  for (const { name, jsonName } of own) {
    Reflect.deleteProperty(json, name);
    Reflect.deleteProperty(json, jsonName);
  }
  for (const field of within) {
    const value = json[field.jsonName] ?? json[field.name];
    if (value === undefined) continue;
    for (const item of itemsOf(field, value)) dropOutputOnly(field.message as DescMessage, item);
  }
}

function itemsOf(field: DescField, value: JsonValue): readonly JsonValue[] {
  if (field.fieldKind === "message" || typeof value !== "object" || value === null) return [value];
  return Object.values(value);
}

function outputOnlyIn(message: DescMessage): OutputOnly {
  let found = known.get(message);
  if (found === undefined) {
    // A placeholder for the recursion below, because a type can contain itself.
    known.set(message, { own: [], within: [] });
    const isOutputOnly = (field: DescField): boolean =>
      outputOnlyFields.has(`${message.typeName}.${field.name}`);
    found = {
      own: message.fields.filter(isOutputOnly),
      within: message.fields.filter((field) => {
        if (field.message === undefined || isOutputOnly(field)) return false;
        const inside = outputOnlyIn(field.message);
        return inside.own.length + inside.within.length > 0;
      }),
    };
    known.set(message, found);
  }
  return found;
}
