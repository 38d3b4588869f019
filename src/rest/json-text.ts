/** JSON that arrives: what `JSON.parse` lets through and a request must not have. */
import type { JsonValue } from "@bufbuild/protobuf";
import { invalidField, maxStructure, tooMuchStructure } from "../errors.ts";
import { endOfString, hasMoreStructure } from "../lib/json-structure.ts";

/** Deepest nesting of a request body; what a schema can hold ends far above. */
const maxDepth = 100;

/**
 * Parses a request body.
 * @throws SvcError `invalid_request` when it is not UTF-8, not JSON, has a key twice in one object (the last would win
 *   silently, and whoever checked the first was fooled), or is nested deeper than 100 levels; `body_too_large` when it is
 *   bounded and more is in it than may be parsed in one piece
 */
export function parseJsonText(bytes: Uint8Array, isBounded: boolean): JsonValue {
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw invalidField("", "the body is not UTF-8");
  }
  if (isBounded && hasMoreStructure(text, maxStructure)) throw tooMuchStructure();
  let value;
  try {
    value = JSON.parse(text) as JsonValue;
  } catch (error) {
    throw invalidField("", `the body is not JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
  checkObjects(text);
  return value;
}

/** Looks at keys and depth of a text that is known to be JSON. */
function checkObjects(text: string): void {
  // The keys of each open object; an open array has none.
  const open: (Set<string> | undefined)[] = [];
  let atKey = false;
  for (let i = 0; i < text.length; i++) {
    switch (text.charCodeAt(i)) {
      case 0x7b: // {
        open.push(new Set());
        atKey = true;
        break;
      case 0x5b: // [
        open.push(undefined);
        break;
      case 0x7d: // }
      case 0x5d: // ]
        open.pop();
        atKey = false;
        break;
      case 0x2c: // ,
        atKey = open.at(-1) !== undefined;
        break;
      case 0x22: {
        // "
        const start = i;
        i = endOfString(text, i);
        if (atKey) addKey(open.at(-1), text.slice(start, i + 1));
        atKey = false;
        break;
      }
    }
    if (open.length > maxDepth) throw invalidField("", `the body is nested deeper than ${maxDepth} levels`);
  }
}

function addKey(keys: Set<string> | undefined, quoted: string): void {
  const key = quoted.includes("\\") ? (JSON.parse(quoted) as string) : quoted.slice(1, -1);
  if (keys?.has(key) === true) throw invalidField(key, `the key ${quoted} is there twice in one object`);
  keys?.add(key);
}
