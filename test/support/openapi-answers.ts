/** Compares REST responses with `openapi.json`. */
import { readFileSync } from "node:fs";
import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";

interface OpenApi {
  paths: Record<string, Record<string, { responses: Record<string, unknown> }>>;
}

const documentUrl = new URL("../../openapi/openapi.json", import.meta.url);
const openapi = JSON.parse(readFileSync(documentUrl, "utf8")) as OpenApi;
// Compiling all schemas at once takes longer than these few responses save.
const ajv = new Ajv2020({ strict: false, allErrors: true, code: { optimize: false } });
addFormats.default(ajv);
ajv.addSchema({ $id: "svc:openapi", ...openapi });
const validators = new Map<string, ValidateFunction>();

/** @throws Error if the contract does not declare the status, or the body violates its schema. */
export function checkAnswer(method: string, path: string, status: number, body: unknown): void {
  const responses = openapi.paths[path]?.[method.toLowerCase()]?.responses;
  if (responses === undefined) throw new Error(`openapi.json has no ${method} ${path}`);
  const declared = [String(status), "default"].find((key) => responses[key] !== undefined);
  if (declared === undefined) throw new Error(`openapi.json declares no ${status} for ${method} ${path}`);
  const pointer = ["paths", path, method.toLowerCase(), "responses", declared];
  const validate = validatorOf(pointer);
  if (validate(body)) return;
  throw new Error(
    `${method} ${path} answered ${status} with what openapi.json does not allow: ` +
      `${ajv.errorsText(validate.errors)} in ${JSON.stringify(body).slice(0, 2000)}`,
  );
}

function validatorOf(pointer: readonly string[]): ValidateFunction {
  const key = pointer.join("\n");
  const known = validators.get(key);
  if (known !== undefined) return known;
  // A response may be a reference to a shared one.
  let place = followPointer(pointer);
  let base = pointer;
  while (isReference(place)) {
    base = place.$ref.slice(2).split("/").map(unescapePointer);
    place = followPointer(base);
  }
  const schemaPointer = [...base, "content", "application/json", "schema"].map(escapePointer).join("/");
  const compiled = ajv.compile({ $ref: `svc:openapi#/${schemaPointer}` });
  validators.set(key, compiled);
  return compiled;
}

function followPointer(pointer: readonly string[]): unknown {
  return pointer.reduce<unknown>((place, step) => (place as Record<string, unknown>)[step], openapi);
}

function isReference(place: unknown): place is { $ref: string } {
  return typeof place === "object" && place !== null && "$ref" in place;
}

function escapePointer(step: string): string {
  return encodeURIComponent(step.replaceAll("~", "~0").replaceAll("/", "~1"));
}

function unescapePointer(step: string): string {
  return step.replaceAll("~1", "/").replaceAll("~0", "~");
}
