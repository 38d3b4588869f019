import type { ComponentChildren } from "preact";
import { useEffect, useErrorBoundary } from "preact/hooks";
import { texts } from "../texts.ts";
import { Failure } from "./failure.tsx";

/**
 * Contains rendering errors, so that the rest of the page stays usable.
 * @param of the content's key: after an error, a new key renders again
 */
export function ErrorBoundary({ of, children }: { of: unknown; children: ComponentChildren }) {
  const [error, reset] = useErrorBoundary((thrown) => reportError(thrown)) as [unknown, () => void];
  useEffect(() => reset(), [of]);
  if (error === undefined) return <>{children}</>;
  const message = error instanceof Error ? error.message : "";
  return (
    <>
      <Failure message={`${texts.unexpected} (${message})`} />
      <button type="button" onClick={reset}>
        {texts.readAgain}
      </button>
    </>
  );
}
