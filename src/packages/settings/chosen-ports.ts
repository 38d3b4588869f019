/** Checks port numbers in settings. */
import type { FieldViolation } from "../../errors.ts";
import type { JsonObject } from "../../lib/json.ts";
import { fieldStep } from "../manifest/rule-problem.ts";
import type { Manifest } from "../manifest/manifest.ts";

/** Why a port is not allowed. */
export interface PortProblem {
  readonly description: string;
  /** An allowed port. */
  readonly suggestion?: string;
}

/**
 * One violation per setting with a port that is not allowed.
 * @param values with defaults
 * @param whyNot undefined for an allowed port
 */
export function portViolations(
  manifest: Pick<Manifest, "ports">,
  values: JsonObject,
  whyNot: (port: number) => PortProblem | undefined,
): FieldViolation[] {
  const settings = new Set(manifest.ports.flatMap(({ setting }) => setting ?? []));
  return [...settings].flatMap((setting) => {
    const port = values[setting];
    const problem = typeof port === "number" ? whyNot(port) : undefined;
    return problem === undefined ? [] : [{ field: `values${fieldStep(setting)}`, ...problem }];
  });
}

/** Applies to all packages, whatever their schema allows. */
export function explainMissingPort(port: number): PortProblem | undefined {
  if (Number.isInteger(port) && port >= 1 && port <= 65_535) return undefined;
  return { description: `${port} is not a port number (1 to 65535)` };
}

/** The port for an app that may only use ports from 1024 on: 80 becomes 8080, 443 becomes 8443, and 3000 stays. */
export function unprivilegedPort(port: number): number {
  return port < 1_024 ? port + 8_000 : port;
}
