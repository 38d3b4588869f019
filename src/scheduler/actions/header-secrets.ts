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

/** Replaces the secrets among the headers in a text: servers like to repeat what they were sent. */
export function maskSecrets(text: string, headers: Readonly<Record<string, string>>): string {
  const secrets = Object.entries(headers)
    .filter(([name]) => !isHarmlessHeader(name))
    // The credential without its scheme, such as `Bearer`, too.
    .flatMap(([, value]) => [value.trim(), ...value.trim().split(/\s+/).slice(1)])
    .filter((secret) => secret.length >= minSecretLength)
    .sort((a, b) => b.length - a.length);
  return secrets.reduce((masked, secret) => masked.replaceAll(secret, secretMask), text);
}
