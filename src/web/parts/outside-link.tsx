import { Text } from "./text.tsx";

/** An address that others gave: a link where it leads to the web, which learns nothing of this page; else a text. */
export function OutsideLink({ to }: { to: string }) {
  if (!/^https?:\/\//i.test(to) || !URL.canParse(to)) return <Text of={to} />;
  return (
    <a href={to} target="_blank" rel="noreferrer noopener">
      <Text of={to} />
    </a>
  );
}
