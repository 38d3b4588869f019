/** Generates a manifest for a compose file: variables become settings, and ports and host access are listed. */
import { basename } from "node:path";
import type { JsonObject, JsonValue } from "../lib/json.ts";
import type { PortDocument, SettingDocument } from "../../gen/manifest-document.ts";
import { recordOf, textOf } from "../runtimes/compose/compose-values.ts";
import { portNames } from "../runtimes/compose/service-ports.ts";
import { ownerVariables, type ComposeVariable } from "./compose-file.ts";
import { readComposeModel, type ComposeModel } from "./compose-model.ts";
import { foundPorts, type FoundPort } from "./compose-ports.ts";
import type { ComposeProgram } from "./compose-program.ts";
import { invalidFile, portSetting, settingName, unique, type Derived } from "./derived.ts";
import { unreadExample, type PackageFiles } from "./package-files.ts";

/** Variables that svc sets, or that compose reads itself. */
const reserved =
  /^(?:SVC_.*|COMPOSE_(?:PROJECT_NAME|FILE|PROFILES|PATH_SEPARATOR|ENV_FILES|ANSI|PARALLEL_LIMIT|EXPERIMENTAL.*))$/;
/** The most that a manifest may have. */
const maxPorts = 64;

/** @throws SvcError `package_invalid` with the lines of what cannot be read */
export async function fromCompose(
  files: PackageFiles,
  name: string,
  compose?: ComposeProgram,
): Promise<Derived> {
  const reading = await readComposeModel(files, name, { compose });
  if ("problems" in reading) throw invalidFile(name, reading.problems);
  const { model } = reading;
  const notes = await notesOn(files, model, compose);
  const { ports, fixed } = portsOf(model, name, notes);
  const settings: Record<string, SettingDocument> = {};
  const required: string[] = [];
  const numbers = new Set(ports.map(({ setting }) => setting));
  for (const variable of model.variables) {
    // The project directory is wherever the package is.
    if (["COMPOSE_PROJECT_NAME", "PWD"].includes(variable.name)) continue;
    if (reserved.test(variable.name)) {
      notes.push(
        `\${${variable.name}} does not become a setting: svc or compose uses it; rename the variable`,
      );
      continue;
    }
    const key = settingName(variable.name);
    const { setting, isRequired } = numbers.has(key)
      ? portOf(variable, model.dotenv.get(variable.name))
      : settingOf(variable, name, model.dotenv.has(variable.name));
    settings[key] = setting;
    if (isRequired) required.push(key);
    else if (isEmpty(variable, model, compose) && !numbers.has(key))
      notes.push(`\${${variable.name}} is empty, because nothing sets it; set "${key}" if it needs a value`);
  }
  Object.assign(settings, fixed);
  for (const { sentence, permission } of model.requirements)
    notes.push(`${sentence}, which only root's own apps may do, with the permission "${permission}"`);
  return {
    from: name,
    notes,
    manifest: {
      ...describedBy(model.document, name),
      compose: { file: name },
      ...(Object.keys(settings).length > 0 && {
        settings: { ...(required.length > 0 && { required }), properties: settings },
      }),
      ...(ports.length > 0 && { ports }),
      ...(model.requirements.length > 0 && {
        permissions: unique(model.requirements.map(({ permission }) => permission)),
      }),
    },
  };
}

function isEmpty(
  { name, isExpected, fallback }: ComposeVariable,
  { dotenv }: ComposeModel,
  compose: ComposeProgram | undefined,
): boolean {
  // Without compose, values in `.env` are unknown.
  const isUnset = compose !== undefined && fallback === undefined && !dotenv.has(name);
  return isExpected && isUnset && !ownerVariables.has(name);
}

async function notesOn(
  files: PackageFiles,
  model: ComposeModel,
  compose: ComposeProgram | undefined,
): Promise<string[]> {
  const notes: string[] = [];
  const example = await unreadExample(files);
  if (example !== undefined && model.variables.length > 0)
    notes.push(`${example} is not read; to use its values, copy it to .env and edit the copy`);
  if (model.files.length > 1) notes.push(`compose merges ${model.files.join(", ")}`);
  else if (compose === undefined && (await files.has(".env")))
    notes.push(
      "compose is not installed here, so .env is not read; svc checks the package again at the install",
    );
  return notes;
}

