/**
 * Where a part of the daemon says what happens: details for machines, then one sentence for people. pino's logger is one,
 * which prints of an error what it says where its name is `err`, and else `{}`.
 */
export interface Log {
  info(details: object, message: string): void;
  warn(details: object, message: string): void;
  error(details: object, message: string): void;
}

/** For parts that nobody listens to. */
export const noLog: Log = { info: () => undefined, warn: () => undefined, error: () => undefined };
