/** What a compose file says before any program has resolved it: its variables, its ports, and what it asks of the host. */
import { posix } from "node:path";
import { isInside } from "../lib/is-inside.ts";
import type { JsonObject, JsonValue } from "../lib/json.ts";
import { mapValues } from "../lib/map-values.ts";
import type { Permission } from "../packages/permissions.ts";
import { readYaml, type Problem, type YamlDocument } from "../packages/yaml-document.ts";
import { listOf, mapTexts, mergedRecord, recordOf } from "../runtimes/compose/compose-values.ts";
import { projectClaims } from "../runtimes/compose/project-claims.ts";
import { wellKnownSockets } from "../runtimes/container-policy.ts";
import { hostClock } from "../runtimes/host-clock.ts";

const bounds = { maxBytes: 512 * 1024, maxTokens: 20_000, maxDepth: 64, maxValues: 20_000 };
/** Stands for the package's directory, which a relative path is in. */
const here = "/package";

/** A `${NAME}` of a compose file. */
export interface ComposeVariable {
  readonly name: string;
  /** Absent: it has none that is plain text. */
  readonly fallback?: string;
  /** The file ends with an error without a value. */
  readonly isRequired: boolean;
}

export interface ComposeAsk {
  readonly permission: Permission;
  readonly line: number;
  /** Such as `service "web" runs privileged`. */
  readonly sentence: string;
}

export interface ComposeFile {
  /** As it is written. */
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
  if (Object.keys(services).length === 0) return { problems: [{ line: 1, message: `it has no "services"` }] };
  return {
    file: {
      ...{ document, lineOf },
      variables: variablesOf(document),
      asks: asksOf(document, lineOf),
    },
  };
}

/** `$$`, `${NAME}` with what may follow the name, and `$NAME`; a default may hold another variable. */
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

/** With the defaults of its variables; of those without one nothing is left. */
export function withDefaults(text: string): string {
  return text.replaceAll(variableForm, (whole, _name, operator = "", word = "") => {
    if (whole === "$$") return "$";
    return String(operator).endsWith("-") ? withDefaults(String(word)) : "";
  });
}

/** The variable that the text is, whole and alone. */
export function onlyVariable(text: string): string | undefined {
  const [match] = text.matchAll(variableForm);
  return match?.[0] === text && text !== "$$" ? (match[1] ?? match[4]) : undefined;
}

function asksOf(document: JsonObject, lineOf: YamlDocument["lineOf"]): ComposeAsk[] {
  const services = mapValues(recordOf(document["services"]), (service): JsonValue => {
    const { volumes = null, extends: _, env_file: __, label_file: ___, ...rest } = mergedRecord(service);
    return { ...rest, volumes: listOf(volumes).map(absolute) };
  });
  const { include: _, ...whole } = document;
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

/** `service "web"`, as claims name it, in the document. */
function placeOf(subject: string): string[] {
  const [, kind, name] = /^(service|volume|network|secret|config) "(.*)"$/.exec(subject) ?? [];
  return kind === undefined || name === undefined ? [] : [`${kind}s`, name];
}

/** A mount of the package's own directory is none of the host. */
function absolute(volume: JsonValue): JsonValue {
  const resolve = (source: string): string =>
    /^\.{1,2}(\/|$)/.test(source) ? posix.join(here, source) : source;
  if (typeof volume === "string") {
    // A colon of `${NAME:-/x}` divides nothing.
    const [source = "", ...rest] = withDefaults(volume).split(":");
    return [resolve(source), ...rest].join(":");
  }
  const { source, ...rest } = recordOf(volume);
  return typeof source === "string" ? { ...rest, source: resolve(withDefaults(source)) } : volume;
}
