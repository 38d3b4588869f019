/** Color, if the output is a terminal that supports it. */
import type { CliHost } from "../host.ts";

export type Color = "red" | "green" | "yellow" | "blue" | "magenta" | "cyan" | "bold" | "dim";

const sgr: Readonly<Record<Color, readonly [number, number]>> = {
  red: [31, 39],
  green: [32, 39],
  yellow: [33, 39],
  blue: [34, 39],
  magenta: [35, 39],
  cyan: [36, 39],
  bold: [1, 22],
  dim: [2, 22],
};

/** Colors a text, or returns it unchanged. */
export type Paint = (color: Color | undefined, text: string) => string;

export function createPaint(enabled: boolean): Paint {
  return (color, text) => {
    if (!enabled || color === undefined || text === "") return text;
    const [on, off] = sgr[color];
    return `\x1b[${on}m${text}\x1b[${off}m`;
  };
}

/**
 * In this order: `--no-color`, NO_COLOR (no-color.org), FORCE_COLOR, and whether the output is a terminal
 * other than "dumb".
 */
export function wantsColor(
  env: Readonly<Record<string, string | undefined>>,
  isTerminal: boolean,
  option: boolean,
): boolean {
  if (!option) return false;
  if ((env["NO_COLOR"] ?? "") !== "") return false;
  const force = env["FORCE_COLOR"];
  if (force !== undefined) return force !== "0" && force !== "false";
  return isTerminal && env["TERM"] !== "dumb";
}

type ErrorOutput = Pick<CliHost, "env" | "stderr">;

/** Whether standard error supports colors. */
export function hasErrorColor({ env, stderr }: ErrorOutput, option: boolean): boolean {
  return wantsColor(env, stderr.isTTY ?? false, option);
}

/** The start of an error message: a red `error:` on a terminal with colors, otherwise `svc:`. */
export function errorPrefix(host: ErrorOutput, option: boolean): string {
  return hasErrorColor(host, option) ? createPaint(true)("red", "error:") : "svc:";
}
