/** Validates a document against a JSON Schema, and describes problems with their lines. */
import type { ErrorObject, Options, ValidateFunction } from "ajv";
import type { JsonValue } from "../../lib/json.ts";
import { nearWord } from "../../lib/near-word.ts";
import { pointerKey } from "./rule-problem.ts";
import type { DocumentPath, Problem, YamlDocument } from "./yaml-document.ts";

/** Limit of reported problems. */
const maxProblems = 20;

/** Options of ajv for svc's own schemas. */
export const schemaOptions = {
  // A test validates the schemas: compiling the meta-schema would take as long as compiling one of them.
  validateSchema: false,
  meta: false,
  allErrors: true,
  verbose: true,
  strict: true,
  allowUnionTypes: true,
  strictTypes: false,
  strictRequired: false,
  inlineRefs: false,
  keywords: ["x-expected"],
} as const satisfies Options;

/**
 * Compiles one of svc's own schemas. Ajv takes about 30 ms to load, so it is loaded at first use. A schema's keyword
 * `x-expected` describes its pattern.
 */
export async function compileSchema(schema: object): Promise<ValidateFunction> {
  // As the default export: the bundle's `import()` of CommonJS has no other.
  const { default: ajvModule } = await import("ajv");
  return new ajvModule.Ajv(schemaOptions).compile(schema);
}

/** The problems of `document`, sorted by line. */
export function schemaProblems(validate: ValidateFunction, document: YamlDocument): Problem[] {
  if (validate(document.value)) return [];
  const problems = (validate.errors ?? []).flatMap((error) => describe(error, document));
  const unique = new Map(problems.map((problem) => [`${problem.line} ${problem.message}`, problem]));
  return [...unique.values()].toSorted((a, b) => a.line - b.line).slice(0, maxProblems);
}

function describe(error: ErrorObject, document: YamlDocument): Problem[] {
  const path = pathOf(error.instancePath, document.value);
  const at = (where: DocumentPath, message: string): Problem[] => [{ line: document.lineOf(where), message }];
  const params = error.params as Record<string, unknown>;
  switch (error.keyword) {
    case "additionalProperties": {
      const key = String(params["additionalProperty"]);
      const known = Object.keys((error.parentSchema?.["properties"] ?? {}) as object);
      return at([...path, key], `unknown key "${keyPath([...path, key])}"${suggestion(key, known)}`);
    }
    case "required":
      return at(path, `the key "${keyPath([...path, String(params["missingProperty"])])}" is missing`);
    case "propertyNames":
      return [];
    case "if":
      return [];
    default: {
      // A name that violates `propertyNames` is reported on the object: refer to the key itself.
      const name = error.propertyName;
      const where = name === undefined ? path : [...path, name];
      const value = name ?? error.data;
      if (where.length === 0) {
        const whole = `the document ${expectation(error)}, but is ${quote(value)}`;
        return at(where, value === null ? "the document is empty" : whole);
      }
      return at(where, `${keyPath(where)}: ${quote(value)} ${expectation(error)}`);
    }
  }
}

function expectation(error: ErrorObject): string {
  const expected = (error.parentSchema as Record<string, unknown> | undefined)?.["x-expected"];
  const params = error.params as Record<string, unknown>;
  if (error.keyword === "pattern" || error.keyword === "type") {
    if (typeof expected === "string") return `is not ${expected}`;
    if (error.keyword === "type") return `must be ${typeNames(params["type"])}`;
  }
  if (error.keyword === "enum") return `must be one of ${(params["allowedValues"] as unknown[]).join(", ")}`;
  return error.message ?? "is not valid";
}

function typeNames(type: unknown): string {
  const words: Record<string, string> = {
    array: "a list",
    boolean: "true or false",
    integer: "a whole number",
    number: "a number",
    object: "a map",
    string: "text (quoted if it looks like a number)",
  };
  return [type]
    .flat()
    .map((word) => words[String(word)] ?? String(word))
    .join(" or ");
}

function suggestion(key: string, known: readonly string[]): string {
  const match = nearWord(key, known);
  return match === undefined ? `; known keys: ${known.join(", ")}, x-*` : `; did you mean "${match}"?`;
}

/** The steps of a JSON Pointer; list indexes as numbers. */
function pathOf(pointer: string, root: JsonValue): (string | number)[] {
  const steps: (string | number)[] = [];
  let value: JsonValue | undefined = root;
  for (const part of pointer.split("/").slice(1)) {
    const key = pointerKey(part);
    if (Array.isArray(value)) {
      steps.push(Number(key));
      value = value[Number(key)];
    } else {
      steps.push(key);
      value = typeof value === "object" && value !== null ? value[key] : undefined;
    }
  }
  return steps;
}

/** Formats `["process", "build", 0, "exec"]` as `process.build[0].exec`. */
function keyPath(path: DocumentPath): string {
  return path
    .map((step, index) => (typeof step === "number" ? `[${step}]` : index === 0 ? step : `.${step}`))
    .join("");
}

function quote(value: unknown): string {
  const text = JSON.stringify(value) as string | undefined;
  if (text === undefined) return "nothing";
  return text.length > 80 ? `${text.slice(0, 77)}…` : text;
}
