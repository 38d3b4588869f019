import { invalidField } from "../errors.ts";

/**
 * The parts of a project that belong to a service; all parts without one.
 * @throws SvcError `invalid_request` if no part belongs to the service; a project without parts has no log
 */
export function partsOfService<Part>(
  parts: readonly Part[],
  serviceOf: (part: Part) => string | undefined,
  service: string | undefined,
): readonly Part[] {
  if (service === undefined || parts.length === 0) return parts;
  const found = parts.filter((part) => serviceOf(part) === service);
  if (found.length > 0) return found;
  const names = new Set(parts.flatMap((part) => serviceOf(part) ?? []));
  throw invalidField("service", `must be one of ${[...names].sort().join(", ")}`);
}
