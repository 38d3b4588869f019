/** The audit record of a changing call, and its hash. */
import { hash } from "node:crypto";
import {
  damaged,
  isBetween,
  isBytes,
  isCount,
  isInstant,
  isText,
  isUid,
  nobodyUid,
  oneOf,
  orNull,
  type Fields,
} from "../../store/row-document.ts";
import { readIfWhole, type RowKind } from "../../store/row-reader.ts";
import { AuditRecordKinds } from "../../../gen/svc/v1/values.ts";
import type { SqlValue } from "../../store/store.ts";

/** A changing call that has ended. Nothing else is stored: no request bodies, no settings, no tokens. */
export interface AuditedCall {
  readonly requestId: string;
  /** Full name, such as `svc.v1.AppService/StartApp`. */
  readonly method: string;
  readonly protocolName: string;
  readonly user: {
    readonly uid: number;
    readonly kind: string;
    readonly ownerUid: number;
    readonly peerUid?: number;
    readonly tokenDigest?: string;
    /** Address of a caller over TCP; absent for the unix socket. */
    readonly address?: string | undefined;
  };
  readonly target: string;
  /** `ok` or the code of the error. */
  readonly result: string;
  readonly reason?: string;
  readonly durationMs: number;
  /** True: it succeeded without an effect, such as ending a session that does not exist. */
  readonly changedNothing?: boolean | undefined;
}

/** The columns that a call fills. */
export interface AuditContent {
  /** When the call ended, in unix milliseconds. */
  time: number;
  request_id: string;
  method: string;
  protocol: string;
  uid: number;
  /** The user's name when the record was written; empty if there is none. */
  user: string;
  kind: string;
  owner_uid: number | null;
  peer_uid: number | null;
  token_digest: string | null;
  target: string;
  result: string;
  reason: string | null;
  duration_ms: number;
  address: string | null;
  /** How many calls the record represents; null: one. */
  attempts: number | null;
}

/** A stored record. */
export interface AuditRow extends AuditContent {
  seq: number;
  hash: Uint8Array;
}

const isKind = oneOf(AuditRecordKinds);
/** A uid, or 2^32-1 for an anonymous caller. */
const isCallerUid = isCount;

/** In hashing order. New columns are appended and may be null, so that old hashes stay valid. */
const contentChecks: Fields<AuditContent> = {
  ...{
    time: isInstant,
    request_id: isText,
    method: isText,
    protocol: isText,
    uid: isCallerUid,
    user: isText,
  },
  ...{ kind: isKind, owner_uid: orNull(isUid), peer_uid: orNull(isUid), token_digest: orNull(isText) },
  ...{ target: isText, result: isText, reason: orNull(isText), duration_ms: isCount },
  ...{ address: orNull(isText), attempts: orNull(isCount) },
};

/** The columns of {@link AuditContent}, in that order. */
export const contentColumns = Object.keys(contentChecks) as readonly (keyof AuditContent)[];

export const auditRows: RowKind<AuditRow, AuditRow> = {
  table: "audit",
  columns: { seq: isSeq, ...contentChecks, hash: isBytes },
  nameOf: ({ seq }) => `record ${seq} of the audit log`,
  remedy: () => "svc audit --verify says what is wrong first; the record stays as evidence until it expires",
  read: (row) => row,
};

/** A record for display. A damaged record has its readable values and is marked as damaged. */
export function shownRecord(row: AuditRow): AuditRow {
  return (
    readIfWhole(auditRows, row) ?? {
      ...row,
      time: isInstant(row.time) ? row.time : 0,
      kind: isKind(row.kind) ? row.kind : "anonymous",
      uid: isCallerUid(row.uid) ? row.uid : nobodyUid,
      owner_uid: isUid(row.owner_uid) ? row.owner_uid : null,
      peer_uid: isUid(row.peer_uid) ? row.peer_uid : null,
      duration_ms: isCount(row.duration_ms) ? row.duration_ms : 0,
      attempts: isCount(row.attempts) ? row.attempts : null,
      reason: damaged,
    }
  );
}

/** The content of a call's record; the user's name is added later. @param time unix milliseconds */
export function auditContentOf(call: AuditedCall, time: number): AuditContent {
  const { user } = call;
  return {
    time,
    request_id: storable(call.requestId),
    method: storable(call.method),
    protocol: storable(call.protocolName),
    uid: user.uid,
    user: "",
    kind: user.kind,
    owner_uid: user.ownerUid === user.uid ? null : user.ownerUid,
    peer_uid: user.peerUid ?? null,
    token_digest: user.tokenDigest ?? null,
    target: storable(call.target),
    result: call.result,
    reason: call.reason ?? null,
    duration_ms: Math.min(Math.max(Math.round(call.durationMs), 0), 2 ** 32 - 1),
    address: user.address ?? null,
    attempts: null,
  };
}

/** A record with the name of its caller. */
export function namedContent(content: AuditContent, name: string): AuditContent {
  return { ...content, user: storable(name) };
}

/** A record that the trail adds for calls that it does not list one by one. */
export function trailRecord(
  time: number,
  content: Pick<AuditContent, "method" | "result"> & Partial<Pick<AuditContent, "target" | "attempts">>,
): AuditContent {
  return {
    time,
    request_id: "",
    protocol: "",
    uid: process.getuid?.() ?? 0,
    user: "",
    kind: "local",
    owner_uid: null,
    peer_uid: null,
    token_digest: null,
    target: "",
    reason: null,
    duration_ms: 0,
    address: null,
    attempts: null,
    ...content,
  };
}

function isSeq(value: unknown): boolean {
  return isBetween(value, 1, Number.MAX_SAFE_INTEGER);
}

/** The values of {@link contentColumns}. */
export function contentValues(content: AuditContent): SqlValue[] {
  return contentColumns.map((column) => content[column]);
}

/** The text that is hashed after the previous hash and the number: JSON of all values that are not null. */
export function hashedText(content: AuditContent): string {
  const present = contentColumns
    .filter((column) => content[column] !== null)
    .map((column) => [column, content[column]]);
  return JSON.stringify(Object.fromEntries(present));
}

/** The expected hash of a record. The SQL in audit-trail.ts computes the same hash. */
export function hashOf(previousHash: Uint8Array, seq: number, content: AuditContent): Buffer {
  const previous = Buffer.from(previousHash).toString("hex").toUpperCase();
  return hash("sha256", `${previous} ${seq} ${hashedText(content)}`, "buffer");
}

/** Text that SQLite returns unchanged: it would change half a surrogate pair, and its tools end text at NUL. */
function storable(text: string): string {
  return text.toWellFormed().replaceAll("\0", "\u{fffd}");
}
