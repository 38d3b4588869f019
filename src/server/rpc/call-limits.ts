/** Limits per user: a uid, or a token. Root on the socket is not limited. */
export interface CallLimits {
  /** Concurrent calls with a single response. */
  readonly maxCallsPerUser: number;
  /** Concurrent streaming calls: logs, events, statistics. */
  readonly maxStreamsPerUser: number;
}

/** Silence after which a stream sends a keep-alive. Proxies close a silent response after 60 s by default. */
export const defaultStreamKeepAliveMs = 25_000;

export const defaultCallLimits: CallLimits = { maxCallsPerUser: 256, maxStreamsPerUser: 128 };
