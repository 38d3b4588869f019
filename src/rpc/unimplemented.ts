import { SvcError } from "../errors.ts";

/**
 * Stands in a service implementation for a method that this version does not offer yet: `listBackups: unimplemented`.
 * The pipeline answers `unimplemented` (REST 501, reason `not_implemented`) after identity, access and validation,
 * and leaves the method out of the capabilities (D2).
 */
export function unimplemented(): never {
  throw new SvcError("not_implemented", "this daemon does not offer the method");
}
