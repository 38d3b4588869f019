import { plainText } from "../plain-text.ts";

/** What went wrong, and what to do next; nothing when that is empty. */
export function Failure({ says }: { says: string }) {
  if (says === "") return null;
  return (
    <p class="notice bad" role="alert">
      <bdi>{plainText(says)}</bdi>
    </p>
  );
}
