/**
 * Checks values against a package's own settings schema. The schema comes from strangers, so it must not be able
 * to stall the daemon: the manifest accepts a subset of JSON Schema without references, combinators or unbounded
 * uniqueness, sizes are capped, and compiling and checking run under a watchdog that stops a slow pattern.
 */
import { createHash } from "node:crypto";
import type { ErrorObject, ValidateFunction } from "ajv";
import { invalidRequest, SvcError } from "../errors.ts";
import type { FieldViolation } from "../errors.ts";
import type { JsonObject } from "../lib/json.ts";
import { createBoundedCaller } from "./bounded-call.ts";
import type { Manifest } from "./manifest.ts";
import { settingsSchema } from "./settings-schema.ts";

/** Values as JSON are at most this long. */
const maxValuesBytes = 256 * 1024;
const maxViolations = 50;

export interface SettingsValidator {
  /**
   * Holds `values` against the manifest's schema; unknown keys are refused. Merge the defaults first.
   * @throws SvcError `invalid_argument` `invalid_request` with one violation per field, such as `values.port`;
   * `invalid_argument` `package_invalid` when the schema itself cannot be used.
   */
  validate: (manifest: Pick<Manifest, "id" | "settings" | "ports">, values: JsonObject) => Promise<void>;
}

export interface SettingsValidatorOptions {
  /** Compiled schemas kept. Default 256. */
  maxSchemas?: number;
  /** How long the daemon may stand still for one check. Default 100. */
  timeoutMs?: number;
}

interface CompiledSettings {
  validate: ValidateFunction;
  /** How often the watchdog had to stop it. */
  strikes: number;
}

/** A schema that the watchdog stopped this often is not tried again. */
const maxStrikes = 2;

export function createSettingsValidator(options: SettingsValidatorOptions = {}): SettingsValidator {
  const { maxSchemas = 256, timeoutMs = 100 } = options;
  const cache = new Map<string, CompiledSettings>();
  const bounded = createBoundedCaller();

  async function compiled(schema: JsonObject, id: string): Promise<CompiledSettings> {
    const key = createHash("sha256").update(JSON.stringify(schema)).digest("hex");
    const hit = cache.get(key);
    cache.delete(key);
    const entry = hit ?? { validate: await compile(schema, id), strikes: 0 };
    cache.set(key, entry);
    const [oldest] = cache.keys();
    if (cache.size > maxSchemas && oldest !== undefined) cache.delete(oldest);
    return entry;
  }

  async function compile(schema: JsonObject, id: string): Promise<ValidateFunction> {
    // By their default exports: the bundle's `import()` of CommonJS has no others.
    const [{ default: ajvModule }, formats] = await Promise.all([import("ajv"), import("ajv-formats")]);
    // A fresh instance: ajv keeps every schema that it compiles.
    const ajv = new ajvModule.Ajv({
      allErrors: true,
      strict: false,
      validateSchema: false,
      addUsedSchema: false,
    });
    formats.default.default(ajv);
    try {
      const result = bounded.call(() => ajv.compile(schema), 10 * timeoutMs);
      if ("value" in result) return result.value;
    } catch (cause) {
      throw unusable(id, cause);
    }
    throw unusable(id);
  }

  return {
    async validate(manifest, values) {
      const schema = settingsSchema(manifest) ?? {
        type: "object",
        properties: {},
        additionalProperties: false,
      };
      if (Buffer.byteLength(JSON.stringify(values)) > maxValuesBytes) {
        throw invalidRequest([
          { field: "values", description: `the values are longer than ${maxValuesBytes} bytes of JSON` },
        ]);
      }
      const entry = await compiled(schema, manifest.id);
      if (entry.strikes >= maxStrikes) throw tooSlow(manifest.id, timeoutMs);
      const result = bounded.call(() => entry.validate(values), timeoutMs);
      if ("timedOut" in result) {
        entry.strikes += 1;
        throw tooSlow(manifest.id, timeoutMs);
      }
      const violations = [
        ...(result.value ? [] : violationsOf(entry.validate.errors ?? [])),
        ...portViolations(manifest, values),
      ];
      if (violations.length > 0) throw invalidRequest(violations);
    },
  };
}

function unusable(id: string, cause?: unknown): SvcError<"package_invalid"> {
  return new SvcError(
    "invalid_argument",
    "package_invalid",
    `the settings schema of "${id}" cannot be compiled`,
    {
      cause,
    },
  );
}

function tooSlow(id: string, timeoutMs: number): SvcError<"package_invalid"> {
  const message = `checking these settings of "${id}" takes more than ${timeoutMs} ms: a pattern in its schema is too slow`;
  return new SvcError("invalid_argument", "package_invalid", message);
}

/** One violation per field: the first that ajv reports of each. */
function violationsOf(errors: readonly ErrorObject[]): FieldViolation[] {
  const byField = new Map<string, FieldViolation>();
  for (const error of errors) {
    const violation = violationOf(error);
    const field = violation.field ?? "";
    if (!byField.has(field)) byField.set(field, violation);
    if (byField.size >= maxViolations) break;
  }
  return [...byField.values()];
}

function violationOf(error: ErrorObject): FieldViolation {
  const field = `values${error.instancePath.split("/").slice(1).map(fieldStep).join("")}`;
  const params = error.params as Record<string, unknown>;
  switch (error.keyword) {
    case "additionalProperties": {
      const key = String(params["additionalProperty"]);
      return { field: field + fieldStep(key), description: `the package has no setting "${key}"` };
    }
    case "required":
      return { field: field + fieldStep(String(params["missingProperty"])), description: "is required" };
    case "enum":
      return { field, description: `must be one of ${JSON.stringify(params["allowedValues"])}` };
    default:
      return { field, description: error.message ?? "is not valid" };
  }
}

/** A step of a JSON Pointer in the spelling of field paths: `.port`, `[0]`, `["a.b"]`. */
function fieldStep(step: string): string {
  const key = step.replaceAll("~1", "/").replaceAll("~0", "~");
  if (/^\d+$/.test(key)) return `[${key}]`;
  return /^[A-Za-z_][A-Za-z0-9_-]*$/.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`;
}

/** A setting that gives a port number must be one, whatever the schema forgot to say. */
function portViolations(manifest: Pick<Manifest, "ports">, values: JsonObject): FieldViolation[] {
  return manifest.ports.flatMap(({ setting }): FieldViolation[] => {
    const value = setting === undefined ? undefined : values[setting];
    if (setting === undefined || typeof value !== "number" || (value >= 1 && value <= 65_535)) return [];
    return [{ field: `values${fieldStep(setting)}`, description: `${value} is no port number (1 to 65535)` }];
  });
}
