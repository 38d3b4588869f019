/**
 * The log of a part of the daemon: structured fields, then a sentence for people. pino's logger implements it. pino
 * prints an error only if its field is named `err`, otherwise as `{}`.
 */
export interface Log {
  info(details: object, message: string): void;
  warn(details: object, message: string): void;
  error(details: object, message: string): void;
}

/** For parts whose log is not needed. */
export const noLog: Log = { info: () => undefined, warn: () => undefined, error: () => undefined };
