/** Generates a manifest for a compose file: variables become settings, and ports and host access are listed. */
import { basename } from "node:path";
import type { JsonObject, JsonValue } from "../lib/json.ts";
import type { PortDocument, SettingDocument } from "../../gen/manifest-document.ts";
import { listOf, mergedRecord, recordOf, textOf } from "../runtimes/compose/compose-values.ts";
import { readServicePort } from "../runtimes/compose/service-ports.ts";
import {
  onlyVariable,
  readComposeFile,
  withDefaults,
  type ComposeFile,
  type ComposeVariable,
} from "./compose-file.ts";
import { invalidFile, portSetting, settingName, unique, type Derived } from "./derived.ts";
import type { PackageFiles } from "./package-files.ts";

/** @throws SvcError `package_invalid` with the lines of what cannot be read */
export async function fromCompose(files: PackageFiles, name: string): Promise<Derived> {
  const reading = readComposeFile((await files.text(name)) ?? "");
  if ("problems" in reading) throw invalidFile(name, reading.problems);
  const { file } = reading;
  const notes: string[] = [];
  const ports = portsOf(file, name, notes);
  const dotenv = pairsOfDotenv((await files.text(".env")) ?? "");
  const settings: Record<string, SettingDocument> = {};
  const required: string[] = [];
  const numbers = new Set(ports.map(({ setting }) => setting));
  for (const variable of file.variables) {
    if (variable.name.startsWith("SVC_") || variable.name.startsWith("COMPOSE_")) {
      notes.push(
        `\${${variable.name}} does not become a setting: packages cannot set variables with this prefix`,
      );
      continue;
    }
    const key = settingName(variable.name);
    const isPort = numbers.has(key);
    const { setting, isRequired } = settingOf(variable, isPort, dotenv.get(variable.name));
    settings[key] = setting;
    if (isRequired) required.push(key);
  }
  for (const { sentence, permission } of file.asks)
    notes.push(`${sentence}, which only root's own apps may do, with the permission "${permission}"`);
  return {
    from: name,
    notes,
    manifest: {
      ...describedBy(file.document, name),
      compose: { file: name },
      ...(Object.keys(settings).length > 0 && {
        settings: { ...(required.length > 0 && { required }), properties: settings },
      }),
      ...(ports.length > 0 && { ports }),
      ...(file.asks.length > 0 && { permissions: unique(file.asks.map(({ permission }) => permission)) }),
    },
  };
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

function portsOf(file: ComposeFile, name: string, notes: string[]): PortDocument[] {
  const ports: PortDocument[] = [];
  const taken = new Set<string>();
  for (const [service, value] of Object.entries(recordOf(file.document["services"]))) {
    for (const written of listOf(mergedRecord(value)["ports"])) {
      const { published, protocol, target } = publishedBy(written);
      const where = `service "${service}" publishes ${typeof written === "object" ? published : textOf(written)}`;
      const variable = onlyVariable(published);
      const number = Number(withDefaults(published));
      if (published === "" || !Number.isInteger(number) || number > 65_535) {
        notes.push(
          `${where}, which is not a single port that svc can manage; write \${PORT:-8080}:${target}`,
        );
        continue;
      }
      if (variable === undefined)
        notes.push(
          `port ${number} is fixed in ${name}; to make it a setting, write \${PORT:-${number}}:${target} there`,
        );
      const port: PortDocument = {
        name: freeName(service, target, taken),
        ...(protocol === "udp" && { protocol }),
        ...(variable === undefined ? { default: number } : { setting: settingName(variable) }),
      };
      ports.push(port);
    }
  }
  return ports;
}

/** As {@link readServicePort}, for text with variables that contain colons. */
function publishedBy(port: JsonValue): { published: string; target: string; protocol: string } {
  if (typeof port === "object") return readServicePort(port);
  const variables: string[] = [];
  const masked = textOf(port).replaceAll(/\$\{[^}]*\}/g, (variable) => {
    variables.push(variable);
    return `@${variables.length - 1}@`;
  });
  const unmasked = (text: string): string =>
    text.replaceAll(/@(\d+)@/g, (_, at) => variables[Number(at)] ?? "");
  const { published, target, protocol } = readServicePort(masked);
  return { published: unmasked(published), target: withDefaults(unmasked(target)), protocol };
}

function freeName(service: string, target: string, taken: Set<string>): string {
  const plain = service.replaceAll(/[^A-Za-z0-9_-]+/g, "-").replaceAll(/^[^A-Za-z0-9]+|[^A-Za-z0-9]+$/g, "");
  const base = (plain || "port").slice(0, 48);
  const name = [base, `${base}-${target}`].find((each) => !taken.has(each)) ?? `${base}-${taken.size}`;
  taken.add(name);
  return name;
}

const secretName = /PASS(WORD|WD|PHRASE)?(_|$)|SECRET|TOKEN|PRIVATE|CREDENTIAL|(^|_|API)KEY(_|$)/i;

function settingOf(
  { name, fallback, isRequired }: ComposeVariable,
  isPort: boolean,
  kept: string | undefined,
): { setting: SettingDocument; isRequired: boolean } {
  const value = kept ?? fallback;
  if (isPort)
    return { setting: portSetting(Number(value ?? 0) || undefined, name), isRequired: !Number(value) };
  const isSecret = secretName.test(name);
  // The value of a secret is not copied from `.env` to a file that everybody can read.
  const isKept = isSecret && kept !== undefined;
  return {
    setting: {
      type: "string",
      ...(isSecret && { secret: true }),
      ...(value !== undefined && !isKept && { default: value }),
      env: name,
    },
    isRequired: value === undefined && (isRequired || isSecret),
  };
}

function pairsOfDotenv(text: string): ReadonlyMap<string, string> {
  const lines = text.matchAll(/^\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*?)\s*$/gm);
  return new Map(
    [...lines].map(([, name = "", value = ""]) => [name, value.replace(/^(["'])(.*)\1$/, "$2")]),
  );
}
