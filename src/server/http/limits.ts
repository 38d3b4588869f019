import { defaultsOf, type LimitsIn } from "../../lib/limit-table.ts";
import { defaultCallLimits, defaultStreamKeepAliveMs, type CallLimits } from "../rpc/running-calls.ts";

const dayMs = 24 * 60 * 60 * 1000;
const mib = 1024 * 1024;
const count = { min: 1, max: 1_000_000 };
const duration = { min: 100, max: dayMs };

/**
 * Limits of the listeners. Each is a setting of `[api.limits]` by its name in snake_case, such as
 * `max_connections`. Times are in milliseconds, sizes in bytes. No limit can be turned off.
 */
export const transportLimits = {
  /**
   * Open connections of both listeners, except root's peers. A further one replaces the longest idle
   * connection of the peer with the most.
   */
  maxConnections: { default: 4096, ...count },
  /**
   * Open connections per uid on the socket, per token, or per address without a token; loopback is one
   * address.
   */
  maxConnectionsPerPeer: { default: 1024, ...count },
  /** Open connections of root's peers on the socket, independent of other connections. */
  maxRootConnections: { default: 256, ...count },
  /** Time for the first bytes of a connection, which identify its protocol. */
  firstBytesTimeoutMs: { default: 10_000, ...duration },
  /**
   * Time for the headers of an HTTP/1.1 request, and for the first call of an HTTP/2 session. After 1.5 times
   * this, a TCP connection must have shown a valid token.
   */
  headersTimeoutMs: { default: 20_000, ...duration },
  /** Time for the body of a request to arrive. Uploads are limited only by `idleTimeoutMs`. */
  requestTimeoutMs: { default: 60_000, ...duration },
  /** Time until an idle HTTP/1.1 connection is closed. */
  keepAliveTimeoutMs: { default: 30_000, ...duration },
  /** Time until a connection without traffic is closed; running calls keep an HTTP/2 session open. */
  idleTimeoutMs: { default: 120_000, ...duration },
  /** Silence after which a stream of responses sends a keep-alive. */
  streamKeepAliveMs: { default: defaultStreamKeepAliveMs, ...duration },
  /** Total size of a request's header fields. */
  maxHeaderBytes: { default: 16 * 1024, min: 1024, max: mib },
  /** Number of header fields of a request. */
  maxHeaderCount: { default: 100, min: 16, max: 10_000 },
  /** Concurrent calls on one HTTP/2 session. */
  maxStreamsPerSession: { default: 100, min: 1, max: 10_000 },
  /** Streams that a client may reset in a burst before its session is closed (CVE-2023-44487). */
  resetBudget: { default: 200, ...count },
  /** Resets per second that refill the budget. */
  resetRefillPerSec: { default: 50, ...count },
  /** Pending requests per user; a further one closes its connection. */
  maxRequestsPerUser: { default: 1024, ...count },
  /** See {@link CallLimits}. */
  maxCallsPerUser: { default: defaultCallLimits.maxCallsPerUser, ...count },
  maxStreamsPerUser: { default: defaultCallLimits.maxStreamsPerUser, ...count },
  /** Size of the JSON body of a REST request; uploads are not limited here. */
  maxBodyBytes: { default: mib, min: 1024, max: 16 * mib },
  /**
   * Size of a message of Connect or gRPC, after decompression; for users other than root at most
   * `maxBodyBytes`.
   */
  maxMessageBytes: { default: 16 * mib, min: 1024, max: 16 * mib },
  /** Longest timeout that a client may set. */
  maxTimeoutMs: { default: dayMs, min: 100, max: 7 * dayMs },
  /** Wrong tokens in a burst from one address; each further one closes its connection. */
  tokenFailureBudget: { default: 20, ...count },
  /** Wrong tokens per second that refill the budget. */
  tokenFailureRefillPerSec: { default: 1, ...count },
  /** Time for running calls to finish when the daemon stops. */
  stopGraceMs: { default: 5_000, min: 0, max: 10 * 60 * 1000 },
};

export type TransportLimits = LimitsIn<typeof transportLimits> & CallLimits;

export const defaultTransportLimits: TransportLimits = defaultsOf(transportLimits);
