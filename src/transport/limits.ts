import { defaultsOf, type LimitsIn } from "../lib/limit-table.ts";
import { defaultCallLimits, type CallLimits } from "../rpc/call-limits.ts";

const dayMs = 24 * 60 * 60 * 1000;
const mib = 1024 * 1024;
const count = { min: 1, max: 1_000_000 };
const duration = { min: 100, max: dayMs };

/**
 * Bounds of the front door. Each is a setting of `[api.limits]` under its name in snake_case, such as
 * `max_connections`; times are in milliseconds, sizes in bytes. None can be switched off: a bound that is not there is what an
 * attacker looks for.
 */
export const transportLimits = {
  /**
   * Open connections of both listeners together, root's peers aside. One more takes the place of one that was idle for longest,
   * of whoever has most of them.
   */
  maxConnections: { default: 4096, ...count },
  /** Open connections of one uid on the socket, of one token, or of one address that has shown none; loopback is one address. */
  maxConnectionsPerPeer: { default: 1024, ...count },
  /** Open connections of root's peers on the socket, however many others there are. */
  maxRootConnections: { default: 256, ...count },
  /** Until the first bytes of a connection must show its protocol. */
  firstBytesTimeoutMs: { default: 10_000, ...duration },
  /**
   * Until the headers of an HTTP/1.1 request must be complete, and an HTTP/2 session must have its first call. Half as
   * long again, and a connection over TCP must have shown a valid token.
   */
  headersTimeoutMs: { default: 20_000, ...duration },
  /** Until the body of a request must have arrived whole. Uploads are bound by `idleTimeoutMs` alone. */
  requestTimeoutMs: { default: 60_000, ...duration },
  /** Until an idle kept-alive HTTP/1.1 connection is closed. */
  keepAliveTimeoutMs: { default: 30_000, ...duration },
  /** Until a connection without any traffic is closed; calls at work keep an HTTP/2 session open. */
  idleTimeoutMs: { default: 120_000, ...duration },
  /** All header fields of a request together. */
  maxHeaderBytes: { default: 16 * 1024, min: 1024, max: mib },
  /** Header fields of a request. */
  maxHeaderCount: { default: 100, min: 16, max: 10_000 },
  /** Calls at once on one HTTP/2 session. */
  maxStreamsPerSession: { default: 100, min: 1, max: 10_000 },
  /**
   * Streams that a session's client may reset in a burst; the session ends beyond it (CVE-2023-44487). The first bytes of
   * a connection must not open more, nor more than `maxStreamsPerSession` where that is larger.
   */
  resetBudget: { default: 200, ...count },
  /** Resets per second that fill the budget again. */
  resetRefillPerSec: { default: 50, ...count },
  /** Requests of one user that are not answered; one more costs its connection. */
  maxRequestsPerUser: { default: 1024, ...count },
  /** As {@link CallLimits} has them. */
  maxCallsPerUser: { default: defaultCallLimits.maxCallsPerUser, ...count },
  maxStreamsPerUser: { default: defaultCallLimits.maxStreamsPerUser, ...count },
  /** The JSON body of one REST request; uploads have no bound here. */
  maxBodyBytes: { default: mib, min: 1024, max: 16 * mib },
  /** One message of Connect or gRPC, after decompression; of those who are not root no more than `maxBodyBytes`. */
  maxMessageBytes: { default: 16 * mib, min: 1024, max: 16 * mib },
  /** Longest deadline that a client may ask for. */
  maxTimeoutMs: { default: dayMs, min: 100, max: 7 * dayMs },
  /** Wrong tokens in a burst from one address; each one more costs its connection. */
  tokenFailureBudget: { default: 20, ...count },
  /** Wrong tokens per second that fill the budget again. */
  tokenFailureRefillPerSec: { default: 1, ...count },
  /** For running calls to end by themselves when the daemon stops. */
  stopGraceMs: { default: 5_000, min: 0, max: 10 * 60 * 1000 },
};

export type TransportLimits = LimitsIn<typeof transportLimits> & CallLimits;

export const defaultTransportLimits: TransportLimits = defaultsOf(transportLimits);
