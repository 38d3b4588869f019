/**
 * Generates a manifest for an app of a CasaOS store: a compose file with `x-casaos`, which uses that system's
 * directories and variables. A generated compose file uses directories of the package instead.
 */
import { basename } from "node:path";
import { stringify } from "yaml";
import type { JsonObject, JsonValue } from "../lib/json.ts";
import { mapValues } from "../lib/map-values.ts";
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
import { invalidFile, type Derived } from "./derived.ts";
import { fromCompose, inEnglish } from "./from-compose.ts";
import { PlannedFiles, type PackageFiles } from "./package-files.ts";

export const madeComposeFile = "svc.compose.yaml";

/** Variables that CasaOS sets, with values that work for most apps. */
const defaults: Readonly<Record<string, string>> = { PUID: "1000", PGID: "1000", TZ: "UTC" };

/**
 * @returns undefined for a compose file that is not from CasaOS
 * @throws SvcError `package_invalid` with the lines of errors
 */
export async function fromCasaOs(
  files: PackageFiles,
  name: string,
  compose?: ComposeProgram,
): Promise<Derived | undefined> {
  const text = (await files.text(name)) ?? "";
  if (!/^x-casaos\s*:/m.test(text)) return undefined;
  const reading = readComposeFile(text);
  if ("problems" in reading) throw invalidFile(name, reading.problems);
  // svc sets the project's name, and docker-compose 1.29 does not support `name`.
  const { name: written = null, ...document } = reading.file.document;
  const named = textOf(written);
  const id = named || basename(files.root).toLowerCase();
  const { title = null, tagline = null, port_map: mainPort } = recordOf(document["x-casaos"]);
  const services = mapValues(recordOf(document["services"]), (service) =>
    serviceOf(mergedRecord(service), textOf(mainPort)),
  );
  const described = { title: inEnglish(title), tagline: inEnglish(tagline) };
  const whole = { ...document, services, "x-casaos": described };
  const made = stringify(
    mapTexts(whole, (part) => withVariables(part, id)),
    { lineWidth: 0 },
  );
  const dotenv = await files.text(".env");
  const planned = new PlannedFiles(files.root, {
    [madeComposeFile]: made,
    ...(dotenv !== undefined && { ".env": dotenv }),
  });
  const derived = await fromCompose(planned, madeComposeFile, compose);
  const manifest = { ...(named !== "" && !named.includes("$") && { id: named }), ...derived.manifest };
  return { ...derived, manifest, from: name, files: { [madeComposeFile]: made } };
}

function serviceOf(service: JsonObject, mainPort: string): JsonObject {
  const {
    volumes = null,
    ports = null,
    "x-casaos": _,
    container_name: __,
    network_mode = null,
    ...rest
  } = service;
  return {
    ...rest,
    // Most apps there join the network of all containers; on svc, the app's own network replaces it.
    ...(isSet(network_mode) && network_mode !== "bridge" && { network_mode }),
    ...(isSet(volumes) && { volumes: listOf(volumes).map((volume) => mapTexts(volume, inPackage)) }),
    ...(isSet(ports) && { ports: listOf(ports).map((port) => withSetting(port, mainPort)) }),
  };
}

/** Replaces the app's data directories; directories shared with other apps are unchanged. */
function inPackage(text: string): string {
  return text.replace(/^\/DATA\/AppData\/(?:\$\{?AppID\}?|[^/$:]+)(?=[/:]|$)/, "./data");
}

/** Makes the port of the app's web page a setting. */
function withSetting(port: JsonValue, mainPort: string): JsonValue {
  const variable = `\${PORT:-${mainPort}}`;
  if (mainPort === "" || !/^\d+$/.test(mainPort)) return port;
  if (typeof port === "string")
    return port.startsWith(`${mainPort}:`) ? `${variable}${port.slice(mainPort.length)}` : port;
  const long = recordOf(port);
  return textOf(long["published"]) === mainPort ? { ...long, published: variable } : port;
}

function withVariables(text: string, id: string): string {
  return text
    .replaceAll(/\$\{?AppID\}?/g, id)
    .replaceAll(/\$(?:\{(\w+)\}|([A-Za-z_]\w*))/g, (whole, braced?: string, plain?: string) => {
      const name = braced ?? plain ?? "";
      return Object.hasOwn(defaults, name) ? `\${${name}:-${defaults[name] ?? ""}}` : whole;
    });
}
