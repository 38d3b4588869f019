/** What the daemon and the thread that talks to S3 servers say to each other. */
import type { ErrorDetailReason } from "../../../gen/svc/v1/words.ts";

/** A bucket, and how to get there. */
export interface S3Place {
  endpoint: string;
  region: string;
  bucket: string;
  accessKey: string;
  secretKey: string;
  pathStyle: boolean;
  /** PEM; empty for none. */
  ca: string;
  maxBytesPerSec: number | undefined;
  /** How long a connection may say nothing. */
  silenceMs: number;
}

export interface S3Object {
  key: string;
  sizeBytes: number;
}

/** What a bucket is asked to do, with what comes of it. */
export interface S3Operations {
  list: { request: { prefix: string }; result: S3Object[] };
  /** Uploads a file of the daemon's own. */
  put: { request: { key: string; file: string }; result: undefined };
  /** Undefined when it is not there. */
  head: { request: { key: string }; result: { sizeBytes: number; etag: string } | undefined };
  /** Answers in pieces. */
  read: { request: { key: string; etag: string; start: number; end: number }; result: undefined };
  remove: { request: { key: string }; result: undefined };
  /** Ends uploads of it that were cut short. */
  abandon: { request: { key: string }; result: undefined };
}

export type S3Operation = keyof S3Operations;

export type S3Call = {
  [O in S3Operation]: { operation: O; request: S3Operations[O]["request"] };
}[S3Operation];

export interface S3Failure {
  reason: ErrorDetailReason;
  message: string;
}

/** To the thread. */
export type S3Question =
  | { kind: "call"; id: number; place: S3Place; call: S3Call }
  /** One more piece may come. */
  | { kind: "ack"; id: number }
  | { kind: "cancel"; id: number };

/** From the thread. */
export type S3Reply =
  | { kind: "piece"; id: number; bytes: Uint8Array }
  | { kind: "progress"; id: number; doneBytes: number }
  | { kind: "result"; id: number; result: unknown }
  | { kind: "failure"; id: number; failure: S3Failure };

/** Pieces that are under way to the daemon at most. */
export const pieceWindow = 16;
