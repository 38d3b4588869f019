import type { Duplex } from "node:stream";
import type { SvcError } from "../../errors.ts";

/** A byte stream to and from a remote daemon. */
export interface RemoteStream extends AsyncDisposable {
  readonly duplex: Duplex;
  /** Why the stream ended or never opened, once that is known. @param cause the error seen on this side */
  failure(cause?: unknown): Promise<SvcError>;
}

/** Milliseconds until the first bytes of a remote daemon must arrive. */
export const connectTimeoutMs = 30_000;
