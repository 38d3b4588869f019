/** Parsers for option values. */
import { InvalidArgumentError } from "commander";

/** The largest uint32 of the contract, which limits counts that have no other limit. */
const maxCount = 2 ** 32 - 1;

/** A whole number from `least` to `most`. @param unit what it counts, for the error message */
export function parseCount(least: number, most = maxCount, unit = ""): (text: string) => number {
  const range = most === maxCount ? `a whole number, at least ${least}` : `${least} to ${most}`;
  return (text) => {
    const count = Number(text);
    if (/^\d+$/.test(text) && count >= least && count <= most) return count;
    throw new InvalidArgumentError(`It must be ${`${range} ${unit}`.trimEnd()}.`);
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

/** An instant, in milliseconds since 1970, relative to `nowMs`. */
export type Moment = (nowMs: number) => number;

const dayOrTime = /^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?)?$/;

/**
 * `90s`, `10m`, `1h30m` before now, or a day or time such as `2026-11-28T02:00`, which is local without a
 * time zone.
 */
export function parseMoment(text: string): Moment {
  const secs = sumOfUnits(text);
  if (secs !== undefined) return (nowMs) => nowMs - secs * 1_000;
  // ECMAScript reads a date without a time as midnight UTC.
  const ms = dayOrTime.test(text) ? Date.parse(text.length > 10 ? text : `${text}T00:00`) : Number.NaN;
  if (Number.isFinite(ms) && ms >= 0) return () => ms;
  throw new InvalidArgumentError(
    "It must be how long ago, such as 10m or 1h30m, or a time such as 2026-11-28T02:00.",
  );
}

function sumOfUnits(text: string): number | undefined {
  const parts = /^(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?$/.exec(text);
  if (parts === null || text === "") return undefined;
  const [, hours = "0", minutes = "0", seconds = "0"] = parts;
  return Number(hours) * unitSecs.h + Number(minutes) * unitSecs.m + Number(seconds) * unitSecs.s;
}

/** For `--x a --x b`: an option with a list of values would also consume the arguments after it. */
export function collect(value: string, earlier: readonly string[] = []): readonly string[] {
  return [...earlier, value];
}

/** The forms of time triggers, for help texts. */
export const triggerForms =
  'hourly, HH:MM, @daily, "every 15m", "mon 03:00", or five cron fields in one quoted argument: "30 2 * * mon-fri"';
