/** Parses the `trigger` of a job into the bit sets that matching needs. */
import { EventKinds, type EventKind } from "../../gen/svc/v1/values.ts";
import { invalidField } from "../errors.ts";
import { BoundedMemo } from "../lib/bounded-memo.ts";
import { impossibleDate } from "./impossible-date.ts";
import { fieldsOfFriendlyForm, readFields, readNickname } from "./cron-names.ts";
import { cronFields } from "./cron-fields.ts";
import { ValueSets, type ValueSet } from "./value-sets.ts";

/**
 * A parsed, immutable trigger. Each set is a number whose bits stand for values. All are small integers, so that a trigger is
 * one flat object; each job keeps one.
 */
export interface Trigger {
  /** The original text. */
  readonly text: string;
  /** Whether minute and hour are fixed times or contain a `*`. Daylight saving moves only fixed times. */
  readonly kind: "fixed" | "wildcard";
  /** Bit `m` is minute `m`, up to 30. */
  readonly minutesLow: number;
  /** Bit `m - 31` is minute `m`, from 31. */
  readonly minutesHigh: number;
  /** Bit `h` is hour `h`. */
  readonly hours: number;
  /** Bit `d - 1` is day `d`. */
  readonly daysOfMonth: number;
  /** Bit `m - 1` is month `m`. */
  readonly months: number;
  /** Bit 0 is Sunday. */
  readonly daysOfWeek: number;
  /** Both day fields are restricted (neither starts with `*`), so that a day needs to match only one (crontab(5)). */
  readonly isEitherDay: boolean;
  /** The event that fires the trigger instead of a time; every set is then empty. */
  readonly event?: EventTrigger;
}

/** Fires on each event of a kind. */
export interface EventTrigger {
  readonly kind: EventKind;
  /** The app or other subject of the event; empty for any. */
  readonly subject: string;
}

/** Maximum length of the text in UTF-16 units; the contract has the same bound. */
const maxLength = 256;

const fieldNames = cronFields.map(({ name }) => name).join(" ");

/** How many parsed triggers are cached and shared between jobs. */
const maxKnown = 4_096;

/** Parses many triggers. Parses each text once, and shares equal fields. */
export class TriggerParser {
  readonly #valueSets = new ValueSets();
  readonly #known = new BoundedMemo<string, Trigger | string>(maxKnown);

  /**
   * Parses a trigger in any form that `Schedule.trigger` of the contract allows. For other text it returns the reason, such as
   * `hour "24" must be 0 to 23`.
   */
  read(text: string): Trigger | string {
    return this.#known.get(text, () => this.#make(text));
  }

  /** Like {@link read}, but also rejects a trigger that never fires, such as one on 30 February. For new triggers. */
  readNew(text: string): Trigger | string {
    const read = this.read(text);
    const problem = typeof read === "string" ? undefined : impossibleDate(read);
    return problem === undefined ? read : `"${text}" never fires: ${problem}`;
  }

  /** @throws SvcError `invalid_argument` `invalid_request` whose violation names the cron field; see {@link read} */
  parse(text: string): Trigger {
    const trigger = this.read(text);
    if (typeof trigger === "string") throw invalidField("trigger", trigger);
    return trigger;
  }

  #make(text: string): Trigger | string {
    if (text.startsWith("on:")) return readEventTrigger(text);
    const fields = splitTrigger(text);
    if (typeof fields === "string") return fields;
    const [minute, hour, dayOfMonth] = fields;
    const sets: ValueSet[] = [];
    for (const [at, field] of fields.entries()) {
      const set = this.#valueSets.read(at, field);
      if (typeof set === "string") return set;
      sets.push(set);
    }
    const [minutes = none, hours = none, daysOfMonth = none, months = none, daysOfWeek = none] = sets;
    return {
      text,
      kind: minute.includes("*") || hour.includes("*") ? "wildcard" : "fixed",
      minutesLow: minutes.low,
      minutesHigh: minutes.high,
      hours: hours.low,
      daysOfMonth: daysOfMonth.low,
      months: months.low,
      daysOfWeek: daysOfWeek.low,
      isEitherDay: !dayOfMonth.startsWith("*") && !fields[4].startsWith("*"),
    };
  }
}

