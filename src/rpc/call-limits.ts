/** Bounds of one user: a uid, or a token. Root on the socket has none. */
export interface CallLimits {
  /** Calls at once that have one answer. */
  readonly maxCallsPerUser: number;
  /** Calls at once that stream: logs, events, statistics. */
  readonly maxStreamsPerUser: number;
}

export const defaultCallLimits: CallLimits = { maxCallsPerUser: 256, maxStreamsPerUser: 128 };
