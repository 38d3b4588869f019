import { useSignal } from "@preact/signals";
import { AppSchema } from "../../../gen/svc/v1/app_pb.ts";
import type { Ambiguous } from "../../../gen/svc/v1/error_pb.ts";
import { useLongWork } from "../long-work.ts";
import { AppNameField } from "../parts/app-name-field.tsx";
import { TextField, bindText } from "../parts/field.tsx";
import { Heading } from "../parts/heading.tsx";
import { lazily } from "../parts/lazily.tsx";
import { RunningOperations } from "../parts/running-operations.tsx";
import { CancelWork, Work } from "../parts/work.tsx";
import { Text } from "../parts/text.tsx";
import { pathTo } from "../route.ts";
import { texts } from "../texts.ts";
import type { ViewProps } from "../view-props.ts";

const Packages = lazily(() => import("./packages.tsx"), "Packages");

/** The form to install a package. Typed values stay after errors. */
export function InstallView({ api, node }: Pick<ViewProps, "api" | "node">) {
  const spec = useSignal("");
  const tag = useSignal("");
  const name = useSignal("");
  /** The submitted values: consent applies to these, even if the user has typed something else since. */
  const submitted = useSignal({ spec: "", tag: "", name: "" });
  const work = useLongWork(
    node.operations,
    AppSchema,
    (accepted, signal) => api.apps.installApp({ ...submitted.value, ...accepted, detach: true }, { signal }),
    ({ id }) => (location.hash = pathTo("apps", id)),
  );
  /** Installs a package card, as if its spec had been typed. */
  const install = (of: string): void => {
    // Scrolls to the progress.
    scrollTo(0, 0);
    if (!work.mayStart()) return;
    [spec.value, tag.value] = [of, ""];
    submitted.value = { spec: of, tag: "", name: name.value.trim() };
    void work.run();
  };
  const submit = (event: SubmitEvent): void => {
    event.preventDefault();
    if (!work.mayStart()) return;
    submitted.value = { spec: spec.value.trim(), tag: tag.value.trim(), name: name.value.trim() };
    void work.run();
  };
  const choose = (of: string): void => {
    if (!work.mayStart()) return;
    spec.value = of;
    submitted.value = { ...submitted.value, spec: of };
    void work.runAgain();
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
          {...bindText(spec)}
          input={{ required: true }}
        />
        <TextField
          label={texts.install.version}
          hint={texts.install.versionHint}
          {...bindText(tag)}
          input={{ maxLength: 256 }}
        />
        <AppNameField label={texts.install.name} hint={texts.install.nameHint} {...{ name, node }} />
        <div class="row">
          <button type="submit" aria-busy={work.isBusy}>
            {texts.install.submit}
          </button>
          <CancelWork of={work} />
        </div>
      </form>
      <Work of={work} />
      {!work.isBusy && <RunningOperations node={node} />}
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
