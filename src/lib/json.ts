/** Values of JSON. */
export type JsonValue = null | boolean | number | string | JsonValue[] | JsonObject;

/** An object of JSON. */
export interface JsonObject {
  [key: string]: JsonValue;
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
