/**
 * What holds documents against svc's own schemas. It is compiled when the first one comes; the bundle has in place of this module
 * what `src/build/compiled-schemas.ts` writes, as to compile a schema takes longer than all else that reads a manifest.
 */
import { readFile } from "node:fs/promises";
import type { ValidateFunction } from "ajv";
import { compileSchema } from "./schema-problems.ts";

/** Of `svc.yaml`. */
export function manifestValidator(): Promise<ValidateFunction> {
  return compiled("manifest.schema.json");
}

/** Of `index.yaml`. */
export function indexValidator(): Promise<ValidateFunction> {
  return compiled("index.schema.json");
}

async function compiled(file: string): Promise<ValidateFunction> {
  return compileSchema(JSON.parse(await readFile(new URL(file, import.meta.url), "utf8")) as object);
}
