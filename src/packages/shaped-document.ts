/** Reads YAML of a shape that a JSON Schema tells: `svc.yaml` and `index.yaml`. */
import type { ValidateFunction } from "ajv";
import { schemaProblems } from "./schema-problems.ts";
import type { YamlBounds, YamlResult } from "./yaml-document.ts";

/** @param loadValidator of the schema; asked once, when the first text comes */
export function createShapedReader(
  loadValidator: () => Promise<ValidateFunction>,
  bounds: YamlBounds,
): (text: string) => Promise<YamlResult> {
  let loaded: Promise<ValidateFunction> | undefined;
  return async (text) => {
    const validate = await (loaded ??= loadValidator());
    // Loaded where there is something to read: a daemon needs the bounds alone.
    const { readYaml } = await import("./yaml-document.ts");
    const result = readYaml(text, bounds);
    if ("problems" in result) return result;
    const problems = schemaProblems(validate, result.document);
    return problems.length > 0 ? { problems } : result;
  };
}
