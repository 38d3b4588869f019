import { Text } from "./text.tsx";

/** An untrusted address: a link without a referrer if it is a web address, else text. */
export function ExternalLink({ to }: { to: string }) {
  if (!/^https?:\/\//i.test(to) || !URL.canParse(to)) return <Text of={to} />;
  return (
    <a href={to} target="_blank" rel="noreferrer noopener">
      <Text of={to} />
    </a>
  );
}
