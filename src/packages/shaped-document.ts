/** Reads YAML of a shape that a JSON Schema tells: `svc.yaml` and `index.yaml`. */
import type { ValidateFunction } from "ajv";
import { compileSchema, schemaProblems } from "./schema-problems.ts";
import type { YamlBounds, YamlResult } from "./yaml-document.ts";

/** A reader that compiles the schema once, when the first text comes. */
export function createShapedReader(
  readSchema: () => Promise<string>,
  bounds: YamlBounds,
): (text: string) => Promise<YamlResult> {
  let compiled: Promise<ValidateFunction> | undefined;
  return async (text) => {
    compiled ??= readSchema().then((schema) => compileSchema(JSON.parse(schema) as object));
    const validate = await compiled;
    // Loaded where there is something to read: a daemon needs the bounds alone.
    const { readYaml } = await import("./yaml-document.ts");
    const result = readYaml(text, bounds);
    if ("problems" in result) return result;
    const problems = schemaProblems(validate, result.document);
    return problems.length > 0 ? { problems } : result;
  };
}
