/** Values of JSON. */
export type JsonValue = null | boolean | number | string | JsonValue[] | JsonObject;

/** An object of JSON. */
export interface JsonObject {
  [key: string]: JsonValue;
}

/** Whether a parsed value is an object, which excludes lists and null. */
export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * Whether the text has more than `most` brackets, commas, colons and quotes outside of strings; their number
 * determines the cost of parsing. Reads each character once, and allocates nothing.
 */
export function hasMoreStructure(json: string, most: number): boolean {
  let count = 0;
  for (let at = 0; at < json.length; at++) {
    switch (json.charCodeAt(at)) {
      case 0x22: // "
        at = endOfString(json, at);
        // An unterminated string is not valid JSON.
        if (at < 0) return false;
        count += 2;
        break;
      case 0x2c: // ,
      case 0x3a: // :
      case 0x5b: // [
      case 0x5d: // ]
      case 0x7b: // {
      case 0x7d: // }
        count++;
    }
    if (count > most) return true;
  }
  return false;
}

/** Index of the quote that closes the string opened at `open`; -1 if it is unterminated. */
export function endOfString(json: string, open: number): number {
  let close = json.indexOf('"', open + 1);
  while (close >= 0 && isEscaped(json, close)) close = json.indexOf('"', close + 1);
  return close;
}

function isEscaped(json: string, at: number): boolean {
  let backslashes = 0;
  while (json.charCodeAt(at - 1 - backslashes) === 0x5c) backslashes++;
  return backslashes % 2 === 1;
}

/**
 * The first key that parsers of JSON read differently: Go's ignore case, and merge the values of equal keys.
 * @param json valid JSON
 * @param names of the fields that matter, which may be spelled only like this
 */
export function findAmbiguousKey(json: string, names: readonly string[]): string | undefined {
  const spelling = new Map(names.map((name) => [foldedKey(name), name]));
  const open: Set<string>[] = [];
  for (let at = 0; at < json.length; at++) {
    const character = json[at] ?? "";
    if ("{[".includes(character)) open.push(new Set());
    else if ("}]".includes(character)) open.pop();
    else if (character === '"') {
      const close = endOfString(json, at);
      const text = json.slice(at, close + 1);
      at = close;
      while (/\s/.test(json[at + 1] ?? "")) at++;
      // Only keys are followed by a colon.
      if (json[at + 1] !== ":") continue;
      const key = JSON.parse(text) as string;
      const folded = foldedKey(key);
      if (open.at(-1)?.has(folded) === true || (spelling.get(folded) ?? key) !== key) return key;
      open.at(-1)?.add(folded);
    }
  }
  return undefined;
}

/** Go also takes ſ for s and the Kelvin sign for k. */
function foldedKey(key: string): string {
  return key.normalize("NFKC").toLowerCase();
}
