/** Reads an unresolved compose file: its variables, ports, and host access. */
import { posix } from "node:path";
import { isInside } from "../lib/paths.ts";
import type { JsonObject, JsonValue } from "../lib/json.ts";
import { mapValues } from "../lib/map-values.ts";
import type { Permission } from "../packages/manifest/permissions.ts";
import { readYaml, type Problem, type YamlDocument } from "../packages/manifest/yaml-document.ts";
import { listOf, mapTexts, mergedRecord, recordOf } from "../runtimes/compose/compose-values.ts";
import { projectClaims } from "../runtimes/compose/project-claims.ts";
import { wellKnownSockets } from "../runtimes/containers/container-policy.ts";
import { hostClock } from "../runtimes/containers/host-clock.ts";

const bounds = { maxBytes: 512 * 1024, maxTokens: 20_000, maxDepth: 64, maxValues: 20_000 };
/** Stands for the package's directory, as the base of relative paths. */
const here = "/package";

/** A variable such as `${NAME}` in a compose file. */
export interface ComposeVariable {
  readonly name: string;
  /** Absent without a default, or if the default is not plain text. */
  readonly fallback?: string;
  /** Whether the file is invalid without a value. */
  readonly isRequired: boolean;
}

export interface ComposeAsk {
  readonly permission: Permission;
  readonly line: number;
  /** Such as `service "web" runs privileged`. */
  readonly sentence: string;
}

export interface ComposeFile {
  /** As written. */
  readonly document: JsonObject;
  readonly variables: readonly ComposeVariable[];
  readonly asks: readonly ComposeAsk[];
  readonly lineOf: YamlDocument["lineOf"];
}

export type ComposeReading = { file: ComposeFile } | { problems: readonly Problem[] };

export function readComposeFile(text: string): ComposeReading {
  const result = readYaml(text, bounds);
  if ("problems" in result) return result;
  const { value, lineOf } = result.document;
  const document = mergedRecord(value);
  const services = recordOf(document["services"]);
  if (Object.keys(services).length === 0)
    return { problems: [{ line: 1, message: `"services" is missing` }] };
  return {
    file: {
      ...{ document, lineOf },
      variables: variablesOf(document),
      asks: asksOf(document, lineOf),
    },
  };
}

/** `$$`, `${NAME}` with an optional modifier, and `$NAME`; a default may contain another variable. */
const variableForm = /\$\$|\$\{([A-Za-z_]\w*)(?:(:?[-?+])((?:[^{}]|\$\{[^{}]*\})*))?\}|\$([A-Za-z_]\w*)/g;

function variablesOf(document: JsonObject): ComposeVariable[] {
  const found = new Map<string, ComposeVariable>();
  mapTexts(document, (text) => {
    for (const [whole, braced, operator = "", word = "", plain] of text.matchAll(variableForm)) {
      const name = braced ?? plain;
      if (whole === "$$" || name === undefined) continue;
      const before = found.get(name);
      const fallback = operator.endsWith("-") && !word.includes("$") ? word : before?.fallback;
      const isRequired = operator.endsWith("?") || (before?.isRequired ?? false);
      found.set(name, { name, isRequired, ...(fallback !== undefined && { fallback }) });
    }
    return text;
  });
  return [...found.values()];
}

/** Replaces variables by their defaults, or by nothing. */
export function withDefaults(text: string): string {
  return text.replaceAll(variableForm, (whole, _name, operator = "", word = "") => {
    if (whole === "$$") return "$";
    return String(operator).endsWith("-") ? withDefaults(String(word)) : "";
  });
}

/** The variable's name, if the text is exactly one variable. */
export function onlyVariable(text: string): string | undefined {
  const [match] = text.matchAll(variableForm);
  return match?.[0] === text && text !== "$$" ? (match[1] ?? match[4]) : undefined;
}

function asksOf(document: JsonObject, lineOf: YamlDocument["lineOf"]): ComposeAsk[] {
  const services = mapValues(recordOf(document["services"]), (service): JsonValue => {
    const { volumes = null, extends: _, env_file: __, label_file: ___, ...rest } = mergedRecord(service);
    return { ...rest, volumes: listOf(volumes).map(absolute) };
  });
  const { include: _, ...whole } = withoutVariables(document);
  const claims = projectClaims(recordOf(mapTexts({ ...whole, services }, withDefaults)), "package");
  return claims.flatMap(({ subject, asks, binds }) => {
    const line = lineOf(placeOf(subject));
    const mounts = binds.flatMap(({ source, readOnly }) => {
      if (isInside(here, source) || (readOnly && hostClock.has(source))) return [];
      const isSocket = wellKnownSockets.some((socket) => isInside(source, socket));
      return [{ permission: isSocket ? "engine_socket" : "host_mounts", what: `mounts ${source}` } as const];
    });
    return [...asks, ...mounts].map(({ permission, what }) => ({
      permission,
      line,
      sentence: `${subject} ${what}`,
    }));
  });
}

/** svc creates files for configs and secrets from variables. */
function withoutVariables(document: JsonObject): JsonObject {
  const sections = (["configs", "secrets"] as const).map((section) => [
    section,
    mapValues(recordOf(document[section]), (part): JsonValue => {
      const { environment: _, ...rest } = recordOf(part);
      return rest;
    }),
  ]);
  return { ...document, ...(Object.fromEntries(sections) as JsonObject) };
}

/** Path in the document for the subject of claims, such as `service "web"`. */
function placeOf(subject: string): string[] {
  const [, kind, name] = /^(service|volume|network|secret|config) "(.*)"$/.exec(subject) ?? [];
  return kind === undefined || name === undefined ? [] : [`${kind}s`, name];
}

/** Makes relative sources absolute: a mount of the package's own directory does not count as host access. */
function absolute(volume: JsonValue): JsonValue {
  const resolve = (source: string): string =>
    /^\.{1,2}(\/|$)/.test(source) ? posix.join(here, source) : source;
  if (typeof volume === "string") {
    // A colon in `${NAME:-/x}` is not a separator.
    const [source = "", ...rest] = withDefaults(volume).split(":");
    return [resolve(source), ...rest].join(":");
  }
  const { source, ...rest } = recordOf(volume);
  return typeof source === "string" ? { ...rest, source: resolve(withDefaults(source)) } : volume;
}
