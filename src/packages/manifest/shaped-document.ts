/** Parses and validates YAML by a JSON Schema: `svc.yaml` and `index.yaml`. */
import type { ValidateFunction } from "ajv";
import { schemaProblems } from "./schema-problems.ts";
import type { YamlBounds, YamlResult } from "./yaml-document.ts";

/** @param loadValidator loads the validator of the schema; called once, at first use */
export function createShapedReader(
  loadValidator: () => Promise<ValidateFunction>,
  bounds: YamlBounds,
): (text: string) => Promise<YamlResult> {
  let loaded: Promise<ValidateFunction> | undefined;
  return async (text) => {
    const validate = await (loaded ??= loadValidator());
    // Loaded at first use: a daemon otherwise needs only the limits.
    const { readYaml } = await import("./yaml-document.ts");
    const result = readYaml(text, bounds);
    if ("problems" in result) return result;
    const problems = schemaProblems(validate, result.document);
    return problems.length > 0 ? { problems } : result;
  };
}
