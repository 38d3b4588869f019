/** The raw path of a request: what is canonical, and how its segments decode (RFC 3986). */

const plainPath = /^(?:\/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+$/;
const pathCharacters = /^(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/]|%[0-9A-Fa-f]{2})*$/;

export interface PathRules {
  /**
   * Whether `%2F` may stand in it. REST allows it, as data of a variable (it matches no literal); the paths of
   * Connect, gRPC and pages have no place for it.
   */
  readonly escapedSlash: "allow" | "refuse";
}

/**
 * What is wrong with a raw path (a request target up to its `?`), as half a sentence; undefined when it is canonical.
 * Everything that looks at paths relies on this having been asked first, so that no two of them read one path differently.
 */
export function pathProblem(path: string, rules: PathRules): string | undefined {
  if (plainPath.test(path)) return undefined;
  if (!path.startsWith("/")) return "it must begin with a slash";
  if (path.includes("//")) return "it has an empty segment";
  if (!pathCharacters.test(path))
    return "it has a character that must be percent-encoded, or a broken escape";
  if (path.includes("%")) {
    let decoded;
    try {
      decoded = decodeURIComponent(path);
    } catch {
      return "its escapes are not UTF-8";
    }
    if (decoded.includes("\0")) return "it has a NUL";
    if (rules.escapedSlash === "refuse" && /%2f/i.test(path)) return "it has an escaped slash";
    return hasDotSegment(path.replaceAll(/%2e/gi, ".")) ? "it has a dot segment" : undefined;
  }
  return hasDotSegment(path) ? "it has a dot segment" : undefined;
}

function hasDotSegment(path: string): boolean {
  return /\/\.\.?(?:\/|$)/.test(path);
}

/** Decodes one segment of a canonical path; a `+` is a plus. */
export function decodeSegment(segment: string): string {
  return segment.includes("%") ? decodeURIComponent(segment) : segment;
}

/** Decodes several segments, slashes between them included; an escaped slash stays escaped, so that it can be told from those. */
export function decodeSegments(segments: string): string {
  if (!segments.includes("%")) return segments;
  return segments
    .split(/(%2[Ff])/)
    .map((part, index) => (index % 2 === 1 ? part : decodeURIComponent(part)))
    .join("");
}
