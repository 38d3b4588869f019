/** Page tokens: opaque to clients, the last key of the page to us. */
import { invalidField } from "../../errors.ts";
import { keyText } from "./job-key.ts";
import type { JobKey } from "./job.ts";

export function encodePageToken(last: JobKey): string {
  return Buffer.from(keyText(last), "utf8").toString("base64url");
}

/** The key to go on after. @throws SvcError `invalid_request` for what is no token of ours. */
export function decodePageToken(token: string): JobKey {
  const text = Buffer.from(token, "base64url").toString("utf8");
  const [, uid, id] = /^(\d{1,10})\/(.+)$/s.exec(text) ?? [];
  if (uid === undefined || id === undefined || Buffer.from(text).toString("base64url") !== token) {
    throw invalidField("page_token", "is no next_page_token of an earlier answer");
  }
  return { ownerUid: Number(uid), id };
}
