/** Page tokens of lists: opaque to clients, the last key of the page to us. */
import { invalidField, type SvcError } from "../errors.ts";

export function encodePageToken(lastKey: string): string {
  return Buffer.from(lastKey, "utf8").toString("base64url");
}

/** The key to go on after; empty for the first page. @throws SvcError `invalid_request` for what is no token of ours. */
export function decodePageToken(token: string): string {
  const key = Buffer.from(token, "base64url").toString("utf8");
  if (encodePageToken(key) !== token) throw foreignPageToken();
  return key;
}

export function foreignPageToken(): SvcError {
  return invalidField("page_token", "is no next_page_token of an earlier answer");
}
