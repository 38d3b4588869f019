/** The headers of an `http` job: what may be sent, and the values that are written and never read (decisions 24). */
import { secretMask } from "../../lib/secret-mask.ts";
import { isHarmlessHeader } from "../actions/header-secrets.ts";
import type { Violations } from "./violations.ts";

type Headers = Readonly<Record<string, string>>;

/** Names and values together, in bytes: servers refuse more than 8 to 16 KiB. */
const maxTotalBytes = 16_384;

/** Printable Latin-1 and tabs, as fetch sends it: no line break can end a header early. */
const valuePattern = /^[\t\x20-\x7e\x80-\xff]*$/;

/** They say how a message is carried, which is the sender's to decide, or speak to a proxy, which no job has. */
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

/** Values that are kept, for `***` to bring over. */
export interface KeptHeaders {
  readonly headers: Headers;
  /** The origin that they were given for, where the job is to go to another one: it may not have its secrets. */
  readonly leftOrigin?: string | undefined;
}

/** Puts kept values where `***` stands; says at `path` what cannot be sent or is not kept. */
export function readHeaders(
  headers: Headers,
  { headers: stored, leftOrigin }: KeptHeaders,
  path: string,
  violations: Violations,
): Headers {
  const kept = new Map(Object.entries(stored).map(([name, value]) => [name.toLowerCase(), value]));
  const seen = new Set<string>();
  let totalBytes = 0;
  const entries = Object.entries(headers).map(([name, given]): [string, string] => {
    const lowerName = name.toLowerCase();
    const value = given === secretMask ? kept.get(lowerName) : given;
    const isBroughtOver = given === secretMask && value !== undefined && !isHarmlessHeader(lowerName);
    const problem =
      leftOrigin !== undefined && isBroughtOver
        ? `is ${secretMask}, and the kept value is for ${leftOrigin}; give the value again for the new url`
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

/** Never repeats the value. */
function headerProblem(
  lowerName: string,
  value: string | undefined,
  seen: ReadonlySet<string>,
): string | undefined {
  if (seen.has(lowerName)) return "is there twice; upper and lower case make no difference";
  if (carryingHeaders.has(lowerName)) return "is svc's to set, not a job's";
  if (value === undefined) return `is ${secretMask}, and no value is kept; give the value itself`;
  if (!valuePattern.test(value))
    return "must have a value of printable Latin-1 characters, without line breaks";
  return undefined;
}

/** The same headers with their values hidden. */
export function hideValues(headers: Headers): Record<string, string> {
  return Object.fromEntries(Object.keys(headers).map((name) => [name, secretMask]));
}
