/** `key=value` arguments. */
import { UsageError } from "./failure.ts";
import type { Json, JsonObject } from "./transport/rest-shape.ts";

/** @param types the JSON Schema type of a key, where it is known: a string setting takes its text as it is */
export function parseAssignments(
  assignments: readonly string[],
  types: (key: string) => string | undefined = () => undefined,
): JsonObject {
  const values: Record<string, Json> = Object.create(null) as Record<string, Json>;
  for (const assignment of assignments) {
    const at = assignment.indexOf("=");
    if (at < 1) throw new UsageError(`"${assignment}" must be key=value`);
    const key = assignment.slice(0, at);
    const text = assignment.slice(at + 1);
    values[key] = types(key) === "string" ? text : parseValue(text);
  }
  return { ...values };
}

/** JSON that says the same as its text (`8080`, `true`, `["a"]`), else the text itself: `1.10` is no number. */
function parseValue(text: string): Json {
  try {
    const value = JSON.parse(text) as Json;
    return typeof value === "number" && String(value) !== text ? text : value;
  } catch {
    return text;
  }
}
