/**
 * Names of archives on a storage. They sort by time, contain the app, its owner and the host, and are unique.
 */
import { randomBytes } from "node:crypto";

export interface ArchiveName {
  createdAtMs: number;
  appId: string;
  /** uid of the app's owner on the host that created the archive. */
  ownerUid: number;
  /** The start of the ID of the store that created it. */
  host: string;
  /** Whether it is encrypted as an age file. */
  isEncrypted: boolean;
}

const hostChars = 8;
const pattern =
  /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)(\d{3})Z-(.{1,128})-u(\d{1,10})-([0-9a-f]{8})-[0-9a-f]{6}\.tar\.zst(\.age)?$/;

/** The host's part of a name. */
export function hostOf(storeId: string): string {
  return storeId.slice(0, hostChars);
}

/** The time in a name. @param createdAt of a footer, which may contain anything */
export function createdAtMsOf(createdAt: string): number {
  return Date.parse(createdAt) || 0;
}

/** The name of an unencrypted archive. */
export function newArchiveName({
  createdAtMs,
  appId,
  ownerUid,
  host,
}: Omit<ArchiveName, "isEncrypted">): string {
  const stamp = new Date(createdAtMs).toISOString().replaceAll(/[-:.]/g, "");
  return `${stamp}-${appId}-u${ownerUid}-${host}-${randomBytes(3).toString("hex")}.tar.zst`;
}

/** The name of the encrypted form. */
export function encryptedName(name: string): string {
  return `${name}.age`;
}

/** Undefined if it is not the name of an archive. */
export function parseArchiveName(name: string): ArchiveName | undefined {
  const [, year, month, day, hour, minute, second, ms, appId, uid, host, age] = pattern.exec(name) ?? [];
  if (appId === undefined || host === undefined || appId.includes("/")) return undefined;
  const createdAtMs = Date.parse(`${year}-${month}-${day}T${hour}:${minute}:${second}.${ms}Z`);
  const ownerUid = Number(uid);
  if (Number.isNaN(createdAtMs) || ownerUid > 4_294_967_294) return undefined;
  return { createdAtMs, appId, ownerUid, host, isEncrypted: age !== undefined };
}
