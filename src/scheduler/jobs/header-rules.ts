/** The headers of an `http` job: rules for names and values, which are write-only. */
import { secretMask } from "../../lib/secret-mask.ts";
import { isHarmlessHeader } from "../actions/header-secrets.ts";
import type { Violations } from "./violations.ts";

type Headers = Readonly<Record<string, string>>;

/** Total bytes of names and values; servers reject more than 8 to 16 KiB. */
const maxTotalBytes = 16_384;

/** Printable Latin-1 and tabs, as in fetch; a line break would end the header. */
const valuePattern = /^[\t\x20-\x7e\x80-\xff]*$/;

/** Transport headers, which the sender sets, and proxy headers, which jobs do not use. */
export const carryingHeaders: ReadonlySet<string> = new Set([
  "connection",
  "content-length",
  "expect",
  "keep-alive",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);

/** Stored values, which `***` keeps. */
export interface StoredHeaders {
  readonly headers: Headers;
  /**
   * The origin of the stored values if the job's URL changes to another origin, which must not receive them.
   */
  readonly leftOrigin?: string | undefined;
}

/** Replaces `***` by stored values; reports invalid and missing ones at `path`. */
export function readHeaders(
  headers: Headers,
  { headers: stored, leftOrigin }: StoredHeaders,
  path: string,
  violations: Violations,
): Headers {
  const storedByName = new Map(Object.entries(stored).map(([name, value]) => [name.toLowerCase(), value]));
  const seen = new Set<string>();
  let totalBytes = 0;
  const entries = Object.entries(headers).map(([name, given]): [string, string] => {
    const lowerName = name.toLowerCase();
    const value = given === secretMask ? storedByName.get(lowerName) : given;
    const isBroughtOver = given === secretMask && value !== undefined && !isHarmlessHeader(lowerName);
    const problem =
      leftOrigin !== undefined && isBroughtOver
        ? `is ${secretMask}, but the stored value is for ${leftOrigin}; set the value again for the new url`
        : headerProblem(lowerName, value, seen);
    if (problem !== undefined) violations.add(`${path}[${JSON.stringify(name)}]`, problem);
    seen.add(lowerName);
    totalBytes += name.length + (value?.length ?? 0);
    return [name, value ?? ""];
  });
  if (totalBytes > maxTotalBytes) {
    violations.add(path, `must have at most ${maxTotalBytes} bytes in names and values, not ${totalBytes}`);
  }
  return Object.fromEntries(entries);
}

/** Never includes the value. */
function headerProblem(
  lowerName: string,
  value: string | undefined,
  seen: ReadonlySet<string>,
): string | undefined {
  if (seen.has(lowerName)) return "is repeated; names are case-insensitive";
  if (carryingHeaders.has(lowerName)) return "is set by svc and cannot be changed";
  if (value === undefined) return `is ${secretMask}, but no value is stored; set the value`;
  if (!valuePattern.test(value))
    return "must have a value of printable Latin-1 characters, without line breaks";
  return undefined;
}

/** The same headers with their values hidden. */
export function hideValues(headers: Headers): Record<string, string> {
  return Object.fromEntries(Object.keys(headers).map((name) => [name, secretMask]));
}