/** The reason why the text is not a valid time trigger; undefined if it is one. For callers that parse only a few. */
export function triggerProblem(text: string): string | undefined {
  return timeProblem(new TriggerParser().read(text));
}

/** Like {@link triggerProblem}, for a new trigger: it must fire at some time. */
export function newTriggerProblem(text: string): string | undefined {
  return timeProblem(new TriggerParser().readNew(text));
}

function timeProblem(read: Trigger | string): string | undefined {
  if (typeof read === "string") return read;
  return read.event === undefined ? undefined : `"${read.text}" must be a time, not an event`;
}

/** Events that jobs may react to. Runs and operations are excluded, because jobs cause them and would fire forever. */
const triggerKinds: readonly EventKind[] = EventKinds.filter((kind) => /^(?:app|backup|alert)\./.test(kind));

function readEventTrigger(text: string): Trigger | string {
  const [word = "", subject = "", ...rest] = text.split(/[ \t]+/).filter((part) => part !== "");
  const kind = triggerKinds.find((known) => `on:${known}` === word);
  if (text.length > maxLength || kind === undefined || rest.length > 0)
    return `"${text.slice(0, maxLength)}" must be on:KIND or "on:KIND APP", where KIND is ${triggerKinds.join(", ")}`;
  return { ...never, text, event: { kind, subject } };
}

/** The sets of a trigger that no time fires. */
export const never: Omit<Trigger, "text"> = {
  kind: "fixed",
  ...{ minutesLow: 0, minutesHigh: 0, hours: 0, daysOfMonth: 0, months: 0, daysOfWeek: 0 },
  isEitherDay: false,
};

const none: ValueSet = { low: 0, high: 0 };

type CronTexts = readonly [
  minute: string,
  hour: string,
  dayOfMonth: string,
  month: string,
  dayOfWeek: string,
];

/** The five cron fields of a trigger, not yet checked, or the reason why its form is not valid. */
function splitTrigger(text: string): CronTexts | string {
  if (text.length > maxLength) return `${text.length} characters are too many: at most ${maxLength}`;
  const words = text.split(/[ \t]+/).filter((word) => word !== "");
  const [word = ""] = words;
  if (isFive(words)) return readFields(words).split(" ") as unknown as CronTexts;
  const friendly = fieldsOfFriendlyForm(text);
  if (friendly !== undefined && isFive(friendly)) return friendly;
  if (/^@?every$/i.test(word))
    return `"${text}" is not valid: write an interval that divides an hour or a day, such as "every 15m" or "every 2h", or a time such as daily@09:00`;
  if (/^(?:CRON_)?TZ=/.test(word))
    return `"${word}" must be the time zone of the job, not part of its trigger`;
  // OnCalendar= of a systemd timer.
  if (/\.\.|[\d*]-[\d*]+-[\d*]|:\d\d:/.test(text) && !word.startsWith("daily@"))
    return `"${text}" must be written as mon-fri 03:00, HH:MM or five cron fields: ${fieldNames}`;
  if (words.length > 1)
    return `"${text}" has ${words.length} fields instead of five, without seconds and years: ${fieldNames}`;
  if (word === "hourly") return ["0", "*", "*", "*", "*"];
  if (word.startsWith("daily@")) return splitTime(word.slice("daily@".length));
  if (/^\d*:\d*$/.test(word)) return splitTime(word);
  const nickname = readNickname(word);
  if (word.startsWith("@") && "problem" in nickname) return nickname.problem;
  return `"${text}" is not valid: use hourly, HH:MM, @daily, "every 15m", "mon 03:00", on:EVENT or five cron fields ("30 2 * * mon-fri")`;
}

function splitTime(time: string): CronTexts | string {
  const [, hour, minute] = /^(\d\d?):(\d\d)$/.exec(time) ?? [];
  if (hour === undefined || minute === undefined) return `time "${time}" must be HH:MM, such as 07:05`;
  if (Number(hour) > 23 || Number(minute) > 59) return `time "${time}" must be 00:00 to 23:59`;
  return [minute, hour, "*", "*", "*"];
}

function isFive(words: readonly string[]): words is CronTexts {
  return words.length === cronFields.length;
}
