import { plainText } from "../plain-text.ts";

/** A name or a sentence of others: it is read as text, and turns nothing around it. */
export function Text({ of }: { of: string }) {
  return <bdi>{plainText(of)}</bdi>;
}
