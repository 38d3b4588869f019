/** Messages between the daemon and the S3 thread. */
import type { ErrorDetailReason } from "../../../gen/svc/v1/values.ts";

/** A bucket with its endpoint and credentials. */
export interface S3Connection {
  endpoint: string;
  region: string;
  bucket: string;
  accessKey: string;
  secretKey: string;
  pathStyle: boolean;
  /** PEM; empty for none. */
  ca: string;
  maxBytesPerSec: number | undefined;
  /** Milliseconds without data before a connection counts as broken. */
  silenceMs: number;
}

export interface S3Object {
  key: string;
  sizeBytes: number;
}

/** Operations on a bucket, with their results. */
export interface S3Operations {
  /** `pageSize` is for a test of the server; without it, the server chooses. */
  list: { request: { prefix: string; pageSize?: number }; result: S3Object[] };
  /** Uploads a file that belongs to the daemon. */
  put: { request: { key: string; file: string }; result: undefined };
  /** Undefined if it does not exist. */
  head: { request: { key: string }; result: { sizeBytes: number; etag: string } | undefined };
  /** Responds in pieces. */
  read: { request: { key: string; etag: string; start: number; end: number }; result: undefined };
  remove: { request: { key: string }; result: undefined };
  /** Aborts interrupted uploads of the object. */
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
  | { kind: "call"; id: number; connection: S3Connection; call: S3Call }
  /** Allows one more piece. */
  | { kind: "ack"; id: number }
  | { kind: "cancel"; id: number };

/** From the thread. */
export type S3Reply =
  | { kind: "piece"; id: number; bytes: Uint8Array }
  | { kind: "progress"; id: number; doneBytes: number }
  | { kind: "result"; id: number; result: unknown }
  | { kind: "failure"; id: number; failure: S3Failure };

/** Maximum pieces in transfer to the daemon. */
export const pieceWindow = 16;
