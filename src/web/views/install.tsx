import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import type { Ambiguous } from "../../../gen/svc/v1/error_pb.ts";
import type { Api } from "../api.ts";
import { LongWork } from "../long-work.ts";
import { Heading } from "../parts/heading.tsx";
import { CancelWork, Work } from "../parts/work.tsx";
import { plainText } from "../plain-text.ts";
import { pathTo } from "../route.ts";
import { texts } from "../texts.ts";

/** A package becomes an app. What was typed stays, whatever happens. */
export function InstallView({ api }: { api: Api }) {
  const spec = useSignal("");
  const name = useSignal("");
  /** As it was submitted: a yes is to what was shown, whatever is typed meanwhile. */
  const wanted = useSignal({ spec: "", name: "" });
  const work = useMemo(
    () =>
      new LongWork(
        (accepted, signal) => api.apps.installAppStream({ ...wanted.value, ...accepted }, { signal }),
        ({ value }) => (location.hash = pathTo("apps", value.id)),
      ),
    [api],
  );
  useEffect(() => () => work.cancel(), [work]);
  const submit = (event: SubmitEvent): void => {
    event.preventDefault();
    if (work.isBusy) return;
    wanted.value = { spec: spec.value.trim(), name: name.value.trim() };
    void work.run();
  };
  const choose = (of: string): void => {
    if (work.isBusy) return;
    spec.value = of;
    wanted.value = { ...wanted.value, spec: of };
    void work.again();
  };
  const asked = work.question.value;
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
          <button type="submit" aria-busy={work.isBusy}>
            {texts.install.submit}
          </button>
          <CancelWork of={work} />
        </div>
      </form>
      <Work of={work} />
      {asked?.kind === "choose" && <Choose of={asked.of} onChoose={choose} />}
    </>
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
