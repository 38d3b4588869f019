import { useSignal } from "@preact/signals";
import type { Ambiguous } from "../../../gen/svc/v1/error_pb.ts";
import { useLongWork } from "../long-work.ts";
import { TextField, typedInto } from "../parts/field.tsx";
import { Heading } from "../parts/heading.tsx";
import { lazily } from "../parts/lazily.tsx";
import { CancelWork, Work } from "../parts/work.tsx";
import { Text } from "../parts/text.tsx";
import { pathTo } from "../route.ts";
import { texts } from "../texts.ts";
import type { ViewProps } from "../view-props.ts";

const Packages = lazily(() => import("./packages.tsx"), "Packages");

/** A package becomes an app. What was typed stays, whatever happens. */
export function InstallView({ api, node }: Pick<ViewProps, "api" | "node">) {
  const spec = useSignal("");
  const tag = useSignal("");
  const name = useSignal("");
  /** As it was submitted: a yes is to what was shown, whatever is typed meanwhile. */
  const wanted = useSignal({ spec: "", tag: "", name: "" });
  const work = useLongWork(
    (accepted, signal) => api.apps.installAppStream({ ...wanted.value, ...accepted }, { signal }),
    ({ value }) => (location.hash = pathTo("apps", value.id)),
  );
  /** Of a card: as if its spec had been typed. */
  const install = (of: string): void => {
    // To where it says how it goes, or why it does not.
    scrollTo(0, 0);
    if (!work.mayBegin()) return;
    [spec.value, tag.value] = [of, ""];
    wanted.value = { spec: of, tag: "", name: name.value.trim() };
    void work.run();
  };
  const submit = (event: SubmitEvent): void => {
    event.preventDefault();
    if (!work.mayBegin()) return;
    wanted.value = { spec: spec.value.trim(), tag: tag.value.trim(), name: name.value.trim() };
    void work.run();
  };
  const choose = (of: string): void => {
    if (!work.mayBegin()) return;
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
      <form class="card settings across" onSubmit={submit}>
        <TextField
          label={texts.install.spec}
          hint={texts.install.specHint}
          {...typedInto(spec)}
          input={{ required: true }}
        />
        <TextField
          label={texts.install.version}
          hint={texts.install.versionHint}
          {...typedInto(tag)}
          input={{ maxLength: 256 }}
        />
        <TextField label={texts.install.name} hint={texts.install.nameHint} {...typedInto(name)} />
        <div class="row">
          <button type="submit" aria-busy={work.isBusy}>
            {texts.install.submit}
          </button>
          <CancelWork of={work} />
        </div>
      </form>
      <Work of={work} />
      {asked?.kind === "choose" && <Choose of={asked.of} onChoose={choose} />}
      <Packages api={api} node={node} onChoose={install} />
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
              <Text of={spec} />
            </button>{" "}
            <Text of={[name, summary].filter((text) => text !== "").join(": ")} />
          </li>
        ))}
      </ul>
    </section>
  );
}
