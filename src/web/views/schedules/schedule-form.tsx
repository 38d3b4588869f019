import type { Client } from "@connectrpc/connect";
import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import type { Schedule, ScheduleFiring, ScheduleService } from "../../../../gen/svc/v1/schedule_pb.ts";
import { goToFirstProblem } from "../../first-problem.ts";
import type { NodeView } from "../../node-view.ts";
import { Failure } from "../../parts/failure.tsx";
import { ChoiceField, Field, TextField } from "../../parts/field.tsx";
import { Heading } from "../../parts/heading.tsx";
import { Text } from "../../parts/text.tsx";
import { When } from "../../parts/when.tsx";
import { plainText } from "../../plain-text.ts";
import { problemsOf, type Problems } from "../../problems.ts";
import { pathTo } from "../../route.ts";
import { scheduleTexts } from "../../texts/schedules.ts";
import { draftOf, fieldsOfType, requestOf, rootTypes, type ScheduleDraft } from "./schedule-draft.ts";
import { TriggerBuilder } from "./trigger-builder.tsx";

const { form: says, actions, editTitle, addTitle } = scheduleTexts;
const methods = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"];
/** Whoever types is not asked about each letter. */
const previewAfterMs = 300;

interface Props {
  client: Client<typeof ScheduleService>;
  node: NodeView;
  /** The one that is changed; a new one is made without. */
  before?: Schedule;
}

/** A schedule as a form; the daemon says what is wrong with it, and what was typed stays. */
export function ScheduleForm({ client, node, before: read }: Props) {
  // The draft was made of this one: with the revision of a later one it would undo what others changed.
  const before = useMemo(() => read, []);
  const draft = useSignal(draftOf(before));
  const problems = useSignal<Problems>({});
  const isBusy = useSignal(false);
  const isMoreOpen = useSignal(false);
  const { type, trigger, timeZone } = draft.value;
  const isRoot = node.status.value?.caller?.root === true;
  const set = (change: Partial<ScheduleDraft>): void => void (draft.value = { ...draft.value, ...change });
  const leave =
    before === undefined ? pathTo("schedules") : pathTo("schedules", String(before.owner), before.id);

  const save = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    if (isBusy.value || !form.reportValidity()) return;
    isBusy.value = true;
    problems.value = {};
    try {
      const { owner, id } = await client.upsertSchedule(requestOf(draft.value, before));
      location.hash = pathTo("schedules", String(owner), id);
    } catch (error) {
      problems.value = problemsOf(error);
      isMoreOpen.value ||= Object.keys(problems.value).some((field) => moreFields.includes(field));
      goToFirstProblem(form);
    } finally {
      isBusy.value = false;
    }
  };
  const typed = (field: keyof ScheduleDraft, of: string = field) => ({
    value: String(draft.value[field]),
    problem: problems.value[of],
    onType: (value: string) => set({ [field]: value }),
  });
  const number = (min: number, max: number) => ({ type: "number" as const, min, max, required: true });
  const apps = [...(node.apps.value?.values() ?? [])].map(
    ({ id, name }) => [id, plainText(`${name} (${id})`)] as const,
  );
  const uses = (field: "app" | "command" | "url" | "storages" | "keep"): boolean =>
    fieldsOfType[type]?.includes(field) === true;
  const types = Object.entries(actions).filter(([name]) => isRoot || !rootTypes.includes(name));
  /** What is said of a field that is not shown is said above the button. */
  const elsewhere = Object.entries(problems.value)
    .filter(([field]) => !shownFields.includes(field))
    .map(([, problem]) => problem);
  return (
    <>
      {before === undefined && (
        <a class="back" href={leave}>
          {scheduleTexts.all}
        </a>
      )}
      <Heading title={before === undefined ? addTitle : editTitle(plainText(before.id))} />
      <form class="card settings" onSubmit={(event) => void save(event)}>
        {before === undefined && (
          <TextField label={says.id} hint={says.idHint} input={{ required: true }} {...typed("id")} />
        )}
        <ChoiceField label={says.type} choices={types} {...typed("type", "action.type")} />
        {uses("command") && (
          <Field label={says.command} problem={problems.value["action.command"]}>
            {(described) => (
              <textarea
                {...described}
                required
                rows={3}
                spellcheck={false}
                value={draft.value.command}
                onInput={({ currentTarget }) => set({ command: currentTarget.value })}
              />
            )}
          </Field>
        )}
        {uses("app") && (
          <ChoiceField
            label={says.app}
            choices={[["", says.noApp], ...apps]}
            {...typed("app", "action.app")}
          />
        )}
        {uses("url") && (
          <>
            <TextField
              label={says.url}
              input={{ type: "url", required: true }}
              {...typed("url", "action.url")}
            />
            <ChoiceField
              label={says.method}
              choices={methods.map((method) => [method, method])}
              {...typed("method", "action.method")}
            />
            <TextField label={says.body} {...typed("body", "action.body")} />
          </>
        )}
        {uses("storages") && (
          <TextField
            label={says.storages}
            hint={says.storagesHint}
            {...typed("storages", "action.storages")}
          />
        )}
        {uses("keep") && (
          <TextField
            label={says.keep}
            hint={says.keepHint}
            input={{ type: "number", min: 1, max: 100_000 }}
            {...typed("keep", "action.keep")}
          />
        )}
        <TriggerBuilder apps={apps} trigger={trigger} onBuilt={(built) => set({ trigger: built })} />
        <TextField
          label={says.trigger}
          hint={says.triggerHint}
          input={{ required: true }}
          {...typed("trigger")}
        />
        <TextField label={says.timeZone} hint={says.timeZoneHint} {...typed("timeZone", "time_zone")} />
        <Preview client={client} trigger={trigger.trim()} timeZone={timeZone.trim()} />
        <details
          open={isMoreOpen.value}
          onToggle={({ currentTarget }) => (isMoreOpen.value = currentTarget.open)}
          onInvalidCapture={({ currentTarget }) => (currentTarget.open = true)}
        >
          <summary>{says.more}</summary>
          <TextField label={says.timeout} input={number(1, 3600)} {...typed("timeout")} />
          <TextField label={says.retries} input={number(0, 10)} {...typed("retries")} />
          <TextField label={says.jitter} input={number(0, 3600)} {...typed("jitter", "jitter_secs")} />
          <ChoiceField
            label={says.catchUp}
            choices={Object.entries(says.catchUps)}
            {...typed("catchUp", "catch_up")}
          />
        </details>
        <TextField label={says.comment} {...typed("comment")} />
        <Field label={says.enabled}>
          {(described) => (
            <input
              {...described}
              type="checkbox"
              checked={draft.value.isEnabled}
              onChange={({ currentTarget }) => set({ isEnabled: currentTarget.checked })}
            />
          )}
        </Field>
        <Failure says={elsewhere.join(" ")} />
        <div class="row">
          <button type="submit" aria-busy={isBusy.value}>
            {says.save}
          </button>
          <a class="button" href={leave}>
            {says.leave}
          </a>
        </div>
      </form>
    </>
  );
}

