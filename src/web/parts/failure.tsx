import { Text } from "./text.tsx";

/** An error message with the next step; nothing if it is empty. */
export function Failure({ message }: { message: string }) {
  if (message === "") return null;
  return (
    <p class="notice bad" role="alert">
      <Text of={message} />
    </p>
  );
}

/** Storages whose archives could not be listed. @param of one message per storage */
export function StorageFailures({ of = [] }: { of: readonly string[] | undefined }) {
  return of.map((message) => (
    <p key={message} class="notice bad">
      <Text of={message} />
    </p>
  ));
}
