import { defaultCallLimits, type CallLimits } from "../rpc/call-limits.ts";

/**
 * Bounds of the front door. Each is a setting of `[api.limits]` under its name in snake_case, such as
 * `max_connections`; times are in milliseconds, sizes in bytes. Defaults and ranges stand below.
 */
export interface TransportLimits extends CallLimits {
  /**
   * Open connections of both listeners together, root's peers aside. One more takes the place of one that was idle for longest,
   * of whoever has most of them.
   */
  readonly maxConnections: number;
  /** Open connections of one uid on the socket, of one token, or of one address that has shown none; loopback is one address. */
  readonly maxConnectionsPerPeer: number;
  /** Open connections of root's peers on the socket, however many others there are. */
  readonly maxRootConnections: number;
  /** Until the first bytes of a connection must show its protocol. */
  readonly firstBytesTimeoutMs: number;
  /**
   * Until the headers of an HTTP/1.1 request must be complete, and an HTTP/2 session must have its first call. Half as
   * long again, and a connection over TCP must have shown a valid token.
   */
  readonly headersTimeoutMs: number;
  /** Until the body of a request must have arrived whole. Uploads are bound by `idleTimeoutMs` alone. */
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
  /**
   * Streams that a session's client may reset in a burst; the session ends beyond it (CVE-2023-44487). The first bytes of
   * a connection must not open more, nor more than `maxStreamsPerSession` where that is larger.
   */
  readonly resetBudget: number;
  /** Resets per second that fill the budget again. */
  readonly resetRefillPerSec: number;
  /** Requests of one user that are not answered; one more costs its connection. */
  readonly maxRequestsPerUser: number;
  /** The JSON body of one REST request; uploads have no bound here. */
  readonly maxBodyBytes: number;
  /** One message of Connect or gRPC, after decompression; of those who are not root no more than `maxBodyBytes`. */
  readonly maxMessageBytes: number;
  /** Longest deadline that a client may ask for. */
  readonly maxTimeoutMs: number;
  /** Wrong tokens in a burst from one address; each one more costs its connection. */
  readonly tokenFailureBudget: number;
  /** Wrong tokens per second that fill the budget again. */
  readonly tokenFailureRefillPerSec: number;
  /** For running calls to end by themselves when the daemon stops. */
  readonly stopGraceMs: number;
}

/** What a limit may be, both ends included. */
interface Range {
  readonly min: number;
  readonly max: number;
}

const dayMs = 24 * 60 * 60 * 1000;
const mib = 1024 * 1024;

export const defaultTransportLimits: TransportLimits = {
  maxConnections: 4096,
  maxConnectionsPerPeer: 1024,
  maxRootConnections: 256,
  firstBytesTimeoutMs: 10_000,
  headersTimeoutMs: 20_000,
  requestTimeoutMs: 60_000,
  keepAliveTimeoutMs: 30_000,
  idleTimeoutMs: 120_000,
  maxHeaderBytes: 16 * 1024,
  maxHeaderCount: 100,
  maxStreamsPerSession: 100,
  resetBudget: 200,
  resetRefillPerSec: 50,
  maxRequestsPerUser: 1024,
  ...defaultCallLimits,
  maxBodyBytes: mib,
  maxMessageBytes: 16 * mib,
  maxTimeoutMs: dayMs,
  tokenFailureBudget: 20,
  tokenFailureRefillPerSec: 1,
  stopGraceMs: 5_000,
};

const count: Range = { min: 1, max: 1_000_000 };
const duration: Range = { min: 100, max: dayMs };

/** None can be switched off: a bound that is not there is what an attacker looks for. */
export const transportLimitRanges: Readonly<Record<keyof TransportLimits, Range>> = {
  maxConnections: count,
  maxConnectionsPerPeer: count,
  maxRootConnections: count,
  firstBytesTimeoutMs: duration,
  headersTimeoutMs: duration,
  requestTimeoutMs: duration,
  keepAliveTimeoutMs: duration,
  idleTimeoutMs: duration,
  maxHeaderBytes: { min: 1024, max: mib },
  maxHeaderCount: { min: 16, max: 10_000 },
  maxStreamsPerSession: { min: 1, max: 10_000 },
  resetBudget: count,
  resetRefillPerSec: count,
  maxRequestsPerUser: count,
  maxCallsPerUser: count,
  maxStreamsPerUser: count,
  maxBodyBytes: { min: 1024, max: 16 * mib },
  maxMessageBytes: { min: 1024, max: 16 * mib },
  maxTimeoutMs: { min: 100, max: 7 * dayMs },
  tokenFailureBudget: count,
  tokenFailureRefillPerSec: count,
  stopGraceMs: { min: 0, max: 10 * 60 * 1000 },
};
