/**
 * Compiles and applies a package's settings schema, which is untrusted: the manifest accepts a subset of JSON Schema
 * without references, combinators or unlimited uniqueness; patterns are matched in linear time (RE2); and it runs in
 * a thread that can be ended.
 */
import { createHash } from "node:crypto";
import { Ajv, type ErrorObject, type ValidateFunction } from "ajv";
import formats from "ajv-formats";
import { RE2JS } from "re2js";
import type { JsonObject } from "../../lib/json.ts";

/** Cached compiled schemas. */
const maxSchemas = 256;
/** Limit of reported errors. */
const maxErrors = 1_000;

export interface SettingsCheck {
  readonly schema: JsonObject;
  readonly values: JsonObject;
}

export type SettingError = Pick<ErrorObject, "keyword" | "instancePath" | "params" | "message">;

/** Problems of the values; `unusable` explains why the schema is not usable. */
export type SettingsFinding = { readonly errors: readonly SettingError[] } | { readonly unusable: string };

export function createSettingsCheck(): (check: SettingsCheck) => SettingsFinding {
  const compiled = new Map<string, ValidateFunction>();
  const validatorOf = (schema: JsonObject): ValidateFunction => {
    const key = createHash("sha256").update(JSON.stringify(schema)).digest("hex");
    const known = compiled.get(key) ?? compile(schema);
    compiled.delete(key);
    compiled.set(key, known);
    const [oldest] = compiled.keys();
    if (compiled.size > maxSchemas && oldest !== undefined) compiled.delete(oldest);
    return known;
  };
  return ({ schema, values }) => {
    let validate;
    try {
      validate = validatorOf(schema);
    } catch (error) {
      return { unusable: error instanceof Error ? error.message : String(error) };
    }
    if (validate(values)) return { errors: [] };
    const errors = (validate.errors ?? []).slice(0, maxErrors);
    return {
      errors: errors.map(({ keyword, instancePath, params, message = "" }) => ({
        keyword,
        instancePath,
        params: params as Record<string, unknown>,
        message,
      })),
    };
  };
}

function compile(schema: JsonObject): ValidateFunction {
  // A new instance: ajv keeps every schema that it compiles.
  const ajv = new Ajv({
    allErrors: true,
    strict: false,
    validateSchema: false,
    addUsedSchema: false,
    code: { regExp: Object.assign(linearPattern, { code: "linear time" }) },
  });
  formats.default(ajv);
  return ajv.compile(schema);
}

/** ajv's pattern matcher, instead of a `RegExp`. */
function linearPattern(pattern: string): RegExp {
  try {
    return RE2JS.compile(RE2JS.translateRegExp(pattern)) as unknown as RegExp;
  } catch (cause) {
    throw new Error(`the pattern ${pattern} cannot be matched in linear time (RE2 syntax)`, { cause });
  }
}
