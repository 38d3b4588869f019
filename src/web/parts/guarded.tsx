import type { ComponentChildren } from "preact";
import { useEffect, useErrorBoundary } from "preact/hooks";
import { texts } from "../texts.ts";
import { Failure } from "./failure.tsx";

/**
 * What cannot be shown takes down itself alone.
 * @param of what is shown: another one is tried anew
 */
export function Guarded({ of, children }: { of: unknown; children: ComponentChildren }) {
  const [error, again] = useErrorBoundary((thrown) => reportError(thrown)) as [unknown, () => void];
  useEffect(() => again(), [of]);
  if (error === undefined) return <>{children}</>;
  const said = error instanceof Error ? error.message : "";
  return (
    <>
      <Failure says={`${texts.unexpected} (${said})`} />
      <button type="button" onClick={again}>
        {texts.readAgain}
      </button>
    </>
  );
}
