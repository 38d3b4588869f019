/** Parses JSON of requests, with stricter rules than `JSON.parse`. */
import type { JsonValue } from "@bufbuild/protobuf";
import { invalidField, maxStructure, tooMuchStructure } from "../../errors.ts";
import { endOfString, hasMoreStructure } from "../../lib/json.ts";

/** Maximum nesting of a request body, far above that of any message. */
const maxDepth = 100;

/**
 * Parses a request body.
 * @param isBounded whether to limit the number of values, because parsing many of them blocks the event loop
 * @throws SvcError `invalid_request` if the body is not UTF-8 or not JSON, is nested deeper than 100 levels, or has a key
 *   twice in one object (JSON.parse would use the last one, but another parser may have checked the first one);
 *   `body_too_large` if it is bounded and has too many values
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

/** Checks keys and depth of a text that is known to be valid JSON. */
function checkObjects(text: string): void {
  // Keys of each open object; undefined for an open array.
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
  if (keys?.has(key) === true) throw invalidField(key, `the key ${quoted} appears twice in one object`);
  keys?.add(key);
}
