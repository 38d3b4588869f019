/** What the audit trail keeps of a changing call, and how that is hashed. */
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
} from "../store/row-document.ts";
import { readIfWhole, type RowKind } from "../store/row-reader.ts";
import { AuditRecordKinds } from "../../gen/svc/v1/words.ts";
import type { SqlValue } from "../store/store.ts";

/** A changing call that has ended. No request bodies, no settings, no tokens: what is not in here is not kept. */
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
    /** Where a caller over TCP came from; absent on the socket. */
    readonly address?: string | undefined;
  };
  readonly target: string;
  /** `ok` or the code of the error. */
  readonly result: string;
  readonly reason?: string;
  readonly durationMs: number;
}

/** The columns of a record that its call fills. */
export interface AuditContent {
  /** When the call ended, in unix milliseconds. */
  time: number;
  request_id: string;
  method: string;
  protocol: string;
  uid: number;
  /** Its name when the record was written; empty for none. */
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
  /** How many calls it stands for; null: one. */
  attempts: number | null;
}

/** A record as the store has it. */
export interface AuditRow extends AuditContent {
  seq: number;
  hash: Uint8Array;
}

const isKind = oneOf(AuditRecordKinds);

/** In the order in which they are hashed. Later ones are appended and may be null, so that old hashes stay what they are. */
const contentChecks: Fields<AuditContent> = {
  ...{ time: isInstant, request_id: isText, method: isText, protocol: isText, uid: isUid, user: isText },
  ...{ kind: isKind, owner_uid: orNull(isUid), peer_uid: orNull(isUid), token_digest: orNull(isText) },
  ...{ target: isText, result: isText, reason: orNull(isText), duration_ms: isCount },
  ...{ address: orNull(isText), attempts: orNull(isCount) },
};

/** The columns of {@link AuditContent}, in that order. */
export const contentColumns = Object.keys(contentChecks) as readonly (keyof AuditContent)[];

export const auditRows: RowKind<AuditRow, AuditRow> = {
  table: "audit",
  columns: { seq: isSeq, ...contentChecks, hash: isBytes },
  nameOf: ({ seq }) => `record ${seq} of the audit trail`,
  remedy: () => "svc audit --verify says what is wrong first; it stays, as evidence, until its time is over",
  read: (row) => row,
};

/** A record as it can be shown: of one that cannot be read what can, and that it is damaged. */
export function shownRecord(row: AuditRow): AuditRow {
  return (
    readIfWhole(auditRows, row) ?? {
      ...row,
      time: isInstant(row.time) ? row.time : 0,
      kind: isKind(row.kind) ? row.kind : "anonymous",
      uid: isUid(row.uid) ? row.uid : nobodyUid,
      owner_uid: isUid(row.owner_uid) ? row.owner_uid : null,
      peer_uid: isUid(row.peer_uid) ? row.peer_uid : null,
      duration_ms: isCount(row.duration_ms) ? row.duration_ms : 0,
      attempts: isCount(row.attempts) ? row.attempts : null,
      reason: damaged,
    }
  );
}

export function contentOf(call: AuditedCall, time: number): AuditContent {
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

/** A record that the trail makes by itself: of calls that nobody can be told of one by one. */
export function trailRecord(
  time: number,
  told: Pick<AuditContent, "method" | "result"> & Partial<Pick<AuditContent, "target" | "attempts">>,
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
    ...told,
  };
}

function isSeq(value: unknown): boolean {
  return isBetween(value, 1, Number.MAX_SAFE_INTEGER);
}

/** The values of {@link contentColumns}. */
export function contentValues(content: AuditContent): SqlValue[] {
  return contentColumns.map((column) => content[column]);
}

/** What of a record is hashed after its predecessor's hash and its number: JSON of what is not null. */
export function hashedText(content: AuditContent): string {
  const present = contentColumns
    .filter((column) => content[column] !== null)
    .map((column) => [column, content[column]]);
  return JSON.stringify(Object.fromEntries(present));
}

/** The hash that a record must have. The SQL in audit-trail.ts computes the same. */
export function hashOf(previousHash: Uint8Array, seq: number, content: AuditContent): Buffer {
  const previous = Buffer.from(previousHash).toString("hex").toUpperCase();
  return hash("sha256", `${previous} ${seq} ${hashedText(content)}`, "buffer");
}

/** Text that comes out of SQLite as it went in: half a surrogate pair would not, and NUL ends texts in its tools. */
function storable(text: string): string {
  return text.toWellFormed().replaceAll("\0", "\u{fffd}");
}
