import { plainText } from "../plain-text.ts";

/** A name or a sentence of others: it is read as text, and turns nothing around it. */
export function Text({ of }: { of: string }) {
  return <bdi>{plainText(of)}</bdi>;
}

/** Several, each said once. */
export function Texts({ of }: { of: readonly string[] }) {
  return (
    <ul>
      {of.map((text) => (
        <li key={text}>
          <Text of={text} />
        </li>
      ))}
    </ul>
  );
}
