import { Text } from "../../parts/text.tsx";

/** Storages whose archives could not be listed. @param of one message per storage */
export function StorageFailures({ of = [] }: { of: readonly string[] | undefined }) {
  return of.map((message) => (
    <p key={message} class="notice bad">
      <Text of={message} />
    </p>
  ));
}
