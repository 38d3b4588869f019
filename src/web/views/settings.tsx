import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { App, AppSettings } from "../../../gen/svc/v1/app_pb.ts";
import { useAction } from "../action.ts";
import { describeError, type Api } from "../api.ts";
import { isRunning } from "../app-state.ts";
import { Failure } from "../parts/failure.tsx";
import { Field, type Described } from "../parts/field.tsx";
import { Text } from "../parts/text.tsx";
import { ended, plainText } from "../plain-text.ts";
import { goToFirstProblem, type Problems } from "../form.ts";
import {
  chosenValues,
  fieldsOf,
  settingProblemsOf,
  type Draft,
  type Field as Setting,
} from "../settings-form.ts";
import { texts } from "../texts.ts";

/** The settings form of an app. Typed values stay until they are saved or discarded. */
export function SettingsView({ api, app }: { api: Api; app: App }) {
  const { id, updatedAt, restartRequired } = app;
  const restarting = useAction();
  const settings = useSignal<AppSettings | undefined>(undefined);
  const draft = useSignal<Draft>({});
  const problems = useSignal<Problems>({});
  const notice = useSignal("");
  /** Why the app could not start with the saved settings. */
  const obstacles = useSignal<readonly string[]>([]);
  const isSaving = useSignal(false);
  useEffect(() => {
    const over = new AbortController();
    api.apps.getAppSettings({ id }, { signal: over.signal }).then(
      (read) => (settings.value = read),
      (error: unknown) => {
        if (!over.signal.aborted) problems.value = { "": describeError(error) };
      },
    );
    return () => over.abort();
  }, [api, id, updatedAt?.seconds, updatedAt?.nanos]);

  const save = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    notice.value = "";
    obstacles.value = [];
    if (settings.value === undefined || isSaving.value || !form.reportValidity()) return;
    isSaving.value = true;
    const sent = draft.value;
    try {
      const values = chosenValues(settings.value, sent);
      settings.value = await api.apps.updateAppSettings({ id, values });
      // The user may have typed more while saving.
      draft.value = Object.fromEntries(
        Object.entries(draft.value).filter(([key, value]) => value !== sent[key]),
      );
      problems.value = {};
      obstacles.value = settings.value.notes;
      notice.value =
        settings.value.restartRequired && obstacles.value.length === 0
          ? texts.settings.savedForRestart
          : texts.settings.saved;
    } catch (error) {
      problems.value = settingProblemsOf(error);
      goToFirstProblem(form);
    } finally {
      isSaving.value = false;
    }
  };
  const type = (key: string, value: string | boolean): void => {
    draft.value = { ...draft.value, [key]: value };
    problems.value = Object.fromEntries(Object.entries(problems.value).filter(([of]) => of !== key));
    notice.value = "";
  };
  const takeBack = (): void => {
    draft.value = {};
    problems.value = {};
  };
  const isDraft = Object.keys(draft.value).length > 0;
  const fields = settings.value === undefined ? [] : fieldsOf(settings.value);
  const { "": general = "" } = problems.value;
  if (settings.value !== undefined && fields.length === 0) return undefined;
  return (
    <section class="card" aria-labelledby="settings">
      <h2 id="settings">{texts.settings.title}</h2>
      <form class="settings" onSubmit={(event) => void save(event)}>
        {fields.map((field) => (
          <FieldView
            key={field.key}
            field={field}
            value={draft.value[field.key] ?? field.value}
            problem={problems.value[field.key]}
            onType={(value) => type(field.key, value)}
          />
        ))}
        <Failure message={general} />
        <Failure message={restarting.failure} />
        <Failure message={obstacles.value.map(ended).join(" ")} />
        <div class="row">
          <button type="submit" aria-busy={isSaving.value} aria-disabled={!isDraft}>
            {texts.settings.save}
          </button>
          {isDraft && (
            <button type="button" onClick={takeBack}>
              {texts.settings.undo}
            </button>
          )}
          <span role="status">{notice.value}</span>
          {restartRequired && isRunning(app) && obstacles.value.length === 0 && (
            <button
              type="button"
              aria-busy={restarting.busy !== ""}
              onClick={() =>
                void restarting.perform("restart", async () => {
                  await api.apps.restartApp({ id });
                  notice.value = "";
                })
              }
            >
              {texts.settings.restart}
            </button>
          )}
        </div>
      </form>
    </section>
  );
}

interface FieldProps {
  field: Setting;
  value: string | boolean;
  problem: string | undefined;
  onType: (value: string | boolean) => void;
}

function FieldView({ field, value, problem, onType }: FieldProps) {
  const { key, description, defaultText, isStored } = field;
  const hint = [
    ended(description),
    defaultText === "" ? "" : texts.settings.standard(defaultText),
    isStored ? texts.settings.kept : "",
  ];
  return (
    <Field
      label={<Text of={key} />}
      hint={<Text of={hint.filter((text) => text !== "").join(" ")} />}
      problem={problem}
    >
      {(described) => <Input field={field} value={value} onType={onType} described={described} />}
    </Field>
  );
}

type InputProps = Pick<FieldProps, "field" | "value" | "onType"> & { described: Described };

function Input({ field, value, onType, described: common }: InputProps) {
  const { kind, bounds, choices, isRequired, isStored } = field;
  const text = typeof value === "string" ? value : "";
  if (kind === "boolean") {
    return (
      <input
        {...common}
        type="checkbox"
        checked={value === true}
        onChange={({ currentTarget }) => onType(currentTarget.checked)}
      />
    );
  }
  if (kind === "choice") {
    return (
      <select {...common} value={text} onChange={({ currentTarget }) => onType(currentTarget.value)}>
        {!choices.includes(text) && <option value={text}>{plainText(text)}</option>}
        {choices.map((choice) => (
          <option key={choice} value={choice}>
            {plainText(choice)}
          </option>
        ))}
      </select>
    );
  }
  if (kind === "json") {
    return (
      <textarea
        {...common}
        rows={3}
        value={text}
        onInput={({ currentTarget }) => onType(currentTarget.value)}
      />
    );
  }
  const typed = {
    ...common,
    ...bounds,
    spellcheck: false,
    required: isRequired && !isStored,
    value: text,
    onInput: ({ currentTarget }: { currentTarget: HTMLInputElement }) => onType(currentTarget.value),
  };
  if (kind === "number") return <input {...typed} type="number" />;
  if (kind === "text") return <input {...typed} type="text" autocomplete="off" />;
  const placeholder = isStored ? texts.settings.hidden : undefined;
  return <input {...typed} type="password" autocomplete="new-password" placeholder={placeholder} />;
}
