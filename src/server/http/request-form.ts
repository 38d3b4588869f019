/**
 * Rejects ambiguous requests, which a proxy and the daemon could interpret differently (request smuggling).
 */
import { invalidField } from "../../errors.ts";
import { hostOf, type HttpRequest } from "../rpc/http-request.ts";

/** Headers that determine the target and the caller. Node uses the first of duplicates. */
const single: ReadonlySet<string> = new Set(["host", "authorization"]);
const longest = "authorization".length;

/** @throws SvcError `invalid_request` for a request with two hosts or two tokens */
export function checkForm(request: HttpRequest): void {
  const { rawHeaders } = request;
  let seen: Set<string> | undefined;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const written = rawHeaders[at] ?? "";
    if (written.length !== 4 && written.length !== longest) continue;
    const name = written.toLowerCase();
    if (!single.has(name)) continue;
    if (seen?.has(name) === true) throw invalidField(name, "must not be repeated");
    (seen ??= new Set()).add(name);
  }
  const { host } = request.headers;
  if (host !== undefined && host !== hostOf(request)) {
    throw invalidField("host", "differs from :authority");
  }
}

/**
 * Whether the body's end is defined in a way that the request's HTTP version does not support, so that the
 * following bytes are ambiguous (RFC 9112, section 6.1).
 */
export function isBodyEndAmbiguous(request: HttpRequest): boolean {
  return request.httpVersion === "1.0" && request.headers["transfer-encoding"] !== undefined;
}
