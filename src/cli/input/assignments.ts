/** Values of settings from the command line: as arguments, from files, from stdin, or typed at a prompt. */
import type { ReasonPayloads } from "../../errors.ts";
import type { Advice } from "../output/advice.ts";
import type { CommandContext } from "../context.ts";
import { UsageError } from "../output/failure.ts";
import { collect } from "./option-values.ts";
import { ask, askSecret, isInteractive } from "./prompt.ts";
import { readInput } from "./local-file.ts";
import { valueOfText } from "../../lib/typed-text.ts";
import type { Json, JsonObject } from "../client/rest-shape.ts";

export interface Assignments {
  /** `key=value`; or only `key`, to prompt for its value. */
  readonly pairs?: readonly string[] | undefined;
  /** `key=path` */
  readonly setFile?: readonly string[];
  /** A key. */
  readonly setStdin?: string;
}

/** How to set the settings that an install lacks. */
export const adviceOnSettings: Advice = ({ payload }) => {
  const { violations = [] } = (payload ?? {}) as Partial<ReasonPayloads["invalid_request"]>;
  const options = violations.flatMap(({ field = "", missing, suggestion }) => {
    const key = /^values\.([\w-]+)$/.exec(field)?.[1];
    const value = missing === true ? "VALUE" : suggestion;
    return key === undefined || value === undefined ? [] : [`--set ${key}=${value}`];
  });
  if (options.length === 0) return undefined;
  return `choose ${options.length === 1 ? "it" : "them"}: ${options.join(" ")}`;
};

export const setFileOption = [
  "--set-file <key=path>",
  "set a setting to the content of a file (repeatable)",
  collect,
] as const;
export const setStdinOption = ["--set-stdin <key>", "set a setting to the text from stdin"] as const;

/**
 * Reads the texts of settings, by key; the setting's type decides how a text is converted to a value.
 * @param isSecret whether a key's value is not shown while it is typed; by default, any may be secret
 */
export async function readAssignments(
  context: CommandContext,
  { pairs = [], setFile = [], setStdin }: Assignments,
  isSecret: (key: string) => boolean = () => true,
): Promise<Record<string, string>> {
  const texts = new Map<string, string>();
  const withoutNewline = (text: string): string => text.replace(/\r?\n$/, "");
  const toAsk: string[] = [];
  for (const pair of pairs) {
    const [key, text] = splitPair(pair, "key=value");
    if (text === undefined) toAsk.push(key);
    else texts.set(key, text);
  }
  for (const pair of setFile) {
    const [key, path] = splitPair(pair, "key=path");
    if (path === undefined) throw new UsageError(`"${pair}" must be key=path`);
    texts.set(key, withoutNewline(await readInput(context.host, path)));
  }
  if (setStdin !== undefined) texts.set(setStdin, withoutNewline(await readInput(context.host, "-")));
  for (const key of toAsk) texts.set(key, await askFor(context, key, isSecret(key)));
  return Object.fromEntries(texts);
}

/** The values as older daemons read them, with guessed types. Newer daemons replace them by `setting_texts`. */
export function guessedValues(texts: Readonly<Record<string, string>>): JsonObject {
  const guess = (text: string): Json => {
    const value = valueOfText(text, undefined);
    return typeof value === "object" ? text : value;
  };
  return Object.fromEntries(Object.entries(texts).map(([key, text]) => [key, guess(text)]));
}

function splitPair(pair: string, form: string): [key: string, value: string | undefined] {
  const at = pair.indexOf("=");
  if (pair === "" || at === 0) throw new UsageError(`"${pair}" must be ${form}`);
  return at === -1 ? [pair, undefined] : [pair.slice(0, at), pair.slice(at + 1)];
}

async function askFor({ host }: CommandContext, key: string, isSecret: boolean): Promise<string> {
  if (!isInteractive(host)) {
    const otherWays = `pass ${key}=VALUE, --set-file ${key}=PATH or --set-stdin ${key}`;
    throw new UsageError(`no terminal to type the value of ${key}: ${otherWays}`);
  }
  const question = `${key}: `;
  return isSecret ? askSecret(host, question) : ask(host, question);
}
