/** Page tokens: opaque to clients, the last id of the page to us. */
import { invalidField } from "../errors.ts";

export function encodePageToken(lastId: string): string {
  return Buffer.from(lastId, "utf8").toString("base64url");
}

/** The id to go on after; empty for the first page. @throws SvcError `invalid_request` for what is no token of ours. */
export function decodePageToken(token: string): string {
  const id = Buffer.from(token, "base64url").toString("utf8");
  if (encodePageToken(id) !== token)
    throw invalidField("page_token", "is no next_page_token of an earlier answer");
  return id;
}
