/**
 * Generates a manifest for an app of a Runtipi store: `config.json` describes the settings, and `docker-compose.json`
 * (in Runtipi's format) or `docker-compose.yml` the services. The app runs from a generated compose file.
 */
import { stringify } from "yaml";
import { SvcError } from "../errors.ts";
import type { JsonObject, JsonValue } from "../lib/json.ts";
import { mapValues } from "../lib/map-values.ts";
import { snakeCase } from "../lib/snake-case.ts";
import type { SettingDocument } from "../../gen/manifest-document.ts";
import {
  isSet,
  listOf,
  mapTexts,
  mergedRecord,
  recordOf,
  textOf,
} from "../runtimes/compose/compose-values.ts";
import { readComposeFile } from "./compose-file.ts";
import type { ComposeProgram } from "./compose-program.ts";
import { invalidFile, settingName, type Derived } from "./derived.ts";
import { madeComposeFile } from "./from-casaos.ts";
import { fromCompose } from "./from-compose.ts";
import { PlannedFiles, type PackageFiles } from "./package-files.ts";

const dynamicFile = "docker-compose.json";
const plainFile = "docker-compose.yml";

/**
 * @param name `config.json`
 * @returns undefined for a directory that is not from Runtipi
 * @throws SvcError `package_invalid` for files that cannot be read
 */
export async function fromRuntipi(
  files: PackageFiles,
  name: string,
  compose?: ComposeProgram,
): Promise<Derived | undefined> {
  const config = recordOf(await readJson(files, name));
  if (config["tipi_version"] === undefined) return undefined;
  const id = textOf(config["id"]);
  const notes: string[] = [];
  const dynamic = await readJson(files, dynamicFile);
  const document =
    dynamic === undefined
      ? plainDocument((await files.text(plainFile)) ?? "")
      : { services: dynamicServices(recordOf(dynamic), notes) };
  const port = Number(config["port"]) || undefined;
  const made = stringify(
    mapTexts(document, (text) => withRuntipiVariables(text, id, port)),
    { lineWidth: 0 },
  );
  const planned = new PlannedFiles(files.root, { [madeComposeFile]: made });
  const { manifest, ...derived } = await fromCompose(planned, madeComposeFile, compose);
  const { settings, ...rest } = manifest;
  const version = /\d+(?:\.\d+)*/.exec(textOf(config["version"]))?.[0];
  const [summary = ""] = textOf(config["short_desc"]).split("\n");
  const fields = listOf(config["form_fields"]).map(recordOf);
  return {
    from: name,
    files: { [madeComposeFile]: made },
    notes: [...derived.notes, ...notes, ...unreadOf(fields, settings?.properties)],
    manifest: {
      ...rest,
      id,
      ...(isSet(config["name"]) && { name: textOf(config["name"]).slice(0, 256) }),
      ...(version !== undefined && { version }),
      ...(summary !== "" && { summary: summary.slice(0, 256) }),
      ...(settings !== undefined && { settings: withForm(settings, fields) }),
    },
  };
}

async function readJson(files: PackageFiles, name: string): Promise<JsonValue | undefined> {
  const text = await files.text(name);
  if (text === undefined) return undefined;
  try {
    return JSON.parse(text) as JsonValue;
  } catch (cause) {
    throw new SvcError("package_invalid", `${name} is not valid JSON`, { cause });
  }
}

/** Removes Runtipi's network and the labels for its proxy. */
function plainDocument(text: string): JsonObject {
  const reading = readComposeFile(text);
  if ("problems" in reading) throw invalidFile(plainFile, reading.problems);
  const { services, volumes } = reading.file.document;
  return {
    services: mapValues(recordOf(services), (service) => {
      const { networks: _, labels: __, container_name: ___, ...rest } = mergedRecord(service);
      return rest;
    }),
    ...(isSet(volumes) && { volumes: volumes ?? null }),
  };
}

/** Keys of a service in Runtipi's format that exist in compose in snake case. */
const carried = new Set([
  ...["image", "command", "entrypoint", "environment", "user", "hostname", "privileged", "devices", "tty"],
  ...["sysctls", "ulimits", "pid", "capAdd", "networkMode", "workingDir", "shmSize", "stopGracePeriod"],
  ...["stopSignal", "stdinOpen", "readOnly", "extraHosts", "securityOpt", "dependsOn"],
]);
const converted = new Set(["name", "isMain", "internalPort", "addPorts", "volumes", "healthCheck"]);

