/**
 * Requests that two readers could understand in two ways: what stands between a client and the daemon might have let pass one
 * request and the daemon answer another (request smuggling).
 */
import { invalidField } from "../errors.ts";
import { hostOf, type HttpRequest } from "./http.ts";

/** Headers that decide for whom a request is and whose. Node takes the first of two. */
const single: ReadonlySet<string> = new Set(["host", "authorization"]);
const longest = "authorization".length;

/** @throws SvcError `invalid_request` for a request that names two hosts, or carries two tokens */
export function checkForm(request: HttpRequest): void {
  const { rawHeaders } = request;
  let seen: Set<string> | undefined;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const written = rawHeaders[at] ?? "";
    if (written.length !== 4 && written.length !== longest) continue;
    const name = written.toLowerCase();
    if (!single.has(name)) continue;
    if (seen?.has(name) === true) throw invalidField(name, "the header is there twice");
    (seen ??= new Set()).add(name);
  }
  const { host } = request.headers;
  if (host !== undefined && host !== hostOf(request)) {
    throw invalidField("host", "the request names two hosts, as Host and as :authority");
  }
}

/**
 * Whether the end of a request's body is said in a way that its version of HTTP does not know: the bytes after it may be
 * the rest of it as well as the next request (RFC 9112, section 6.1).
 */
export function isBodyEndUnsure(request: HttpRequest): boolean {
  return request.httpVersion === "1.0" && request.headers["transfer-encoding"] !== undefined;
}
