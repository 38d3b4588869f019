/** An app's settings as fields of a form, from the JSON Schema of its package, whose author may have written anything. */
import { toJson, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import { ValueSchema } from "@bufbuild/protobuf/wkt";
import type { AppSettings } from "../../gen/svc/v1/app_pb.ts";
import { isObject } from "../lib/json.ts";
import { problemsOf, type Problems } from "./form.ts";
import { texts } from "./texts.ts";

export type FieldKind = "text" | "number" | "boolean" | "choice" | "secret" | "json";

/** The typed value of each field. */
export type Draft = Readonly<Record<string, string | boolean>>;

export interface Field {
  readonly key: string;
  readonly kind: FieldKind;
  readonly description: string;
  readonly isRequired: boolean;
  /** As text; empty for none. */
  readonly defaultText: string;
  readonly choices: readonly string[];
  readonly bounds: {
    readonly min?: number;
    readonly max?: number;
    readonly step?: number;
    readonly maxLength?: number;
  };
  /** The current value. */
  readonly value: string | boolean;
  /** Whether a secret is set; it is never shown. */
  readonly isStored: boolean;
}

/** Stands for a stored secret in responses and requests. */
const secretMask = "***";

export function fieldsOf(settings: AppSettings): Field[] {
  const schema = objectOf(settings.schema && toJson(ValueSchema, settings.schema));
  const required = Array.isArray(schema["required"]) ? schema["required"] : [];
  return Object.entries(objectOf(schema["properties"])).map(([key, property]) =>
    fieldOf(key, objectOf(property), settings.values?.[key], required.includes(key)),
  );
}

function fieldOf(key: string, schema: JsonObject, value: JsonValue | undefined, isRequired: boolean): Field {
  const kind = kindOf(schema);
  const isStored = kind === "secret" && value === secretMask;
  const shown = isStored ? "" : textOf(kind, value);
  return {
    ...{ key, kind, isStored, isRequired },
    description: [schema["title"], schema["description"]]
      .filter((text) => typeof text === "string")
      .join(": "),
    defaultText: textOf("text", schema["default"]),
    choices: kind === "choice" && Array.isArray(schema["enum"]) ? schema["enum"].map(String) : [],
    bounds: boundsOf(kind, schema),
    value: kind === "boolean" ? value === true : shown,
  };
}

function kindOf({ type, writeOnly, enum: choices }: JsonObject): FieldKind {
  if (writeOnly === true) return "secret";
  if (Array.isArray(choices) && choices.every((choice) => typeof choice === "string")) return "choice";
  if (type === "boolean") return "boolean";
  if (type === "integer" || type === "number") return "number";
  return type === "string" ? "text" : "json";
}

/** Only the daemon checks patterns: a package author's pattern may take forever. */
function boundsOf(kind: FieldKind, schema: JsonObject): Field["bounds"] {
  const { minimum: min, maximum: max, maxLength, type } = schema;
  if (kind === "number") {
    return {
      ...(typeof min === "number" && { min }),
      ...(typeof max === "number" && { max }),
      ...(type === "integer" && { step: 1 }),
    };
  }
  return kind === "text" && typeof maxLength === "number" ? { maxLength } : {};
}

/**
 * The values to store: only those that differ from the package's defaults, so that a later default applies.
 * @throws SyntaxError for a JSON field that is not valid JSON
 */
export function chosenValues(settings: AppSettings, draft: Draft): JsonObject {
  const schema = objectOf(settings.schema && toJson(ValueSchema, settings.schema));
  const properties = objectOf(schema["properties"]);
  const chosen: JsonObject = {};
  for (const field of fieldsOf(settings)) {
    const value = valueOf(field, draft[field.key] ?? field.value);
    const standard = objectOf(properties[field.key])["default"];
    // A blank text is not chosen, so that a default outside of the manifest applies.
    const isBlank = value === "" && standard === undefined && settings.values?.[field.key] !== "";
    if (value === undefined || isBlank || JSON.stringify(value) === JSON.stringify(standard)) continue;
    chosen[field.key] = value;
  }
  return chosen;
}

function valueOf({ kind, isStored }: Field, typed: string | boolean): JsonValue | undefined {
  if (typeof typed === "boolean") return typed;
  if (kind === "secret") return typed === "" ? (isStored ? secretMask : undefined) : typed;
  if (typed === "" && kind !== "text") return undefined;
  if (kind === "number") return Number(typed);
  return kind === "json" ? (JSON.parse(typed) as JsonValue) : typed;
}

/** Changes of the available settings after an upgrade, one line each. */
export function settingChanges(before: AppSettings, now: AppSettings): string[] {
  const { newSetting, goneSetting, otherDefault } = texts.settings;
  const [old, fresh] = [before, now].map((of) => new Map(fieldsOf(of).map((field) => [field.key, field])));
  if (old === undefined || fresh === undefined) return [];
  return [
    ...[...fresh.values()]
      .filter(({ key }) => !old.has(key))
      .map(({ key, defaultText, isRequired }) => newSetting(key, defaultText, isRequired)),
    ...[...old.keys()].filter((key) => !fresh.has(key)).map(goneSetting),
    ...[...fresh.values()].flatMap(({ key, defaultText }) => {
      const known = old.get(key);
      return known === undefined || known.defaultText === defaultText
        ? []
        : [otherDefault(key, known.defaultText, defaultText)];
    }),
  ];
}

/** Problems of fields by key; general problems have the empty key. */
export function settingProblemsOf(error: unknown): Problems {
  if (error instanceof SyntaxError) return { "": texts.settings.notJson };
  return Object.fromEntries(Object.entries(problemsOf(error)).map(([field, text]) => [keyOf(field), text]));
}

/** Extracts `port` from `values.port`, and `a key` from `values["a key"]`. */
function keyOf(field: string): string {
  const [, plain, quoted] = /^values(?:\.([^.[]+)|\[("(?:[^"\\]|\\.)*")\])/.exec(field) ?? [];
  return plain ?? (quoted === undefined ? "" : (JSON.parse(quoted) as string));
}

function textOf(kind: FieldKind, value: JsonValue | undefined): string {
  if (value === undefined) return "";
  return kind === "json" || typeof value !== "string" ? JSON.stringify(value) : value;
}

function objectOf(value: JsonValue | undefined): JsonObject {
  return isObject(value) ? value : {};
}
