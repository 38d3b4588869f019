/** The time of a crontab line, as a trigger: names of months and days as numbers, nicknames as fields. */

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
        ? "@reboot is not supported: jobs fire at set times only"
        : `"${word}" is not known; it must be ${Object.keys(nicknames).join(", ")}`,
  };
}

/** The five fields, separated by one space. What else is wrong with them, the daemon will say. */
export function readFields(fields: readonly string[]): string {
  return fields
    .map((field, at) => {
      if (at === 3) return withNumbers(field, months, 1);
      if (at === 4) return withNumbers(field, days, 0);
      return field;
    })
    .join(" ");
}

/** Each name by its number, in lists and ranges; a range that ends with Sunday ends with 7. */
function withNumbers(field: string, names: readonly string[], first: number): string {
  return field.replace(/(-?)(?<![a-z])([a-z]{3})(?![a-z])/gi, (word, dash: string, name: string) => {
    const at = names.indexOf(name.toLowerCase());
    if (at === -1) return word;
    const number = first + at;
    return `${dash}${dash === "-" && number === 0 ? 7 : number}`;
  });
}
