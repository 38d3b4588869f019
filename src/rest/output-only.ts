/** What a resource says of itself and nobody sets: a client may send it back as it was read (D34). */
import type { DescField, DescMessage, JsonValue } from "@bufbuild/protobuf";
import { outputOnlyFields } from "../../gen/svc/v1/fields.ts";

/** Where output-only fields are in a message. */
interface Places {
  readonly outputOnly: readonly DescField[];
  /** Fields whose messages have some. */
  readonly within: readonly DescField[];
}

const known = new WeakMap<DescMessage, Places>();

/** Takes the output-only fields out of the JSON of a request, whatever they hold. */
export function dropOutputOnly(message: DescMessage, json: JsonValue): void {
  if (typeof json !== "object" || json === null || Array.isArray(json)) return;
  const { outputOnly, within } = placesIn(message);
  for (const { name, jsonName } of outputOnly) {
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

function placesIn(message: DescMessage): Places {
  let places = known.get(message);
  if (places === undefined) {
    // Types can hold themselves: while it is looked at, nothing is known to be in it.
    known.set(message, { outputOnly: [], within: [] });
    const isOutputOnly = (field: DescField): boolean =>
      outputOnlyFields.has(`${message.typeName}.${field.name}`);
    places = {
      outputOnly: message.fields.filter(isOutputOnly),
      within: message.fields.filter((field) => {
        if (field.message === undefined || isOutputOnly(field)) return false;
        const inside = placesIn(field.message);
        return inside.outputOnly.length + inside.within.length > 0;
      }),
    };
    known.set(message, places);
  }
  return places;
}
