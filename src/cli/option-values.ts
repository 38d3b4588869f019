/** The values of options, read from the words of a command line. */
import { InvalidArgumentError } from "commander";

/** A whole number from `least` to `most`. @param unit what it counts, said when it is none */
export function parseCount(least: number, most: number, unit = ""): (text: string) => number {
  return (text) => {
    const count = Number(text);
    if (/^\d+$/.test(text) && count >= least && count <= most) return count;
    throw new InvalidArgumentError(`It must be ${`${least} to ${most} ${unit}`.trimEnd()}.`);
  };
}

export function parseUid(text: string): number {
  const uid = Number(text);
  if (!/^\d+$/.test(text) || uid > 2 ** 32 - 2) throw new InvalidArgumentError("It must be a user id.");
  return uid;
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
