/** Checks the raw path of a request, and decodes its segments (RFC 3986). */
import { invalidField } from "../../errors.ts";
import type { CanonicalPath } from "../rpc/http-request.ts";

const plainPath = /^(?:\/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+$/;
const pathCharacters = /^(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/]|%[0-9A-Fa-f]{2})*$/;

export interface PathRules {
  /**
   * Whether the path may contain `%2F`. REST allows it in the value of a variable; it never matches a literal. Paths of Connect,
   * gRPC and pages never contain it.
   */
  readonly escapedSlash: "allow" | "reject";
}

/** @throws SvcError `invalid_request` for a raw path that is not canonical */
export function canonicalPath(path: string, rules: PathRules): CanonicalPath {
  const problem = pathProblem(path, rules);
  if (problem !== undefined) throw invalidField("", `the path is not canonical: ${problem}`);
  return path as CanonicalPath;
}

/** The problem of a raw path (a request target up to its `?`) as half a sentence; undefined if the path is canonical. */
export function pathProblem(path: string, rules: PathRules): string | undefined {
  if (plainPath.test(path)) return undefined;
  if (!path.startsWith("/")) return "the path must start with a slash";
  if (path.includes("//")) return "the path contains an empty segment";
  if (!pathCharacters.test(path))
    return "the path contains a character that must be percent-encoded, or a broken escape";
  if (path.includes("%")) {
    let decoded;
    try {
      decoded = decodeURIComponent(path);
    } catch {
      return "the escapes in the path are not UTF-8";
    }
    if (decoded.includes("\0")) return "the path contains a NUL";
    if (rules.escapedSlash === "reject" && /%2f/i.test(path)) return "the path contains an escaped slash";
    return hasDotSegment(path.replaceAll(/%2e/gi, ".")) ? "the path contains a dot segment" : undefined;
  }
  return hasDotSegment(path) ? "the path contains a dot segment" : undefined;
}

function hasDotSegment(path: string): boolean {
  return /\/\.\.?(?:\/|$)/.test(path);
}

/** Decodes one segment of a canonical path. A `+` stays a plus. */
export function decodeSegment(segment: string): string {
  return segment.includes("%") ? decodeURIComponent(segment) : segment;
}

/** Decodes several segments with the slashes between them. An escaped slash stays escaped, to distinguish it from a separator. */
export function decodeSegments(segments: string): string {
  if (!segments.includes("%")) return segments;
  return segments
    .split(/(%2[Ff])/)
    .map((part, index) => (index % 2 === 1 ? part : decodeURIComponent(part)))
    .join("");
}
