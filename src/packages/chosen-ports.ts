/** Port numbers that settings give: what each way to choose them is held against. */
import type { FieldViolation } from "../errors.ts";
import type { JsonObject } from "../lib/json.ts";
import { fieldStep } from "./field-path.ts";
import type { Manifest } from "./manifest.ts";

/**
 * One violation for each setting whose number is none of the ports that are allowed.
 * @param values with the defaults
 * @param whyNot undefined for a port that may be chosen
 */
export function portViolations(
  manifest: Pick<Manifest, "ports">,
  values: JsonObject,
  whyNot: (port: number) => string | undefined,
): FieldViolation[] {
  const settings = new Set(manifest.ports.flatMap(({ setting }) => setting ?? []));
  return [...settings].flatMap((setting) => {
    const port = values[setting];
    const description = typeof port === "number" ? whyNot(port) : undefined;
    return description === undefined ? [] : [{ field: `values${fieldStep(setting)}`, description }];
  });
}

/** Whatever the schema of a package forgot to say. */
export function whyNoPort(port: number): string | undefined {
  if (Number.isInteger(port) && port >= 1 && port <= 65_535) return undefined;
  return `${port} is no port number (1 to 65535)`;
}
