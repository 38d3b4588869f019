/** Stands for a stored secret: reads show it, and writing it back keeps the stored value. */
export const secretMask = "***";

/** In characters. Shorter secrets are never masked: they occur in almost any text by chance. */
const minMaskedLength = 4;
/** In characters. Shorter secrets are masked only where they are not part of a longer word. */
const minEmbeddedLength = 8;

/** Masks these secrets in a text. Secrets that are too short to distinguish from ordinary words stay readable. */
export function maskSecretTexts(text: string, secrets: readonly string[]): string {
  return secrets
    .filter((secret) => secret.length >= minMaskedLength)
    .sort((a, b) => b.length - a.length)
    .reduce((rest, secret) => rest.replaceAll(occurrencesOf(secret), () => secretMask), text);
}

function occurrencesOf(secret: string): RegExp {
  const pattern = secret.replaceAll(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
  if (secret.length >= minEmbeddedLength) return new RegExp(pattern, "g");
  return new RegExp(`(?<![\\p{L}\\p{N}_])${pattern}(?![\\p{L}\\p{N}_])`, "gu");
}
