/** Bounds of the front door. Each is a setting of `[limits]`; times are in milliseconds, sizes in bytes. */
export interface TransportLimits {
  /** Open connections of both listeners together; one more is closed at accept. */
  readonly maxConnections: number;
  /** Open connections of one uid on the socket, or of one address on TCP. Root peers are bound by `maxConnections` only. */
  readonly maxConnectionsPerPeer: number;
  /** Until the first bytes of a connection must show its protocol. */
  readonly firstBytesTimeoutMs: number;
  /** Until the headers of an HTTP/1.1 request must be complete. */
  readonly headersTimeoutMs: number;
  /** Until a whole HTTP/1.1 request must have arrived. Uploads are bound by `idleTimeoutMs` as well. */
  readonly requestTimeoutMs: number;
  /** Until an idle kept-alive HTTP/1.1 connection is closed. */
  readonly keepAliveTimeoutMs: number;
  /** Until a connection without any traffic is closed; calls at work keep an HTTP/2 session open. */
  readonly idleTimeoutMs: number;
  /** All header fields of a request together. */
  readonly maxHeaderBytes: number;
  /** Header fields of a request. */
  readonly maxHeaderCount: number;
  /** Calls at once on one HTTP/2 session. */
  readonly maxStreamsPerSession: number;
  /** Streams that a session's client may reset in a burst; the session ends beyond it (CVE-2023-44487). */
  readonly resetBudget: number;
  /** Resets per second that fill the budget again. */
  readonly resetRefillPerSec: number;
  /** One message of Connect or gRPC, after decompression. */
  readonly maxMessageBytes: number;
  /** Longest deadline that a client may ask for. */
  readonly maxTimeoutMs: number;
  /** For running calls to end by themselves when the daemon stops. */
  readonly stopGraceMs: number;
}

export const defaultTransportLimits: TransportLimits = {
  maxConnections: 4096,
  maxConnectionsPerPeer: 1024,
  firstBytesTimeoutMs: 10_000,
  headersTimeoutMs: 20_000,
  requestTimeoutMs: 300_000,
  keepAliveTimeoutMs: 30_000,
  idleTimeoutMs: 120_000,
  maxHeaderBytes: 16 * 1024,
  maxHeaderCount: 100,
  maxStreamsPerSession: 100,
  resetBudget: 200,
  resetRefillPerSec: 50,
  maxMessageBytes: 16 * 1024 * 1024,
  maxTimeoutMs: 24 * 60 * 60 * 1000,
  stopGraceMs: 5_000,
};
