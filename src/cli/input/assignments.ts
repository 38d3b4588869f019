/** Values of settings from the command line: as arguments, from files, from stdin, or typed at a prompt. */
import type { ReasonPayloads } from "../../errors.ts";
import type { Advice } from "../output/advice.ts";
import type { CommandContext } from "../context.ts";
import { UsageError } from "../output/failure.ts";
import { collect } from "./option-values.ts";
import { ask, askSecret, isInteractive } from "./prompt.ts";
import { readInput } from "./local-file.ts";
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

/** What is known about a setting: a text takes its value unparsed, and a secret is not shown while it is typed. */
export interface KnownSetting {
  readonly isText: boolean;
  readonly isSecret: boolean;
}

/** @param settingOf what is known about a key; by default nothing, so that any may be secret */
export async function readAssignments(
  context: CommandContext,
  { pairs = [], setFile = [], setStdin }: Assignments,
  settingOf?: (key: string) => KnownSetting,
): Promise<JsonObject> {
  const values: Record<string, Json> = Object.create(null) as Record<string, Json>;
  const put = (key: string, text: string): void => {
    values[key] = settingOf?.(key).isText === true ? text : parseValue(text);
  };
  // A file or a pipe contains a text, unless the setting is known to have another type.
  const putText = (key: string, text: string): void => {
    const value = text.replace(/\r?\n$/, "");
    if (settingOf === undefined) values[key] = value;
    else put(key, value);
  };
  const toAsk: string[] = [];
  for (const pair of pairs) {
    const [key, text] = splitPair(pair, "key=value");
    if (text === undefined) toAsk.push(key);
    else put(key, text);
  }
  for (const pair of setFile) {
    const [key, path] = splitPair(pair, "key=path");
    if (path === undefined) throw new UsageError(`"${pair}" must be key=path`);
    putText(key, await readInput(context.host, path));
  }
  if (setStdin !== undefined) putText(setStdin, await readInput(context.host, "-"));
  for (const key of toAsk) put(key, await askFor(context, key, settingOf?.(key).isSecret ?? true));
  return { ...values };
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

/**
 * Parses JSON that prints back to the same text (`8080`, `true`, `["a"]`); any other text stays a string:
 * `1.10` would print as `1.1`.
 */
function parseValue(text: string): Json {
  try {
    const value = JSON.parse(text) as Json;
    return typeof value === "number" && String(value) !== text ? text : value;
  } catch {
    return text;
  }
}
