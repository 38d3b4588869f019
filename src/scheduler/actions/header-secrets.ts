/** Values of headers are secrets (D24): they go to the job's own server, and nowhere else. */
import { secretMask } from "../../lib/secret-mask.ts";

/** What another origin may be told, too, after a redirect or an edit; any other header may hold a secret. */
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

/** Shorter ones are found everywhere by chance. */
const minSecretLength = 4;

/**
 * Replaces the secrets among the headers in a text: servers like to repeat what they were sent.
 * @param isCut more of the text followed: what it ends with may be the beginning of a secret
 */
export function maskSecrets(text: string, headers: Readonly<Record<string, string>>, isCut = false): string {
  const secrets = Object.entries(headers)
    .filter(([name]) => !isHarmlessHeader(name))
    // The credential without its scheme, such as `Bearer`, too.
    .flatMap(([, value]) => [value.trim(), ...value.trim().split(/\s+/).slice(1)])
    .filter((secret) => secret.length >= minSecretLength)
    .sort((a, b) => b.length - a.length);
  const masked = secrets.reduce((rest, secret) => rest.replaceAll(secret, secretMask), text);
  const begun = isCut ? Math.max(0, ...secrets.map((secret) => begunLength(masked, secret))) : 0;
  return begun === 0 ? masked : masked.slice(0, -begun) + secretMask;
}

/** How much of a secret's beginning, but not all of it, stands at the end of a text. */
function begunLength(text: string, secret: string): number {
  let length = secret.length - 1;
  while (length > 0 && !text.endsWith(secret.slice(0, length))) length -= 1;
  return length;
}
