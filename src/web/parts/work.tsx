import { useEffect, useId, useRef } from "preact/hooks";
import type { Progress } from "../../../gen/svc/v1/app_pb.ts";
import type { LicenseRequired } from "../../../gen/svc/v1/error_pb.ts";
import { isMeasured, type LongWork } from "../long-work.ts";
import { plainLine } from "../plain-text.ts";
import { texts } from "../texts.ts";
import { formatBytes } from "../units.ts";
import { Failure } from "./failure.tsx";
import { Bar, percentOf } from "./meter.tsx";
import { Text, Texts } from "./text.tsx";

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
                <Step of={step} isLast={of.isBusy && at === steps.length - 1} />
              </li>
            ))}
          </ol>
        </section>
      )}
    </>
  );
}

/** How far it is, as a bar while it goes on: what was told last of a step that is over is not where it ended. */
function Step({ of, isLast }: { of: Progress; isLast: boolean }) {
  const { step, message, doneBytes, totalBytes } = of;
  const says = [texts.work.step(step), message].filter((text) => text !== "").map(plainLine);
  const done = doneBytes === undefined ? "" : formatBytes(doneBytes);
  const share = totalBytes === undefined ? done : texts.overview.used(done, formatBytes(totalBytes));
  return (
    <>
      <bdi>{says.join(" – ")}</bdi> {isLast && <span class="quiet">{share}</span>}
      {isLast && isMeasured(of) && (
        <Bar label={says.join(" ")} share={percentOf(doneBytes ?? 0n, totalBytes ?? 1n)} />
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
  const card = useRef<HTMLElement>(null);
  // What is asked may come long after the button was pressed, and below what is in sight.
  useEffect(() => card.current?.scrollIntoView({ block: "nearest" }), []);
  return (
    <section ref={card} class="card" aria-labelledby={id} role="alert">
      <h2 id={id}>{texts.work.asks}</h2>
      {permissions.length > 0 && <Texts of={permissions} />}
      {licenses.map((license) => (
        <details key={license.name}>
          <summary>
            <Text of={license.name} />
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
