import { foreignPageToken } from "../../apps/page-token.ts";
import type { JobKey } from "./job.ts";

/** A job's key as one word, for maps; ids have no slash. */
export function keyText({ ownerUid, id }: JobKey): string {
  return `${ownerUid}/${id}`;
}

/** The key of a page token. @throws SvcError `invalid_request` for what is none */
export function keyOfText(text: string): JobKey {
  const [, uid, id] = /^(\d{1,10})\/(.+)$/s.exec(text) ?? [];
  if (uid === undefined || id === undefined) throw foreignPageToken();
  return { ownerUid: Number(uid), id };
}
