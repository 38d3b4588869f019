import type { Client } from "@connectrpc/connect";
import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import type { Schedule, ScheduleFiring, ScheduleService } from "../../../../gen/svc/v1/schedule_pb.ts";
import { useForm, problemsOf } from "../../form.ts";
import type { NodeView } from "../../node-view.ts";
import { ChoiceField, Field, TextField } from "../../parts/field.tsx";
import { FormEnd } from "../../parts/form-end.tsx";
import { Heading } from "../../parts/heading.tsx";
import { Text } from "../../parts/text.tsx";
import { When } from "../../parts/when.tsx";
import { plainText } from "../../plain-text.ts";
import { pathTo } from "../../route.ts";
import { scheduleTexts } from "../../texts/schedules.ts";
import { draftOf, fieldsOfType, requestOf, rootTypes } from "./schedule-draft.ts";
import { TriggerBuilder } from "./trigger-builder.tsx";

const { form: labels, actions, editTitle, addTitle } = scheduleTexts;
const methods = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"];
/** Milliseconds without input before the preview is updated. */
const previewAfterMs = 300;

interface Props {
  client: Client<typeof ScheduleService>;
  node: NodeView;
  /** The schedule to change; undefined to add one. */
  before?: Schedule;
}

/** The form of a schedule. The daemon reports problems, and typed values stay. */
export function ScheduleForm({ client, node, before: read }: Props) {
  // The draft is based on this revision. Sending a later revision would overwrite others' changes.
  const before = useMemo(() => read, []);
  const isMoreOpen = useSignal(false);
  const form = useForm(draftOf(before), async (draft, _set, signal) => {
    try {
      const { owner, id } = await client.upsertSchedule(requestOf(draft, before));
      // Do not navigate if the user has opened another view.
      if (!signal.aborted) location.hash = pathTo("schedules", String(owner), id);
    } catch (error) {
      isMoreOpen.value ||= Object.keys(problemsOf(error)).some((field) => moreFields.includes(field));
      throw error;
    }
    return "";
  });
  const { type, trigger, timeZone, command, isEnabled } = form.draft;
  const isRoot = node.status.value?.caller?.root === true;
  const leave =
    before === undefined ? pathTo("schedules") : pathTo("schedules", String(before.owner), before.id);
  const number = (min: number, max: number) => ({ type: "number" as const, min, max, required: true });
  const apps = [...(node.apps.value?.values() ?? [])].map(
    ({ id, name }) => [id, plainText(`${name} (${id})`)] as const,
  );
  const used = fieldsOfType[type] ?? [];
  const types = Object.entries(actions).filter(([name]) => isRoot || !rootTypes.includes(name));
  return (
    <>
      {before === undefined && (
        <a class="back" href={leave}>
          {scheduleTexts.all}
        </a>
      )}
      <Heading title={before === undefined ? addTitle : editTitle(plainText(before.id))} />
      <form class="card settings" onSubmit={form.submit}>
        {before === undefined && (
          <TextField label={labels.id} hint={labels.idHint} input={{ required: true }} {...form.of("id")} />
        )}
        <ChoiceField label={labels.type} choices={types} {...form.of("type", "action.type")} />
        {used.includes("command") && (
          <Field label={labels.command} problem={form.of("command", "action.command").problem}>
            {(described) => (
              <textarea
                {...described}
                required
                rows={3}
                spellcheck={false}
                value={command}
                onInput={({ currentTarget }) => form.set({ command: currentTarget.value })}
              />
            )}
          </Field>
        )}
        {used.includes("app") && (
          <ChoiceField
            label={labels.app}
            choices={[["", labels.noApp], ...apps]}
            {...form.of("app", "action.app")}
          />
        )}
        {used.includes("url") && (
          <>
            <TextField
              label={labels.url}
              input={{ type: "url", required: true }}
              {...form.of("url", "action.url")}
            />
            <ChoiceField
              label={labels.method}
              choices={methods.map((method) => [method, method])}
              {...form.of("method", "action.method")}
            />
            <TextField label={labels.body} {...form.of("body", "action.body")} />
          </>
        )}
        {used.includes("storages") && (
          <TextField
            label={labels.storages}
            hint={labels.storagesHint}
            {...form.of("storages", "action.storages")}
          />
        )}
        {used.includes("keep") && (
          <TextField
            label={labels.keep}
            hint={labels.keepHint}
            input={{ type: "number", min: 1, max: 100_000 }}
            {...form.of("keep", "keep")}
          />
        )}
        <TriggerBuilder apps={apps} trigger={trigger} onBuilt={(built) => form.set({ trigger: built })} />
        <TextField
          label={labels.trigger}
          hint={labels.triggerHint}
          input={{ required: true }}
          {...form.of("trigger")}
        />
        <TextField label={labels.timeZone} hint={labels.timeZoneHint} {...form.of("timeZone", "time_zone")} />
        <Preview client={client} trigger={trigger.trim()} timeZone={timeZone.trim()} />
        <details
          open={isMoreOpen.value}
          onToggle={({ currentTarget }) => (isMoreOpen.value = currentTarget.open)}
          onInvalidCapture={({ currentTarget }) => (currentTarget.open = true)}
        >
          <summary>{labels.more}</summary>
          <TextField label={labels.timeout} input={number(1, 3600)} {...form.of("timeout")} />
          <TextField label={labels.retries} input={number(0, 10)} {...form.of("retries")} />
          <TextField label={labels.jitter} input={number(0, 3600)} {...form.of("jitter", "jitter_secs")} />
          <ChoiceField
            label={labels.catchUp}
            choices={Object.entries(labels.catchUps)}
            {...form.of("catchUp", "catch_up")}
          />
        </details>
        <TextField label={labels.comment} {...form.of("comment")} />
        <Field label={labels.enabled}>
          {(described) => (
            <input
              {...described}
              type="checkbox"
              checked={isEnabled}
              onChange={({ currentTarget }) => form.set({ isEnabled: currentTarget.checked })}
            />
          )}
        </Field>
        <FormEnd form={form} action={labels.save}>
          <a class="button" href={leave}>
            {labels.leave}
          </a>
        </FormEnd>
      </form>
    </>
  );
}

/** Rarely changed fields. */
const moreFields: readonly string[] = ["timeout", "retries", "jitter_secs", "catch_up"];

/** A preview of the next runs, updated while the user types. */
function Preview({
  client,
  trigger,
  timeZone,
}: Pick<Props, "client"> & { trigger: string; timeZone: string }) {
  const firings = useSignal<readonly ScheduleFiring[]>([]);
  const failure = useSignal("");
  const isOpen = useSignal(false);
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
      isOpen.value = true;
    };
    const timer = setTimeout(() => void ask(), previewAfterMs);
    return () => {
      clearTimeout(timer);
      over.abort();
    };
  }, [client, trigger, timeZone]);
  if (!isOpen.value) return null;
  return (
    <div class="field">
      <span>{labels.firings}</span>
      {failure.value !== "" ? (
        <p class="notice bad" role="status">
          <Text of={failure.value} />
        </p>
      ) : (
        <ol class="troubles" aria-label={labels.firings}>
          {firings.value.length === 0 && <li>{labels.noFirings}</li>}
          {firings.value.map(({ unix, anomaly }) => (
            <li key={String(unix)}>
              <When at={new Date(Number(unix) * 1000)} />{" "}
              <span class="quiet">{labels.anomaly[anomaly] ?? ""}</span>
            </li>
          ))}
        </ol>
      )}
      {failure.value === "" && firings.value.length > 0 && <p class="quiet">{labels.firingsHint}</p>}
    </div>
  );
}
