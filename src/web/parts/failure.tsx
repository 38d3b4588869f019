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
