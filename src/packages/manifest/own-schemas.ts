/**
 * Validators of svc's own schemas, compiled at first use. The bundle replaces this module by the output of
 * `src/build/compiled-schemas.ts`, because compiling a schema takes longer than reading a manifest.
 */
import { readFile } from "node:fs/promises";
import type { ValidateFunction } from "ajv";
import { compileSchema } from "./schema-problems.ts";

/** Validates `svc.yaml`. */
export function manifestValidator(): Promise<ValidateFunction> {
  return compiled("manifest.schema.json");
}

/** Validates `index.yaml`. */
export function indexValidator(): Promise<ValidateFunction> {
  return compiled("index.schema.json");
}

async function compiled(file: string): Promise<ValidateFunction> {
  return compileSchema(JSON.parse(await readFile(new URL(file, import.meta.url), "utf8")) as object);
}
