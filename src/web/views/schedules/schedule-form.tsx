import type { Client } from "@connectrpc/connect";
import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import type { Schedule, ScheduleFiring, ScheduleService } from "../../../../gen/svc/v1/schedule_pb.ts";
import { useForm } from "../../form.ts";
import type { NodeView } from "../../node-view.ts";
import { ChoiceField, Field, TextField } from "../../parts/field.tsx";
import { FormEnd } from "../../parts/form-end.tsx";
import { Heading } from "../../parts/heading.tsx";
import { Text } from "../../parts/text.tsx";
import { When } from "../../parts/when.tsx";
import { plainText } from "../../plain-text.ts";
import { problemsOf } from "../../problems.ts";
import { pathTo } from "../../route.ts";
import { scheduleTexts } from "../../texts/schedules.ts";
import { draftOf, fieldsOfType, requestOf, rootTypes } from "./schedule-draft.ts";
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
  const isMoreOpen = useSignal(false);
  const form = useForm(draftOf(before), async (draft, _set, signal) => {
    try {
      const { owner, id } = await client.upsertSchedule(requestOf(draft, before));
      // Who looks at something else by now goes on with that.
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
          <TextField label={says.id} hint={says.idHint} input={{ required: true }} {...form.of("id")} />
        )}
        <ChoiceField label={says.type} choices={types} {...form.of("type", "action.type")} />
        {used.includes("command") && (
          <Field label={says.command} problem={form.of("command", "action.command").problem}>
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
            label={says.app}
            choices={[["", says.noApp], ...apps]}
            {...form.of("app", "action.app")}
          />
        )}
        {used.includes("url") && (
          <>
            <TextField
              label={says.url}
              input={{ type: "url", required: true }}
              {...form.of("url", "action.url")}
            />
            <ChoiceField
              label={says.method}
              choices={methods.map((method) => [method, method])}
              {...form.of("method", "action.method")}
            />
            <TextField label={says.body} {...form.of("body", "action.body")} />
          </>
        )}
        {used.includes("storages") && (
          <TextField
            label={says.storages}
            hint={says.storagesHint}
            {...form.of("storages", "action.storages")}
          />
        )}
        {used.includes("keep") && (
          <TextField
            label={says.keep}
            hint={says.keepHint}
            input={{ type: "number", min: 1, max: 100_000 }}
            {...form.of("keep", "action.keep")}
          />
        )}
        <TriggerBuilder apps={apps} trigger={trigger} onBuilt={(built) => form.set({ trigger: built })} />
        <TextField
          label={says.trigger}
          hint={says.triggerHint}
          input={{ required: true }}
          {...form.of("trigger")}
        />
        <TextField label={says.timeZone} hint={says.timeZoneHint} {...form.of("timeZone", "time_zone")} />
        <Preview client={client} trigger={trigger.trim()} timeZone={timeZone.trim()} />
        <details
          open={isMoreOpen.value}
          onToggle={({ currentTarget }) => (isMoreOpen.value = currentTarget.open)}
          onInvalidCapture={({ currentTarget }) => (currentTarget.open = true)}
        >
          <summary>{says.more}</summary>
          <TextField label={says.timeout} input={number(1, 3600)} {...form.of("timeout")} />
          <TextField label={says.retries} input={number(0, 10)} {...form.of("retries")} />
          <TextField label={says.jitter} input={number(0, 3600)} {...form.of("jitter", "jitter_secs")} />
          <ChoiceField
            label={says.catchUp}
            choices={Object.entries(says.catchUps)}
            {...form.of("catchUp", "catch_up")}
          />
        </details>
        <TextField label={says.comment} {...form.of("comment")} />
        <Field label={says.enabled}>
          {(described) => (
            <input
              {...described}
              type="checkbox"
              checked={isEnabled}
              onChange={({ currentTarget }) => form.set({ isEnabled: currentTarget.checked })}
            />
          )}
        </Field>
        <FormEnd form={form} action={says.save}>
          <a class="button" href={leave}>
            {says.leave}
          </a>
        </FormEnd>
      </form>
    </>
  );
}

/** Those that few people change. */
const moreFields: readonly string[] = ["timeout", "retries", "jitter_secs", "catch_up"];

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
