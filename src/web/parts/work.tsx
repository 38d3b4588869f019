import { useSignal } from "@preact/signals";
import { useEffect, useId, useRef } from "preact/hooks";
import type { DescMessage } from "@bufbuild/protobuf";
import type { LicenseRequired } from "../../../gen/svc/v1/error_pb.ts";
import { isMeasured, type LongWork } from "../long-work.ts";
import { plainLine } from "../plain-text.ts";
import { texts } from "../texts.ts";
import { stepLines, type StepLineOf } from "../operations.ts";
import { formatBytes, formatElapsed } from "../units.ts";
import { ConfirmButton } from "./confirm.tsx";
import { Failure } from "./failure.tsx";
import { Bar, percentOf } from "./meter.tsx";
import { Text, Texts } from "./text.tsx";

/** The steps of an operation, its question, and its error. */
export function Work<S extends DescMessage>({ of }: { of: LongWork<S> }) {
  const id = useId();
  const asked = of.question.value;
  const now = useNow(of.isBusy);
  const steps = stepLines(of.steps.value, of.isBusy ? now : undefined);
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

/** Milliseconds since 1970; changes every second while something runs. */
function useNow(isRunning: boolean): number {
  const now = useSignal(Date.now());
  useEffect(() => {
    if (!isRunning) return undefined;
    const timer = setInterval(() => (now.value = Date.now()), 1_000);
    return () => clearInterval(timer);
  }, [isRunning]);
  return now.value;
}

/** Shorter steps show no elapsed time. */
const elapsedFromMs = 2_000;

/**
 * The progress of a step: `[2/4] Build – npm ci · 12 s`. Only the current step has a bar: the last report of a finished step is
 * not its end.
 */
export function StepLine({ of, isLast }: { of: StepLineOf; isLast: boolean }) {
  const { step, message, service = "", doneBytes, totalBytes, stepNumber, stepCount, tookMs = 0 } = of;
  const title = texts.work.numbered(texts.work.step(step), stepNumber, stepCount);
  const words = [title, service, message].filter((text) => text !== "").map(plainLine);
  const elapsed = tookMs < elapsedFromMs ? "" : ` · ${formatElapsed(tookMs / 1_000)}`;
  const done = doneBytes === undefined ? "" : formatBytes(doneBytes);
  const share = totalBytes === undefined ? done : texts.overview.used(done, formatBytes(totalBytes));
  return (
    <>
      <bdi>{words.join(" – ")}</bdi>
      {elapsed} {isLast && <span class="quiet">{share}</span>}
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
