/** Reads values in the output of `compose config`, which has several forms of the same setting. */
import { isObject, type JsonObject, type JsonValue } from "../../lib/json.ts";
import { mapValues } from "../../lib/map-values.ts";

export function recordOf(value: JsonValue | undefined): JsonObject {
  return isObject(value) ? value : {};
}

/** The mapping with its merge keys resolved: the first of several values counts. */
export function mergedRecord(value: JsonValue | undefined): JsonObject {
  if (!isObject(value)) return {};
  const { "<<": merged, ...own } = value;
  return Object.fromEntries(
    [...listOf(merged).map(mergedRecord).reverse(), own].flatMap((part) => Object.entries(part)),
  );
}

export function listOf(value: JsonValue | undefined): readonly JsonValue[] {
  if (value === undefined || value === null) return [];
  return Array.isArray(value) ? value : [value];
}

/** The text; other values as JSON. */
export function textOf(value: JsonValue | undefined): string {
  if (value === undefined || value === null) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

export function textsOf(value: JsonValue | undefined): string[] {
  return listOf(value).map(textOf);
}

/** Reads both `["a"]` and `{a: {…}}`: names with their settings. */
export function namedParts(value: JsonValue | undefined): [name: string, settings: JsonObject][] {
  return Array.isArray(value)
    ? value.map((name) => [textOf(name), {}])
    : Object.entries(recordOf(value)).map(([name, settings]) => [name, recordOf(settings)]);
}

/** A service's networks by their keys, with its settings there; the default network without any. */
export function joinedNetworks({ networks }: JsonObject): [key: string, how: JsonObject][] {
  const joined = namedParts(networks);
  return joined.length === 0 ? [["default", {}]] : joined;
}

/** Keys that are set and not known, without extensions. */
export function unknownKeys(part: JsonObject, known: Iterable<string>): string[] {
  const expected = new Set(known);
  return Object.keys(part).filter((key) => !expected.has(key) && !key.startsWith("x-") && isSet(part[key]));
}

/** Reads both `{a: 1}` and `["a=1"]`. */
export function pairsOf(value: JsonValue | undefined): Record<string, string> {
  if (!Array.isArray(value)) {
    return mapValues(recordOf(value), textOf);
  }
  return Object.fromEntries(
    value.map((item) => {
      const text = textOf(item);
      const equals = text.indexOf("=");
      return equals === -1 ? [text, ""] : [text.slice(0, equals), text.slice(equals + 1)];
    }),
  );
}

/** Variables with a value: without one, compose would use the value in its own environment. */
export function environmentPairs(value: JsonValue | undefined): Record<string, string> {
  if (Array.isArray(value)) return pairsOf(value.filter((item) => textOf(item).includes("=")));
  const own = recordOf(value);
  return Object.fromEntries(Object.entries(pairsOf(value)).filter(([name]) => own[name] !== null));
}

/** Neither absent nor off; other values have no effect. */
export function isSet(value: JsonValue | undefined): boolean {
  if (value === undefined || value === null || value === false || value === "" || value === 0) return false;
  return typeof value !== "object" || Object.keys(value).length > 0;
}

/** Bytes of `64m`, `1gb` or a number; NaN for other text. */
export function bytesOf(value: JsonValue | undefined): number {
  const [, digits = "", unit = ""] = /^(\d+)\s*([kmg]?)i?b?$/i.exec(textOf(value)) ?? [];
  return digits === "" ? Number.NaN : Number(digits) * 1024 ** " kmg".indexOf(unit.toLowerCase() || " ");
}

/** The bits of a file mode, which is octal as text and not as a number; NaN for other text. */
export function fileMode(value: JsonValue): number {
  if (typeof value === "number") return value;
  return /^(0o?)?[0-7]+$/.test(textOf(value))
    ? Number.parseInt(textOf(value).replace("o", ""), 8)
    : Number.NaN;
}

/** Seconds of a duration in Go's format, such as `1m30s`; NaN for other text. */
export function durationSecs(text: string): number {
  // Compose prints shorter durations. The pattern below takes long for a long text.
  if (text.length > 64) return Number.NaN;
  if (!/^([0-9.]+(h|ms|m|s|us|µs|ns))+$/.test(text)) return text === "0" ? 0 : Number.NaN;
  const secs: Readonly<Record<string, number>> = {
    ...{ h: 3_600, m: 60, s: 1, ms: 1e-3 },
    ...{ us: 1e-6, µs: 1e-6, ns: 1e-9 },
  };
  return [...text.matchAll(/([0-9.]+)(h|ms|m|s|us|µs|ns)/g)].reduce(
    (sum, [, amount, unit = ""]) => sum + Number(amount) * (secs[unit] ?? 0),
    0,
  );
}

/** The arguments of a command, given as a list or as text with a shell's quotes and backslashes. */
export function wordsOf(value: JsonValue | undefined): string[] {
  if (typeof value !== "string") return textsOf(value);
  const words: string[] = [];
  for (const [word] of value.matchAll(/(?:\\.|"(?:\\.|[^"\\])*"|'[^']*'|[^\s"'\\])+/gs)) {
    words.push(
      word.replaceAll(
        /\\(.)|"((?:\\.|[^"\\])*)"|'([^']*)'/gs,
        (_all, escaped?: string, double?: string, single?: string) =>
          escaped ?? single ?? double?.replaceAll(/\\(["\\$`])/g, "$1") ?? "",
      ),
    );
  }
  return words;
}

/** Maps every text in a value; keys are unchanged. */
export function mapTexts(value: JsonValue, map: (text: string) => string): JsonValue {
  if (typeof value === "string") return map(value);
  if (Array.isArray(value)) return value.map((item) => mapTexts(item, map));
  if (typeof value !== "object" || value === null) return value;
  return mapValues(value, (item) => mapTexts(item, map));
}

/** Name of an external network or volume on the engine: its `name`, else its key. */
export function externalName({ name, external }: JsonObject, key: string): string {
  return textOf(name) || textOf(recordOf(external)["name"]) || key;
}

/** Name of a project's volume on the engine, external or not. */
export function volumeName(volume: JsonObject, key: string, project: string): string {
  return isSet(volume["external"])
    ? externalName(volume, key)
    : textOf(volume["name"]) || `${project}_${key}`;
}
