/** The flags that several commands about jobs take, and how their values read. */
import { InvalidArgumentError, Option } from "commander";

/** Names the user whose job it is. */
export function ownerOption(): Option {
  return new Option("--owner <uid>", "root only: the job of this user id").argParser(parseUid);
}

function parseUid(text: string): number {
  const uid = Number(text);
  if (!/^\d+$/.test(text) || uid > 2 ** 32 - 2) throw new InvalidArgumentError("It must be a user id.");
  return uid;
}

/** A whole number from `least` to `most`. */
export function parseCount(least: number, most: number): (text: string) => number {
  return (text) => {
    const count = Number(text);
    if (!/^\d+$/.test(text) || count < least || count > most) {
      throw new InvalidArgumentError(`It must be ${least} to ${most}.`);
    }
    return count;
  };
}

const unitSecs = { h: 3600, m: 60, s: 1 } as const;

/** `90`, `90s`, `10m`, `1h30m`: seconds. */
export function parseDuration(leastSecs: number, mostSecs: number): (text: string) => number {
  return (text) => {
    const secs = /^\d+$/.test(text) ? Number(text) : sumOfUnits(text);
    if (secs === undefined || secs < leastSecs || secs > mostSecs) {
      throw new InvalidArgumentError(
        `It must be a time such as 90s or 10m, from ${leastSecs} to ${mostSecs} seconds.`,
      );
    }
    return secs;
  };
}

function sumOfUnits(text: string): number | undefined {
  const parts = /^(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?$/.exec(text);
  if (parts === null || text === "") return undefined;
  const [, hours = "0", minutes = "0", seconds = "0"] = parts;
  return Number(hours) * unitSecs.h + Number(minutes) * unitSecs.m + Number(seconds) * unitSecs.s;
}

/** `--x a --x b`: a list option would take the arguments behind it, too. */
export function collect(value: string, earlier: readonly string[] = []): readonly string[] {
  return [...earlier, value];
}