function dynamicServices(document: JsonObject, notes: string[]): JsonObject {
  const services: JsonObject = {};
  for (const value of listOf(document["services"])) {
    const service = recordOf(value);
    const name = textOf(service["name"]);
    const made: JsonObject = {};
    for (const [key, part] of Object.entries(service)) {
      if (carried.has(key)) made[snakeCase(key)] = key === "environment" ? environmentOf(part) : part;
      else if (!converted.has(key))
        notes.push(`service "${name}": ${key} of ${dynamicFile} is not supported`);
    }
    const ports = [
      ...(service["isMain"] === true && isSet(service["internalPort"])
        ? [`\${APP_PORT}:${textOf(service["internalPort"])}`]
        : []),
      ...listOf(service["addPorts"]).map((port) => portOf(recordOf(port))),
    ];
    const volumes = listOf(service["volumes"]).map((volume) => volumeOf(recordOf(volume)));
    const health = recordOf(service["healthCheck"]);
    services[name] = {
      ...made,
      ...(ports.length > 0 && { ports }),
      ...(volumes.length > 0 && { volumes }),
      ...(isSet(health["test"]) && { healthcheck: healthOf(health) }),
    };
  }
  return services;
}

/** Reads `[{key, value}]` or `{key: value}`. */
function environmentOf(value: JsonValue): JsonValue {
  if (!Array.isArray(value)) return value;
  return Object.fromEntries(
    value.map((pair) => [textOf(recordOf(pair)["key"]), textOf(recordOf(pair)["value"])]),
  );
}

function portOf({ hostPort, containerPort, udp, tcp }: JsonObject): string {
  const both = `${textOf(hostPort)}:${textOf(containerPort)}`;
  return udp === true && tcp !== true ? `${both}/udp` : both;
}

function volumeOf({ hostPath, containerPath, readOnly }: JsonObject): string {
  return `${textOf(hostPath)}:${textOf(containerPath)}${readOnly === true ? ":ro" : ""}`;
}

function healthOf({ test, interval, timeout, retries, startPeriod }: JsonObject): JsonObject {
  return {
    test: test ?? null,
    ...(interval !== undefined && { interval }),
    ...(timeout !== undefined && { timeout }),
    ...(retries !== undefined && { retries }),
    ...(startPeriod !== undefined && { start_period: startPeriod }),
  };
}

/** Replaces variables that Runtipi sets. A hostname stays a setting. */
function withRuntipiVariables(text: string, id: string, port: number | undefined): string {
  return text
    .replaceAll(/\$\{?APP_DATA_DIR\}?(?=\/|:|$)/g, ".")
    .replaceAll(/\$\{?APP_ID(?!\w)\}?/g, id)
    .replaceAll(/\$\{?APP_PORT(?!\w)\}?/g, port === undefined ? "${PORT}" : `\${PORT:-${port}}`)
    .replaceAll(/\$(?:\{TZ\}|TZ\b)/g, "${TZ:-UTC}");
}

/** Variables in the form that no service uses. */
function unreadOf(
  fields: readonly JsonObject[],
  properties: Readonly<Record<string, unknown>> = {},
): string[] {
  return fields
    .map((field) => textOf(field["env_variable"]))
    .filter((variable) => variable !== "" && properties[settingName(variable)] === undefined)
    .map((variable) => `${variable} of its form is ignored: no service uses it`);
}

/** Adds the form's titles and descriptions to the settings. */
function withForm(
  settings: { required?: string[]; properties: Record<string, SettingDocument> },
  fields: readonly JsonObject[],
): { required?: string[]; properties: Record<string, SettingDocument> } {
  const properties = { ...settings.properties };
  const required = new Set(settings.required);
  for (const field of fields) {
    const variable = textOf(field["env_variable"]);
    const key = settingName(variable);
    const known = properties[key];
    if (variable === "" || known === undefined) continue;
    const isSecret = field["type"] === "password" || field["type"] === "random";
    const fallback = field["default"];
    const hasDefault = typeof fallback === "string" && !isSecret;
    properties[key] = {
      ...known,
      ...(isSet(field["label"]) && { title: textOf(field["label"]).slice(0, 256) }),
      ...(isSet(field["hint"]) && { description: textOf(field["hint"]).slice(0, 1_000) }),
      ...(isSecret && { secret: true }),
      ...(hasDefault && { default: fallback }),
    };
    if ((field["required"] === true || isSecret) && !hasDefault && known.default === undefined)
      required.add(key);
  }
  return { ...settings, ...(required.size > 0 && { required: [...required] }), properties };
}
