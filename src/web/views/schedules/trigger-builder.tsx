import { useSignal } from "@preact/signals";
import { ChoiceField, TextField } from "../../parts/field.tsx";
import { scheduleTexts } from "../../texts/schedules.ts";

const { builder: says } = scheduleTexts;

type Often = keyof typeof says.often;

/** What is asked for besides, by how often. */
const asksFor: Readonly<Record<Often, "nothing" | "time" | "day and time" | "app">> = {
  typed: "nothing",
  hour: "nothing",
  day: "time",
  workday: "time",
  week: "day and time",
  month: "time",
  crash: "app",
  backupFailed: "app",
};

interface Props {
  /** What it may be about, by id, and how that is called. */
  readonly apps: readonly (readonly [id: string, name: string])[];
  readonly onBuilt: (trigger: string) => void;
}

/** Writes a trigger for whoever does not know how: each choice is written at once, where it can be changed further. */
export function TriggerBuilder({ apps, onBuilt }: Props) {
  const often = useSignal<Often>("typed");
  const time = useSignal("02:30");
  const day = useSignal("1");
  /** Empty for any. */
  const app = useSignal("");
  const build = (): void => {
    const trigger = triggerOf(often.value, time.value, day.value, app.value);
    if (trigger !== undefined) onBuilt(trigger);
  };
  const asked = asksFor[often.value];
  return (
    <>
      <ChoiceField
        label={says.label}
        choices={Object.entries(says.often)}
        value={often.value}
        onType={(value) => {
          often.value = value as Often;
          build();
        }}
      />
      {asked === "day and time" && (
        <ChoiceField
          label={says.day}
          choices={Object.entries(says.days)}
          value={day.value}
          onType={(value) => {
            day.value = value;
            build();
          }}
        />
      )}
      {asked === "app" && (
        <ChoiceField
          label={says.app}
          choices={[["", says.anyApp], ...apps]}
          value={app.value}
          onType={(value) => {
            app.value = value;
            build();
          }}
        />
      )}
      {(asked === "time" || asked === "day and time") && (
        <TextField
          label={says.time}
          value={time.value}
          onType={(value) => {
            time.value = value;
            build();
          }}
          input={{ type: "time", required: true }}
        />
      )}
    </>
  );
}

/** Undefined while there is no time, and for what one types oneself. */
function triggerOf(often: Often, time: string, day: string, app: string): string | undefined {
  const [, hour, minute] = /^(\d\d):(\d\d)/.exec(time) ?? [];
  const isTimed = asksFor[often].endsWith("time");
  if (isTimed && (hour === undefined || minute === undefined)) return undefined;
  const at = `${String(Number(minute))} ${String(Number(hour))}`;
  switch (often) {
    case "typed":
      return undefined;
    case "hour":
      return "hourly";
    case "day":
      return `daily@${String(hour)}:${String(minute)}`;
    case "workday":
      return `${at} * * 1-5`;
    case "week":
      return `${at} * * ${day}`;
    case "month":
      return `${at} 1 * *`;
    case "crash":
      return `on:app.crashed ${app}`.trim();
    case "backupFailed":
      return `on:backup.failed ${app}`.trim();
  }
}
