/**
 * A session token that is split between an HttpOnly cookie and the page's storage. Browsers send cookies to every port of a
 * host, where another user's app may listen; storage belongs to one port, but scripts can read it. One half without the other is useless.
 */

/** Characters in the key: the prefix `svcs_` and 22 random ones; 21 random ones (126 bits) remain for the cookie. */
const keyLength = 27;

export interface SplitToken {
  /** For the page, which sends it as `Authorization: Session KEY`. */
  readonly key: string;
  /** For the cookie. */
  readonly rest: string;
}

export function splitToken(token: string): SplitToken {
  return { key: token.slice(0, keyLength), rest: token.slice(keyLength) };
}

/**
 * The `Set-Cookie` value for a page of this origin. The browser drops the cookie when it closes.
 * @param rest of the token; undefined removes the cookie
 */
export function sessionCookie(origin: string, rest: string | undefined): string {
  const { protocol, port } = new URL(origin);
  const isSecure = protocol === "https:";
  const attributes = ["Path=/", "HttpOnly", "SameSite=Strict"];
  if (isSecure) attributes.push("Secure");
  if (rest === undefined) attributes.push("Max-Age=0");
  return [`${cookieName(port, isSecure)}=${rest ?? ""}`, ...attributes].join("; ");
}

/** Cookies of the page's name that count. Other ports of the host can set further ones, by other paths and with other attributes. */
const maxCandidates = 16;

/**
 * Joins both halves of a request's token, in every way that the cookies allow: an app on another port can add cookies of the same
 * name, and nothing in a request tells them apart.
 * @param host the `Host` that the browser named, which is the page's own
 */
export function joinTokens(key: string, cookies: string | undefined, host: string | undefined): string[] {
  const port = /:(\d+)$/.exec(host ?? "")?.[1] ?? "";
  const names = [cookieName(port, true), cookieName(port, false)];
  // Some proxies add the default port, which the page's origin does not have.
  if (port === "443") names.push(cookieName("", true));
  if (port === "80") names.push(cookieName("", false));
  const rests = (cookies ?? "").split(";").flatMap((pair) => {
    const [name = "", value = ""] = pair.trim().split("=", 2);
    return names.includes(name) ? [value] : [];
  });
  return [...new Set(rests)].slice(0, maxCandidates).map((rest) => key + rest);
}

/** The port is part of the name: daemons behind several ports of one host (tunnels) share its cookies. */
function cookieName(port: string, isSecure: boolean): string {
  return `${isSecure ? "__Host-" : ""}svc_session${port === "" ? "" : `_${port}`}`;
}
