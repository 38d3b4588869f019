import { plainText } from "../plain-text.ts";

/** Untrusted text, isolated so that it cannot change the text direction around it. */
export function Text({ of }: { of: string }) {
  return <bdi>{plainText(of)}</bdi>;
}

/** Several texts, without duplicates. */
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
