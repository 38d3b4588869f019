/**
 * Creates the request message from path, query and body. All of them become one JSON object first, which protobuf-es parses, so
 * that the same rules apply to every value.
 */
import {
  create,
  fromJson,
  type DescField,
  type DescMessage,
  type JsonValue,
  type Message,
} from "@bufbuild/protobuf";
import { statedFields } from "../../../gen/svc/v1/fields.ts";
import { invalidRequest, type FieldViolation } from "../../errors.ts";
import { explainJson, findField } from "./explain-json.ts";
import { dropOutputOnly } from "./output-only.ts";
import { readQuery } from "./query.ts";
import { captureVariable, type Route } from "./router.ts";
import { TextValueError, jsonFromText, textKindOf } from "./text-value.ts";

export interface RequestParts {
  readonly route: Route;
  /** Raw segments of the path, as the router returned them. */
  readonly segments: readonly string[];
  /** Query without its question mark; empty without a query. */
  readonly query: string;
  /** The parsed body; undefined for an empty one, and for raw bodies. */
  readonly body: JsonValue | undefined;
}

type JsonObject = Record<string, JsonValue>;

/**
 * The request message. The path overrides the body. A query parameter cannot set a field of the path or the body.
 * @throws SvcError `invalid_request` with one violation per field
 */
export function bindRequest({ route, segments, query, body }: RequestParts): Message {
  const { input } = route.method;
  if (query === "" && body === undefined && route.template.variables.length === 0) return create(input);
  const violations: FieldViolation[] = [];
  const json = jsonFromBody(route, body);
  dropOutputOnly(input, json);
  checkStatedLists(input, json, violations);

  if (query !== "") {
    const bound = readQuery(input, query, violations);
    for (const { fields, value } of bound) {
      const setter = setterOf(route, fields);
      if (setter === undefined) setField(json, fields, value);
      else
        violations.push({
          field: nameOf(fields),
          description: `must be in the ${setter}, not in the query`,
        });
    }
  }
  for (const variable of route.template.variables) {
    const fields = fieldsAt(input, variable.fieldPath);
    const kind = textKindOf(fields[fields.length - 1] as DescField);
    const text = captureVariable(variable, segments);
    try {
      if (kind !== undefined) setField(json, fields, jsonFromText(kind, text));
    } catch (error) {
      if (!(error instanceof TextValueError)) throw error;
      violations.push({ field: nameOf(fields), description: error.message });
    }
  }
  return readMessage(input, json, violations);
}

/** Whether the body of a route is raw bytes, that is, a google.api.HttpBody. */
export function hasRawBody({ method, body }: Route): boolean {
  if (body === "") return false;
  const message = body === "*" ? method.input : findField(method.input, body)?.message;
  return message?.typeName === "google.api.HttpBody";
}

/** Sets the route's body to raw bytes: one message per chunk of an upload. */
export function withRawBody(route: Route, message: Message, contentType: string, data: Uint8Array): Message {
  const raw = { contentType, data };
  if (route.body === "*") return create(route.method.input, raw);
  const field = findField(route.method.input, route.body) as DescField & { message: DescMessage };
  return Object.assign(message, { [field.localName]: create(field.message, raw) });
}

function jsonFromBody({ method, body: bodyField }: Route, body: JsonValue | undefined): JsonObject {
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

/** Rejects absent lists of `statedFields`. A message cannot distinguish an absent list from an empty one, so this reads the JSON. */
function checkStatedLists(input: DescMessage, json: JsonObject, violations: FieldViolation[]): void {
  for (const { name, jsonName } of input.fields) {
    if (!statedFields.has(`${input.typeName}.${name}`)) continue;
    if ((json[jsonName] ?? json[name] ?? null) === null)
      violations.push({
        field: jsonName,
        description: "is required; it may be an empty list",
        missing: true,
      });
  }
}

/** Sets a nested field of `json`. It replaces the value in the body under either of the field's names. */
function setField(json: JsonObject, fields: readonly DescField[], value: JsonValue): void {
  let object = json;
  for (const field of fields.slice(0, -1)) {
    const key = field.name in object ? field.name : field.jsonName;
    const within = (object[key] ??= {});
    // The value in the body is not an object; parsing the message reports it.
    if (typeof within !== "object" || Array.isArray(within)) return;
    object = within;
  }
  const field = fields[fields.length - 1] as DescField;
  if (field.name !== field.jsonName) Reflect.deleteProperty(object, field.name);
  object[field.jsonName] = value;
}

function setterOf({ body, template }: Route, fields: readonly DescField[]): "body" | "path" | undefined {
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
