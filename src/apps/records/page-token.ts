/** Page tokens of lists: opaque to clients; they contain the last key of the page. */
import { invalidField, type SvcError } from "../../errors.ts";

export function encodePageToken(lastKey: string): string {
  return Buffer.from(lastKey, "utf8").toString("base64url");
}

/** The key after which the page starts; empty for the first page. @throws SvcError `invalid_request` for an unknown token. */
export function decodePageToken(token: string): string {
  const key = Buffer.from(token, "base64url").toString("utf8");
  if (encodePageToken(key) !== token) throw invalidPageToken();
  return key;
}

export function invalidPageToken(): SvcError {
  return invalidField("page_token", "is not a next_page_token of an earlier response");
}
