/**
 * Makes the request message out of path, query and body. Everything becomes one JSON object first, which protobuf-es
 * reads: so one set of rules decides what a value may be, wherever it came from.
 */
import {
  create,
  fromJson,
  type DescField,
  type DescMessage,
  type JsonValue,
  type Message,
} from "@bufbuild/protobuf";
import { statedFields } from "../../gen/svc/v1/fields.ts";
import { invalidRequest, type FieldViolation } from "../errors.ts";
import { explainJson, findField } from "./explain-json.ts";
import { dropOutputOnly } from "./output-only.ts";
import { readQuery } from "./query.ts";
import type { Route } from "./route.ts";
import { captureVariable } from "./router.ts";
import { TextValueError, jsonFromText, textKindOf } from "./text-value.ts";

export interface RequestParts {
  readonly route: Route;
  /** Raw segments of the path, as the router answered them. */
  readonly segments: readonly string[];
  /** What follows the question mark; empty for none. */
  readonly query: string;
  /** The parsed body; undefined for an empty one, and for raw bodies. */
  readonly body: JsonValue | undefined;
}

type JsonObject = Record<string, JsonValue>;

/**
 * The request message. The path beats the body; a query parameter cannot stand for what the path or the body gives.
 * @throws SvcError `invalid_request` with one violation per field
 */
export function bindRequest({ route, segments, query, body }: RequestParts): Message {
  const { input } = route.method;
  if (query === "" && body === undefined && route.template.variables.length === 0) return create(input);
  const violations: FieldViolation[] = [];
  const json = placeBody(route, body);
  dropOutputOnly(input, json);
  addUnstated(input, json, violations);

  if (query !== "") {
    const bound = readQuery(input, query, violations);
    for (const { fields, value } of bound) {
      const taken = takenBy(route, fields);
      if (taken === undefined) place(json, fields, value);
      else
        violations.push({
          field: nameOf(fields),
          description: `comes from the ${taken}, not from the query`,
        });
    }
  }
  for (const variable of route.template.variables) {
    const fields = fieldsAt(input, variable.fieldPath);
    const kind = textKindOf(fields[fields.length - 1] as DescField);
    const text = captureVariable(variable, segments);
    try {
      if (kind !== undefined) place(json, fields, jsonFromText(kind, text));
    } catch (error) {
      if (!(error instanceof TextValueError)) throw error;
      violations.push({ field: nameOf(fields), description: error.message });
    }
  }
  return readMessage(input, json, violations);
}

/** Whether the body of a route is raw bytes: a google.api.HttpBody. */
export function hasRawBody({ method, body }: Route): boolean {
  if (body === "") return false;
  const message = body === "*" ? method.input : findField(method.input, body)?.message;
  return message?.typeName === "google.api.HttpBody";
}

/** Puts raw bytes where the route's body goes: a message for each piece of an upload. */
export function withRawBody(route: Route, message: Message, contentType: string, data: Uint8Array): Message {
  const raw = { contentType, data };
  if (route.body === "*") return create(route.method.input, raw);
  const field = findField(route.method.input, route.body) as DescField & { message: DescMessage };
  return Object.assign(message, { [field.localName]: create(field.message, raw) });
}

function placeBody({ method, body: bodyField }: Route, body: JsonValue | undefined): JsonObject {
  if (body === undefined) return {};
  if (bodyField !== "*") return { [(findField(method.input, bodyField) as DescField).jsonName]: body };
  if (typeof body !== "object" || body === null || Array.isArray(body))
    throw invalidRequest(explainJson(method.input, body));
  return body;
}

function readMessage(input: DescMessage, json: JsonObject, violations: readonly FieldViolation[]): Message {
  let message;
  try {
    message = fromJson(input, json);
  } catch {
    throw invalidRequest([...violations, ...explainJson(input, json)]);
  }
  if (violations.length > 0) throw invalidRequest(violations);
  return message;
}

/** What must be said although it may be empty: a message cannot tell an empty list from one that was left out. */
function addUnstated(input: DescMessage, json: JsonObject, violations: FieldViolation[]): void {
  for (const { name, jsonName } of input.fields) {
    if (!statedFields.has(`${input.typeName}.${name}`)) continue;
    if ((json[jsonName] ?? json[name] ?? null) === null)
      violations.push({ field: jsonName, description: "is required; an empty list is one, too" });
  }
}

/** Sets a field deep inside `json`, over whatever the body said about it by either of its names. */
function place(json: JsonObject, fields: readonly DescField[], value: JsonValue): void {
  let object = json;
  for (const field of fields.slice(0, -1)) {
    const key = field.name in object ? field.name : field.jsonName;
    const within = (object[key] ??= {});
    // The body has no object here: reading the message will say so.
    if (typeof within !== "object" || Array.isArray(within)) return;
    object = within;
  }
  const field = fields[fields.length - 1] as DescField;
  if (field.name !== field.jsonName) Reflect.deleteProperty(object, field.name);
  object[field.jsonName] = value;
}

function takenBy({ body, template }: Route, fields: readonly DescField[]): "body" | "path" | undefined {
  if (body === "*" || body === fields[0]?.name) return "body";
  const name = fields.map((field) => field.name).join(".");
  return template.variables.some((variable) => variable.fieldPath.join(".") === name) ? "path" : undefined;
}

function fieldsAt(message: DescMessage, fieldPath: readonly string[]): DescField[] {
  let within: DescMessage | undefined = message;
  return fieldPath.map((name) => {
    const field = within && findField(within, name);
    if (field === undefined) throw new Error(`${message.typeName} has no field ${fieldPath.join(".")}`);
    within = field.message;
    return field;
  });
}

function nameOf(fields: readonly DescField[]): string {
  return fields.map((field) => field.jsonName).join(".");
}
