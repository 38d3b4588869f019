import type { Duplex } from "node:stream";
import type { SvcError } from "../../errors.ts";

/** Bytes to a daemon elsewhere and back. */
export interface FarStream extends AsyncDisposable {
  readonly duplex: Duplex;
  /** Why it ended or never began, once that is known. @param cause what was seen of it here */
  failure(cause?: unknown): Promise<SvcError>;
}

/** Milliseconds until a daemon elsewhere must have said its first word. */
export const connectTimeoutMs = 30_000;
