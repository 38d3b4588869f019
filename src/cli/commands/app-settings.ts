/** `svc settings`: the settings of an app. */
import type { Command } from "commander";
import { notFound } from "../../errors.ts";
import { shellWord } from "../../lib/shell-word.ts";
import { valueOfText } from "../../lib/typed-text.ts";
import { readAssignments, setFileOption, setStdinOption, type Assignments } from "../input/assignments.ts";
import type { CommandContext } from "../context.ts";
import { examples } from "../examples.ts";
import { AdvisedError, UnusableFileError, UsageError } from "../output/failure.ts";
import type { RunCommand } from "../run-command.ts";
import { calls, type AppSettings } from "../client/calls.ts";
import type { Json, JsonObject } from "../client/rest-shape.ts";

interface SetOptions extends Omit<Assignments, "pairs"> {
  readonly file?: string;
}

export function addSettingsCommand(parent: Command, run: RunCommand): void {
  const settings = parent.command("settings").description("show and change the settings of an app");
  settings
    .command("get", { isDefault: true })
    .aliases(["show", "list", "ls"])
    .description("show the settings (also: svc settings ID)")
    .argument("<id>", "the app")
    .argument("[key]", "show only the value of this key")
    .action(run((context, id: string, key?: string) => showSettings(context, id, key)));
  settings
    .command("set")
    .description("change settings; others keep their values")
    .argument("<id>", "the app")
    .argument(
      "[key=value...]",
      "a value is parsed as JSON, except for text settings; svc prompts for a key without a value",
    )
    .option(...setFileOption)
    .option(...setStdinOption)
    .option("--file <path>", "replace all values with the JSON object in a file; - reads stdin")
    .addHelpText(
      "after",
      examples(
        "svc settings set hello port=8081 greeting='Good morning'",
        "svc settings set hello password",
        "svc settings set hello --set-file motd=motd.txt",
        "svc settings set hello --file values.json",
      ),
    )
    .action(
      run((context, id: string, pairs: string[], options: SetOptions) =>
        setSettings(context, id, { ...options, pairs }),
      ),
    );
  settings
    .command("unset")
    .description("reset settings to their defaults")
    .argument("<id>", "the app")
    .argument("<key...>", "the keys, as svc settings ID shows them")
    .action(run((context, id: string, keys: string[]) => unsetSettings(context, id, keys)));
}

async function showSettings(context: CommandContext, id: string, key: string | undefined): Promise<void> {
  const settings = await context.call(calls.getAppSettings, { id });
  if (key === undefined) {
    await printSettings(context, id, settings);
    if (settings.restart_required && !context.json)
      context.note(`Restart to apply the new settings: svc restart ${id}`);
    return;
  }
  if (key.includes("=")) throw new UsageError(`to change a setting: svc settings set ${id} ${key}`);
  const value = settings.values?.[key];
  if (value === undefined) {
    const message = `${id} has no value for "${key}"; see all with: svc settings ${id}`;
    throw new AdvisedError(notFound("setting", key), message);
  }
  return context.json
    ? context.printJson(value)
    : context.printLine(typeof value === "string" ? value : JSON.stringify(value));
}

async function setSettings(
  context: CommandContext,
  id: string,
  { file, ...assignments }: SetOptions & { pairs: readonly string[] },
): Promise<void> {
  const { pairs, setFile = [], setStdin } = assignments;
  if (id.includes("="))
    throw new UsageError(`name the app first: svc settings set ${[...pairs, id].map(shellWord).join(" ")}`);
  const areNone = pairs.length + setFile.length === 0 && setStdin === undefined;
  if ((file === undefined) === areNone) throw new UsageError("pass either key=value or --file");
  if (file !== undefined) return update(context, id, await readValues(context, file));
  const settings = await context.call(calls.getAppSettings, { id });
  requireAssignments(settings, pairs);
  const isSecret = (key: string): boolean => propertySchema(settings, key)["writeOnly"] === true;
  const texts = Object.entries(await readAssignments(context, assignments, isSecret));
  const typeOf = (key: string): Json | undefined => propertySchema(settings, key)["type"];
  for (const [key, text] of texts) if (typeOf(key) === "integer") rejectAddress(key, text);
  const chosen = texts.map(([key, text]): [string, Json] => [key, valueOfText(text, typeOf(key))]);
  return update(context, id, { ...chosenValues(settings), ...Object.fromEntries(chosen) });
}

/** Docker users type `port=0.0.0.0:8080`. */
function rejectAddress(key: string, text: string): void {
  const [, port] = /^[\d.:[\]]+:(\d+)$/.exec(text) ?? [];
  if (port === undefined) return;
  throw new UsageError(
    `${key} is only the number: ${key}=${port}; the address is another setting, such as host, or in the compose file`,
  );
}

