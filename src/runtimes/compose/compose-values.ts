/** Small readings of what `compose config` prints, which spells the same thing in many ways. */
import type { JsonObject, JsonValue } from "../../lib/json.ts";
import { mapValues } from "../../lib/map-values.ts";

export function recordOf(value: JsonValue | undefined): JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? value : {};
}

/** With what its merge keys bring in: of several the first counts. */
export function mergedRecord(value: JsonValue | undefined): JsonObject {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return {};
  const { "<<": merged, ...own } = value;
  return Object.fromEntries(
    [...listOf(merged).map(mergedRecord).reverse(), own].flatMap((part) => Object.entries(part)),
  );
}

export function listOf(value: JsonValue | undefined): readonly JsonValue[] {
  if (value === undefined || value === null) return [];
  return Array.isArray(value) ? value : [value];
}

/** What is no text is shown as JSON. */
export function textOf(value: JsonValue | undefined): string {
  if (value === undefined || value === null) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

export function textsOf(value: JsonValue | undefined): string[] {
  return listOf(value).map(textOf);
}

/** `["a"]` and `{a: {…}}` alike: names, each with what is said of it. */
export function namedParts(value: JsonValue | undefined): [name: string, said: JsonObject][] {
  return Array.isArray(value)
    ? value.map((name) => [textOf(name), {}])
    : Object.entries(recordOf(value)).map(([name, said]) => [name, recordOf(said)]);
}

/** The networks of a service by their keys, and how it joins them; without any it joins the default one. */
export function joinedNetworks({ networks }: JsonObject): [key: string, how: JsonObject][] {
  const joined = namedParts(networks);
  return joined.length === 0 ? [["default", {}]] : joined;
}

/** What is set and not known; extensions mean nothing. */
export function oddKeys(part: JsonObject, known: Iterable<string>): string[] {
  const expected = new Set(known);
  return Object.keys(part).filter((key) => !expected.has(key) && !key.startsWith("x-") && isSet(part[key]));
}

/** `{a: 1}` and `["a=1"]` alike. */
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

/** Variables that have a value: one without takes that of whoever runs compose, which is nobody here. */
export function environmentPairs(value: JsonValue | undefined): Record<string, string> {
  const own = recordOf(value);
  return Object.fromEntries(Object.entries(pairsOf(value)).filter(([name]) => own[name] !== null));
}

/** Neither absent nor off: what would change nothing asks for nothing. */
export function isSet(value: JsonValue | undefined): boolean {
  if (value === undefined || value === null || value === false || value === "" || value === 0) return false;
  return typeof value !== "object" || Object.keys(value).length > 0;
}

/** Bytes of `64m`, `1gb` or a number; NaN for another text. */
export function bytesOf(value: JsonValue | undefined): number {
  const [, digits = "", unit = ""] = /^(\d+)\s*([kmg]?)i?b?$/i.exec(textOf(value)) ?? [];
  return digits === "" ? Number.NaN : Number(digits) * 1024 ** " kmg".indexOf(unit.toLowerCase() || " ");
}

/** Of a duration as Go prints it, such as `1m30s`; NaN for another text. */
export function durationSecs(text: string): number {
  if (!/^([0-9.]+(h|ms|m|s|us|µs|ns))+$/.test(text)) return text === "0" ? 0 : Number.NaN;
  const secs: Readonly<Record<string, number>> = { h: 3_600, m: 60, s: 1, ms: 0.001 };
  return [...text.matchAll(/([0-9.]+)(h|ms|m|s)/g)].reduce(
    (sum, [, amount, unit = ""]) => sum + Number(amount) * (secs[unit] ?? 0),
    0,
  );
}

/** The words of a command, as a list or as one text with the quotes and backslashes of a shell. */
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

/** Maps every text of a value; keys stay. */
export function mapTexts(value: JsonValue, map: (text: string) => string): JsonValue {
  if (typeof value === "string") return map(value);
  if (Array.isArray(value)) return value.map((item) => mapTexts(item, map));
  if (typeof value !== "object" || value === null) return value;
  return mapValues(value, (item) => mapTexts(item, map));
}

/** What the engine calls a network or a volume that is not the project's; its key in the file when it has no other name. */
export function externalName({ name, external }: JsonObject, key: string): string {
  return textOf(name) || textOf(recordOf(external)["name"]) || key;
}

/** What the engine calls a volume of a project's file, whoever it belongs to. */
export function volumeName(volume: JsonObject, key: string, project: string): string {
  return isSet(volume["external"])
    ? externalName(volume, key)
    : textOf(volume["name"]) || `${project}_${key}`;
}
