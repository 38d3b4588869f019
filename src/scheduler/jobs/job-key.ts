import { invalidPageToken } from "../../apps/records/page-token.ts";
import type { JobKey } from "./job.ts";

/** A job's key as text, for maps; IDs have no slash. */
export function keyText({ ownerUid, id }: JobKey): string {
  return `${ownerUid}/${id}`;
}

/** The key of a page token. @throws SvcError `invalid_request` for an invalid key */
export function keyOfText(text: string): JobKey {
  const [, uid, id] = /^(\d{1,10})\/(.+)$/s.exec(text) ?? [];
  if (uid === undefined || id === undefined) throw invalidPageToken();
  return { ownerUid: Number(uid), id };
}
