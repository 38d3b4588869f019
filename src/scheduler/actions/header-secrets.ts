/** Header values are secrets, which are sent only to the job's server. */
import { maskSecretTexts, secretMask } from "../../lib/secret-mask.ts";

/**
 * Headers that another origin may also receive, after a redirect or an edit; all others may contain secrets.
 */
const harmless: ReadonlySet<string> = new Set([
  "accept",
  "accept-language",
  "content-language",
  "content-type",
  "user-agent",
]);

export function isHarmlessHeader(name: string): boolean {
  return harmless.has(name.toLowerCase());
}

export function harmlessHeaders(headers: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => isHarmlessHeader(name)));
}

/** In characters: a shorter start of a secret at the end of a text reveals nothing. */
const minBegunLength = 4;

/**
 * Masks secrets of the headers in a text, because servers may repeat requests.
 * @param isCut the text is truncated, so it may end with the start of a secret
 */
export function maskSecrets(text: string, headers: Readonly<Record<string, string>>, isCut = false): string {
  const secrets = Object.entries(headers)
    .filter(([name]) => !isHarmlessHeader(name))
    // The credential without its scheme, such as `Bearer`, too.
    .flatMap(([, value]) => [value.trim(), ...value.trim().split(/\s+/).slice(1)]);
  const masked = maskSecretTexts(text, secrets);
  const begun = isCut ? Math.max(0, ...secrets.map((secret) => begunLength(masked, secret))) : 0;
  return begun === 0 ? masked : masked.slice(0, -begun) + secretMask;
}

/** The length of the longest incomplete start of a secret at the end of a text. */
function begunLength(text: string, secret: string): number {
  let length = secret.length - 1;
  while (length >= minBegunLength && !text.endsWith(secret.slice(0, length))) length -= 1;
  return length >= minBegunLength ? length : 0;
}
