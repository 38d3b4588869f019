import { Text } from "./text.tsx";

/** What went wrong, and what to do next; nothing when that is empty. */
export function Failure({ says }: { says: string }) {
  if (says === "") return null;
  return (
    <p class="notice bad" role="alert">
      <Text of={says} />
    </p>
  );
}