/** Those that few people change. */
const moreFields: readonly string[] = ["timeout", "retries", "jitter_secs", "catch_up"];

/** Fields of the request that a problem is shown beside. */
const shownFields: readonly string[] = [
  "id",
  "trigger",
  "time_zone",
  "comment",
  ...moreFields,
  ...["type", "command", "app", "url", "method", "body", "storages", "keep"].map((name) => `action.${name}`),
];

/** When it would run, as one types. */
function Preview({
  client,
  trigger,
  timeZone,
}: Pick<Props, "client"> & { trigger: string; timeZone: string }) {
  const firings = useSignal<readonly ScheduleFiring[]>([]);
  const failure = useSignal("");
  const isAsked = useSignal(false);
  useEffect(() => {
    if (trigger === "") return;
    const over = new AbortController();
    const ask = async (): Promise<void> => {
      try {
        const answer = await client.previewSchedule(
          { trigger, timeZone, count: 10 },
          { signal: over.signal },
        );
        firings.value = answer.firings;
        failure.value = "";
      } catch (error) {
        if (!over.signal.aborted) failure.value = Object.values(problemsOf(error)).join(" ");
      }
      isAsked.value = true;
    };
    const timer = setTimeout(() => void ask(), previewAfterMs);
    return () => {
      clearTimeout(timer);
      over.abort();
    };
  }, [client, trigger, timeZone]);
  if (!isAsked.value) return null;
  return (
    <div class="field">
      <span>{says.firings}</span>
      {failure.value !== "" ? (
        <p class="notice bad" role="status">
          <Text of={failure.value} />
        </p>
      ) : (
        <ol class="troubles" aria-label={says.firings}>
          {firings.value.length === 0 && <li>{says.noFirings}</li>}
          {firings.value.map(({ unix, anomaly }) => (
            <li key={String(unix)}>
              <When at={new Date(Number(unix) * 1000)} />{" "}
              <span class="quiet">{says.anomaly[anomaly] ?? ""}</span>
            </li>
          ))}
        </ol>
      )}
      {failure.value === "" && firings.value.length > 0 && <p class="quiet">{says.firingsHint}</p>}
    </div>
  );
}
