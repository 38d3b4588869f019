import { useEffect, useId, useRef } from "preact/hooks";
import type { DescMessage } from "@bufbuild/protobuf";
import type { LicenseRequired } from "../../../gen/svc/v1/error_pb.ts";
import { isMeasured, type LongWork } from "../long-work.ts";
import type { Step } from "../operations.ts";
import { plainLine } from "../plain-text.ts";
import { texts } from "../texts.ts";
import { formatBytes } from "../units.ts";
import { ConfirmButton } from "./confirm.tsx";
import { Failure } from "./failure.tsx";
import { Bar, percentOf } from "./meter.tsx";
import { Text, Texts } from "./text.tsx";

/** The steps of an operation, its question, and its error. */
export function Work<S extends DescMessage>({ of }: { of: LongWork<S> }) {
  const id = useId();
  const asked = of.question.value;
  const steps = of.steps.value;
  return (
    <>
      <Failure message={of.failure.value} />
      {asked?.kind === "accept" && <Accept of={asked.of} onAccept={() => void of.accept(asked.of)} />}
      {steps.length > 0 && (
        <section class="card" aria-labelledby={id}>
          <h2 id={id}>{texts.work.steps}</h2>
          <ol class="troubles" aria-live="polite">
            {steps.map((step, at) => (
              <li key={at}>
                <StepLine of={step} isLast={of.isBusy && at === steps.length - 1} />
              </li>
            ))}
          </ol>
        </section>
      )}
    </>
  );
}

/**
 * The progress of a step. Only the current step has a bar: the last report of a finished step is not its end.
 */
export function StepLine({ of, isLast }: { of: Step; isLast: boolean }) {
  const { step, message, doneBytes, totalBytes } = of;
  const words = [texts.work.step(step), message].filter((text) => text !== "").map(plainLine);
  const done = doneBytes === undefined ? "" : formatBytes(doneBytes);
  const share = totalBytes === undefined ? done : texts.overview.used(done, formatBytes(totalBytes));
  return (
    <>
      <bdi>{words.join(" – ")}</bdi> {isLast && <span class="quiet">{share}</span>}
      {isLast && isMeasured(of) && (
        <Bar label={words.join(" ")} share={percentOf(doneBytes ?? 0n, totalBytes ?? 1n)} />
      )}
    </>
  );
}

/** Shown next to the button that starts the work. */
export function CancelWork<S extends DescMessage>({ of }: { of: LongWork<S> }) {
  if (!of.isBusy) return null;
  return (
    <ConfirmButton
      title={texts.work.cancelTitle}
      action={texts.work.cancel}
      isDanger={false}
      onConfirm={() => of.cancel()}
    >
      <p>{texts.app.cancelLoses}</p>
    </ConfirmButton>
  );
}

function Accept({ of: { licenses, permissions }, onAccept }: { of: LicenseRequired; onAccept: () => void }) {
  const id = useId();
  const card = useRef<HTMLElement>(null);
  // The question may appear long after the click, and outside of the visible area.
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
