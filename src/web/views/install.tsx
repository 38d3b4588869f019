import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { Progress } from "../../../gen/svc/v1/app_pb.ts";
import type { Ambiguous, LicenseRequired } from "../../../gen/svc/v1/error_pb.ts";
import { describeError, payloadOf, type Api } from "../api.ts";
import { Failure } from "../parts/failure.tsx";
import { Heading } from "../parts/heading.tsx";
import { plainLine, plainText } from "../plain-text.ts";
import { pathTo } from "../route.ts";
import { texts } from "../texts.ts";
import { formatBytes } from "../units.ts";

const mostSteps = 100;

/** What the daemon wants to know before it goes on. */
type Question =
  | { readonly kind: "accept"; readonly of: LicenseRequired }
  | { readonly kind: "choose"; readonly of: Ambiguous };

/** What was said yes to: each for itself, and for one package only. */
interface Accepted {
  readonly licenseAck: boolean;
  readonly permissionsAck: boolean;
}

const nothing: Accepted = { licenseAck: false, permissionsAck: false };

/** A package becomes an app. What was typed stays, whatever happens. */
export function InstallView({ api }: { api: Api }) {
  const spec = useSignal("");
  const name = useSignal("");
  const steps = useSignal<readonly string[]>([]);
  const question = useSignal<Question | undefined>(undefined);
  const accepted = useSignal(nothing);
  const failure = useSignal("");
  const underWay = useSignal<AbortController | undefined>(undefined);
  // The daemon cancels what nobody waits for any more.
  useEffect(() => () => underWay.value?.abort(), []);

  const install = async (): Promise<void> => {
    if (underWay.value !== undefined) return;
    const over = new AbortController();
    underWay.value = over;
    question.value = undefined;
    failure.value = "";
    steps.value = [];
    try {
      const request = { spec: spec.value.trim(), name: name.value.trim(), ...accepted.value };
      for await (const { event } of api.apps.installAppStream(request, { signal: over.signal })) {
        if (event.case === "app") location.hash = pathTo("apps", event.value.id);
        else if (event.case === "progress")
          steps.value = [...steps.value, stepText(event.value)].slice(-mostSteps);
      }
    } catch (error) {
      const asked = questionOf(error);
      if (asked === undefined || isAnswered(asked, accepted.value))
        failure.value = over.signal.aborted ? texts.install.cancelled : describeError(error);
      else question.value = asked;
    } finally {
      underWay.value = undefined;
    }
  };
  const accept = ({ licenses, permissions }: LicenseRequired): void => {
    accepted.value = {
      licenseAck: accepted.value.licenseAck || licenses.length > 0,
      permissionsAck: accepted.value.permissionsAck || permissions.length > 0,
    };
    void install();
  };
  const choose = (of: string): void => {
    spec.value = of;
    void install();
  };
  const submit = (event: SubmitEvent): void => {
    event.preventDefault();
    accepted.value = nothing;
    void install();
  };
  const asked = question.value;
  return (
    <>
      <a class="back" href={pathTo("apps")}>
        {texts.app.back}
      </a>
      <Heading title={texts.install.title} />
      <form class="card settings" onSubmit={submit}>
        <div class="field">
          <label for="spec">{texts.install.spec}</label>
          <input
            id="spec"
            type="text"
            required
            spellcheck={false}
            autocomplete="off"
            aria-describedby="spec-hint"
            value={spec.value}
            onInput={({ currentTarget }) => (spec.value = currentTarget.value)}
          />
          <p class="quiet" id="spec-hint">
            {texts.install.specHint}
          </p>
        </div>
        <div class="field">
          <label for="name">{texts.install.name}</label>
          <input
            id="name"
            type="text"
            autocomplete="off"
            aria-describedby="name-hint"
            value={name.value}
            onInput={({ currentTarget }) => (name.value = currentTarget.value)}
          />
          <p class="quiet" id="name-hint">
            {texts.install.nameHint}
          </p>
        </div>
        <div class="row">
          <button type="submit" aria-busy={underWay.value !== undefined}>
            {texts.install.submit}
          </button>
          {underWay.value !== undefined && (
            <button type="button" onClick={() => underWay.value?.abort()}>
              {texts.install.cancel}
            </button>
          )}
        </div>
      </form>
      <Failure says={failure.value} />
      {asked?.kind === "accept" && <Accept of={asked.of} onAccept={() => accept(asked.of)} />}
      {asked?.kind === "choose" && <Choose of={asked.of} onChoose={choose} />}
      {steps.value.length > 0 && (
        <section class="card" aria-labelledby="steps">
          <h2 id="steps">{texts.install.steps}</h2>
          <ol class="troubles" aria-live="polite">
            {steps.value.map((step, at) => (
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

function Accept({ of: { licenses, permissions }, onAccept }: { of: LicenseRequired; onAccept: () => void }) {
  return (
    <section class="card" aria-labelledby="accept" role="alert">
      <h2 id="accept">{texts.install.asks}</h2>
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
        {texts.install.accept}
      </button>
    </section>
  );
}

function Choose({ of: { candidates }, onChoose }: { of: Ambiguous; onChoose: (spec: string) => void }) {
  return (
    <section class="card" aria-labelledby="choose" role="alert">
      <h2 id="choose">{texts.install.choose}</h2>
      <ul class="troubles">
        {candidates.map(({ spec, name, summary }) => (
          <li key={spec}>
            <button type="button" onClick={() => onChoose(spec)}>
              <bdi>{plainText(spec)}</bdi>
            </button>{" "}
            <bdi>{plainText([name, summary].filter((text) => text !== "").join(": "))}</bdi>
          </li>
        ))}
      </ul>
    </section>
  );
}

function questionOf(error: unknown): Question | undefined {
  const payload = payloadOf(error);
  if (payload?.case === "licenseRequired") return { kind: "accept", of: payload.value };
  return payload?.case === "ambiguous" ? { kind: "choose", of: payload.value } : undefined;
}

/** What was accepted and is asked for all the same would be asked for again and again. */
function isAnswered(question: Question, { licenseAck, permissionsAck }: Accepted): boolean {
  if (question.kind === "choose") return false;
  const { licenses, permissions } = question.of;
  return (licenses.length === 0 || licenseAck) && (permissions.length === 0 || permissionsAck);
}

function stepText({ step, message, doneBytes, totalBytes }: Progress): string {
  const bytes = doneBytes === undefined ? "" : formatBytes(doneBytes);
  const share = totalBytes === undefined ? bytes : texts.overview.used(bytes, formatBytes(totalBytes));
  return [step, message, share]
    .filter((text) => text !== "")
    .map(plainLine)
    .join(" – ");
}
