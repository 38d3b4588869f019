/** Named times in crontabs and triggers: nicknames such as `@daily`, and names of months and weekdays. */

const nicknames: Readonly<Record<string, string>> = {
  "@hourly": "0 * * * *",
  "@daily": "0 0 * * *",
  "@midnight": "0 0 * * *",
  "@weekly": "0 0 * * 0",
  "@monthly": "0 0 1 * *",
  "@yearly": "0 0 1 1 *",
  "@annually": "0 0 1 1 *",
};

const months = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const days = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

export type TriggerReading = { readonly trigger: string } | { readonly problem: string };

export function readNickname(word: string): TriggerReading {
  const trigger = nicknames[word.toLowerCase()];
  if (trigger !== undefined) return { trigger };
  return {
    problem:
      word.toLowerCase() === "@reboot"
        ? "@reboot is not supported: jobs run at set times; install the program as an app, which svc starts with the host"
        : `"${word}" is not known; it must be ${Object.keys(nicknames).join(", ")}`,
  };
}

/** The five fields, separated by one space. The daemon checks their values. */
export function readFields(fields: readonly string[]): string {
  return fields
    .map((field, at) => {
      if (at === 3) return withNumbers(field, months, 1);
      if (at === 4) return withNumbers(field, days, 0);
      return field;
    })
    .join(" ");
}

/** Replaces each name in lists and ranges by its number; a range that ends with Sunday ends with 7. */
function withNumbers(field: string, names: readonly string[], first: number): string {
  return field.replace(/(-?)(?<![a-z])([a-z]{3})(?![a-z])/gi, (word, dash: string, name: string) => {
    const at = names.indexOf(name.toLowerCase());
    if (at === -1) return word;
    const number = first + at;
    return `${dash}${dash === "-" && number === 0 ? 7 : number}`;
  });
}

/**
 * The five cron fields of a friendly form: `@daily` and the other nicknames, with or without the `@`; `every 15m` and `every 2h`;
 * `mon 03:00`, `mon-fri 03:00` and, as in systemd timers, `Mon..Fri 03:00`. Undefined for any other text.
 */
export function fieldsOfFriendlyForm(text: string): string[] | undefined {
  const words = text
    .toLowerCase()
    .split(/[ \t]+/)
    .filter((word) => word !== "");
  const [word = "", argument = ""] = words;
  if (words.length === 1) {
    const fields = nicknames[word.startsWith("@") ? word : `@${word}`];
    return fields?.split(" ");
  }
  if (words.length !== 2) return undefined;
  if (word === "every") return fieldsOfInterval(argument);
  const [, hour, minute] = /^([01]\d|2[0-3]):([0-5]\d)$/.exec(argument) ?? [];
  const names = word.replaceAll("..", "-");
  const day = withNumbers(names, days, 0);
  if (hour === undefined || minute === undefined || day === names) return undefined;
  return [minute, hour, "*", "*", day];
}

/** Only intervals that divide an hour or a day, because cron restarts its count with each hour and day. */
function fieldsOfInterval(text: string): string[] | undefined {
  const [, digits = "", unit] = /^([1-9]\d?)([mh])$/.exec(text) ?? [];
  const count = Number(digits);
  if (unit === "m" && 60 % count === 0)
    return count === 60 ? ["0", "*", "*", "*", "*"] : [`*/${count}`, "*", "*", "*", "*"];
  if (unit === "h" && 24 % count === 0)
    return count === 24 ? ["0", "0", "*", "*", "*"] : ["0", `*/${count}`, "*", "*", "*"];
  return undefined;
}
