import { SvcError } from "../../errors.ts";

/**
 * Placeholder for a method that this version does not support: `listBackups: unimplemented`. The pipeline
 * returns `unimplemented` (REST 501, reason `not_implemented`) after identity, access and validation, and
 * omits the method from the capabilities.
 */
export function unimplemented(): never {
  throw new SvcError("not_implemented", "this daemon does not support the method");
}
