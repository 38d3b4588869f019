import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { ChoiceField, TextField } from "../../parts/field.tsx";
import { scheduleTexts } from "../../texts/schedules.ts";

const { builder: labels } = scheduleTexts;

type Often = keyof typeof labels.often;

/** Further inputs for each frequency. */
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
  /** The apps that the trigger may watch, by ID, with their names. */
  readonly apps: readonly (readonly [id: string, name: string])[];
  /** The current trigger. */
  readonly trigger: string;
  readonly onBuilt: (trigger: string) => void;
}

/** Builds a trigger from choices. Each choice is written to the trigger field, where it can be edited. */
export function TriggerBuilder({ apps, trigger, onBuilt }: Props) {
  const choice = useSignal(useMemo(() => choiceOf(trigger), []));
  const choose = (change: Partial<Choice>): void => {
    choice.value = { ...choice.value, ...change };
    const built = triggerOf(choice.value);
    if (built !== undefined) onBuilt(built);
  };
  const { often, time, day, app } = choice.value;
  // An edited trigger no longer matches a choice.
  const written = triggerOf(choice.value);
  const shown = written === undefined || written === trigger ? often : "typed";
  const asked = asksFor[shown];
  return (
    <>
      <ChoiceField
        label={labels.label}
        choices={Object.entries(labels.often)}
        value={shown}
        onType={(value) => choose({ often: value as Often })}
      />
      {asked === "day and time" && (
        <ChoiceField
          label={labels.day}
          choices={Object.entries(labels.days)}
          value={day}
          onType={(value) => choose({ day: value })}
        />
      )}
      {asked === "app" && (
        <ChoiceField
          label={labels.app}
          choices={[["", labels.anyApp], ...apps]}
          value={app}
          onType={(value) => choose({ app: value })}
        />
      )}
      {(asked === "time" || asked === "day and time") && (
        <TextField
          label={labels.time}
          value={time}
          onType={(value) => choose({ time: value })}
          input={{ type: "time", required: true }}
        />
      )}
    </>
  );
}

interface Choice {
  readonly often: Often;
  /** In the format of a time input. */
  readonly time: string;
  /** Day of the week, as in cron. */
  readonly day: string;
  /** Empty for any. */
  readonly app: string;
}

/** The choice that produces a trigger; `typed` if none does. */
function choiceOf(trigger: string): Choice {
  const [, about = ""] = /^on:\S+ (\S+)$/.exec(trigger) ?? [];
  const [, minute, hour, day = "1"] = /^(\d+) (\d+) \S+ \S+ (?:([0-6])|\S+)$/.exec(trigger) ?? [];
  const [, daily] = /^daily@(\d\d:\d\d)$/.exec(trigger) ?? [];
  const cron = hour === undefined ? "02:30" : `${hour.padStart(2, "0")}:${minute?.padStart(2, "0") ?? ""}`;
  const choice = { time: daily ?? cron, day, app: about };
  const all = Object.keys(asksFor) as Often[];
  const often = all.find((each) => triggerOf({ ...choice, often: each }) === trigger) ?? "typed";
  return { ...choice, often };
}

/** Undefined without a time, and for a typed trigger. */
function triggerOf({ often, time, day, app }: Choice): string | undefined {
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