/** Name and summary of an app of CasaOS. */
function describedBy(document: JsonObject, name: string): { name?: string; summary?: string; id?: string } {
  const casa = recordOf(document["x-casaos"]);
  const title = inEnglish(casa["title"]);
  const line = (inEnglish(casa["tagline"]) || inEnglish(casa["description"])).split("\n")[0]?.slice(0, 256);
  const id = textOf(document["name"]);
  return {
    ...(title !== "" && { name: title }),
    ...(id !== "" && !id.includes("$") && { id }),
    summary: line || `The compose project of ${basename(name)}.`,
  };
}

/** A text of CasaOS in English, given in one or many languages. */
export function inEnglish(text: JsonValue | undefined): string {
  return typeof text === "string" ? text : textOf(recordOf(text)["en_us"] ?? recordOf(text)["en_US"]);
}

/** The ports, and the settings of those whose number the file fixes: svc publishes the chosen number instead. */
function portsOf(
  { resolved, documents, values, variables }: ComposeModel,
  name: string,
  notes: string[],
): { ports: PortDocument[]; fixed: Record<string, SettingDocument> } {
  const taken = new Set<string>();
  const found = foundPorts(resolved, documents, values, (service, { published, target }) => {
    // 0 lets the engine choose, too.
    const isAny = published === "" || published === "0";
    const which = isAny ? `port ${target} at any free port` : `port ${target} at one of ${published}`;
    notes.push(`service "${service}" publishes ${which}; to choose it, write \${PORT:-8080}:${target}`);
  });
  if (found.length > maxPorts)
    notes.push(`${name} publishes ${found.length} ports; svc manages only the first ${maxPorts}`);
  const keys = new Set(variables.map((variable) => settingName(variable.name)));
  const fixed: Record<string, SettingDocument> = {};
  const byNumber = new Map<number, string>();
  const fixedSetting = (port: string, { service, target, published }: FoundPort): string => {
    const known = byNumber.get(published);
    if (known !== undefined) return known;
    const key = freeKey(settingName(`${port.replaceAll("-", "_")}_port`), keys);
    byNumber.set(published, key);
    const description = `Host port for port ${target} of service ${service}.`;
    fixed[key] = { ...portSetting(published), description };
    return key;
  };
  const ports = found.slice(0, maxPorts).map((each): PortDocument => {
    const { protocol, variable } = each;
    const isSetting = variable !== undefined && !reserved.test(variable);
    const port = freeName(each, taken);
    return {
      name: port,
      ...(protocol === "udp" && { protocol }),
      setting: isSetting ? settingName(variable) : fixedSetting(port, each),
    };
  });
  return { ports, fixed };
}

function freeKey(base: string, taken: Set<string>): string {
  let key = base;
  for (let at = 2; taken.has(key); at++) key = `${base}_${at}`;
  taken.add(key);
  return key;
}

function freeName(port: FoundPort, taken: Set<string>): string {
  const names = portNames(port);
  const name = names.find((each) => !taken.has(each)) ?? `${names[0] ?? ""}-${taken.size}`;
  taken.add(name);
  return name;
}

const secretName = /PASS(WORD|WD|PHRASE)?(_|$)|SECRET|TOKEN|PRIVATE|CREDENTIAL|(^|_|API)KEY(_|$)/i;

/** The number is written into the manifest, because svc reserves it. */
function portOf(
  { name, fallback }: ComposeVariable,
  kept: string | undefined,
): { setting: SettingDocument; isRequired: boolean } {
  const number = Number(kept ?? fallback ?? 0);
  return { setting: portSetting(number || undefined, name), isRequired: !number };
}

/**
 * A setting without a default: without a chosen value, compose takes the one in `.env` or in its file, as it is then.
 */
function settingOf(
  { name, fallback, isRequired, isSecret: isContent }: ComposeVariable,
  file: string,
  isInDotenv: boolean,
): { setting: SettingDocument; isRequired: boolean } {
  const isSecret = isContent || secretName.test(name);
  const hasValue = isInDotenv || fallback !== undefined;
  const where = isInDotenv ? "the value in .env" : `${fallback ?? ""} (in ${file})`;
  return {
    setting: {
      ...(hasValue &&
        (isInDotenv || (fallback !== "" && !isSecret)) && { description: `Default: ${where}.` }),
      type: "string",
      ...(isSecret && { secret: true }),
      env: name,
    },
    isRequired: !hasValue && (isRequired || isSecret),
  };
}
