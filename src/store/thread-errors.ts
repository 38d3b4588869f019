/** Converts SvcErrors sent between threads, where an object arrives without its class. */
import { inspect } from "node:util";
import { SvcError } from "../errors.ts";
import type { ErrorMessage } from "./messages.ts";
import { storeError } from "./sqlite-failure.ts";

export function errorMessage(error: unknown): ErrorMessage {
  const { reason, message, cause } = storeError(error);
  return {
    kind: "error",
    reason,
    message,
    ...(cause === undefined ? {} : { cause: inspect(cause) }),
  };
}

export function receivedError({ reason, message, cause }: ErrorMessage): SvcError {
  return new SvcError(reason, message, cause === undefined ? {} : { cause });
}
