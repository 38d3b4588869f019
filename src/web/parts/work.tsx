import { useId } from "preact/hooks";
import type { LicenseRequired } from "../../../gen/svc/v1/error_pb.ts";
import type { LongWork } from "../long-work.ts";
import { plainLine, plainText } from "../plain-text.ts";
import { texts } from "../texts.ts";
import { Failure } from "./failure.tsx";

/** How work goes: its steps, what it asks, and what went wrong. */
export function Work<Result extends { case: string; value: unknown }>({ of }: { of: LongWork<Result> }) {
  const id = useId();
  const asked = of.question.value;
  const steps = of.steps.value;
  return (
    <>
      <Failure says={of.failure.value} />
      {asked?.kind === "accept" && <Accept of={asked.of} onAccept={() => void of.accept(asked.of)} />}
      {steps.length > 0 && (
        <section class="card" aria-labelledby={id}>
          <h2 id={id}>{texts.work.steps}</h2>
          <ol class="troubles" aria-live="polite">
            {steps.map((step, at) => (
              <li key={at}>
                <bdi>{step}</bdi>
              </li>
            ))}
          </ol>
        </section>
      )}
    </>
  );
}

/** Goes beside the button that begins it. */
export function CancelWork<Result extends { case: string; value: unknown }>({
  of,
}: {
  of: LongWork<Result>;
}) {
  if (!of.isBusy) return null;
  return (
    <button type="button" onClick={() => of.cancel()}>
      {texts.work.cancel}
    </button>
  );
}

function Accept({ of: { licenses, permissions }, onAccept }: { of: LicenseRequired; onAccept: () => void }) {
  const id = useId();
  return (
    <section class="card" aria-labelledby={id} role="alert">
      <h2 id={id}>{texts.work.asks}</h2>
      {permissions.length > 0 && (
        <ul>
          {permissions.map((permission) => (
            <li key={permission}>
              <bdi>{plainText(permission)}</bdi>
            </li>
          ))}
        </ul>
      )}
      {licenses.map((license) => (
        <details key={license.name}>
          <summary>
            <bdi>{plainText(license.name)}</bdi>
          </summary>
          <pre>{license.text.split("\n").map(plainLine).join("\n")}</pre>
        </details>
      ))}
      <button type="button" onClick={onAccept}>
        {texts.work.accept}
      </button>
    </section>
  );
}