/** People type `port 8080` for `port=8080`. The command asks for the value of a setting that has none. */
function requireAssignments(settings: AppSettings, pairs: readonly string[]): void {
  const isSetting = (key: string): boolean => Object.keys(propertySchema(settings, key)).length > 0;
  const at = pairs.findIndex((pair) => !pair.includes("=") && !isSetting(pair));
  const [key, value] = [pairs[at - 1] ?? "", pairs[at] ?? ""];
  if (at > 0 && isSetting(key)) throw new UsageError(`write ${key}=${value}`);
}

async function unsetSettings(context: CommandContext, id: string, keys: readonly string[]): Promise<void> {
  const settings = await context.call(calls.getAppSettings, { id });
  for (const key of keys) {
    if (settings.values?.[key] === undefined)
      throw new UsageError(`${id} has no value for "${key}"; see all with: svc settings ${id}`);
  }
  const remaining = Object.entries(chosenValues(settings)).filter(([key]) => !keys.includes(key));
  return update(context, id, Object.fromEntries(remaining));
}

async function update(context: CommandContext, id: string, values: JsonObject): Promise<void> {
  const settings = await context.call(calls.updateAppSettings, { id, values });
  await printSettings(context, id, settings);
  if (context.json) return;
  const notes = notesOf(settings);
  for (const note of notes) context.note(`warning: ${note}`);
  // A restart that fails would only take the app down.
  if (notes.length === 0) await noteRestart(context, id, settings);
}

async function noteRestart(context: CommandContext, id: string, settings: AppSettings): Promise<void> {
  if (settings.restart_required) {
    context.note(`Restart to apply the new settings: svc restart ${id}`);
    return;
  }
  if (settings.running !== undefined) return;
  const { state } = await context.call(calls.getApp, { id });
  if (state !== "STOPPED") context.note(`Start it with the new settings: svc start ${id}`);
}

/** An older daemon returns none. */
function notesOf({ notes = [] }: Partial<AppSettings>): readonly string[] {
  return notes;
}

/** The values that differ from their defaults. Storing a default would keep it after the package changes it. */
function chosenValues(settings: AppSettings): JsonObject {
  const entries = Object.entries(settings.values ?? {});
  return Object.fromEntries(
    entries.filter(([key, value]) => !sameJson(value, propertySchema(settings, key)["default"])),
  );
}

function sameJson(one: Json, other: Json | undefined): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

function propertySchema({ schema }: AppSettings, key: string): JsonObject {
  const properties = (schema as JsonObject | null | undefined)?.["properties"] as
    Readonly<Record<string, JsonObject>> | undefined;
  return properties !== undefined && Object.hasOwn(properties, key) ? (properties[key] ?? {}) : {};
}

async function readValues(context: CommandContext, file: string): Promise<JsonObject> {
  const { readInput } = await import("../input/local-file.ts");
  const text = await readInput(context.host, file);
  let values: unknown;
  try {
    values = JSON.parse(text);
  } catch (error) {
    throw new UnusableFileError(`${file} is not valid JSON: ${(error as Error).message}`);
  }
  if (typeof values !== "object" || values === null || Array.isArray(values)) {
    throw new UnusableFileError(`${file} must hold a JSON object`);
  }
  return values as JsonObject;
}

async function printSettings(context: CommandContext, id: string, settings: AppSettings): Promise<void> {
  if (context.json) return context.printJson(settings);
  const values = settings.values ?? {};
  const properties = (settings.schema as { properties?: JsonObject } | null | undefined)?.properties ?? {};
  const keys = [...new Set([...Object.keys(properties), ...Object.keys(values)])];
  if (keys.length === 0) {
    context.note(`${id} has no settings.`);
    return;
  }
  const { running = {}, changed } = settings;
  await context.printTable(
    [
      { title: "KEY", value: (key) => key },
      { title: "VALUE", value: (key) => chosenText(settings, key), shrinkTo: 12 },
      ...(changed.length === 0
        ? []
        : [
            {
              title: "IN USE",
              value: (key: string) => (changed.includes(key) ? valueText(running[key]) || "nothing" : ""),
              color: () => "yellow" as const,
              shrinkTo: 9,
            },
          ]),
      {
        title: "DEFAULT",
        dispensable: 2,
        value: (key) => valueText(propertySchema(settings, key)["default"]),
        shrinkTo: 8,
      },
      {
        title: "DESCRIPTION",
        dispensable: 1,
        value: (key) => {
          const { description, title } = propertySchema(settings, key);
          return valueText(description ?? title);
        },
        shrinkTo: 12,
      },
    ],
    keys,
  );
}

/** For a secret, whether it is set. */
function chosenText(settings: AppSettings, key: string): string {
  const text = valueText(settings.values?.[key]);
  return text === "" && propertySchema(settings, key)["writeOnly"] === true ? "(not set)" : text;
}

function valueText(value: Json | undefined): string {
  if (value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}
