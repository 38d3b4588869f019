/** How much of a JSON text is anything but the text of strings: that is what parsing it costs. */

/** In UTF-16 units, quotes included. Looks at each unit but once, and makes nothing. */
export function structureLength(json: string): number {
  let length = 0;
  for (let at = 0; ;) {
    const open = json.indexOf('"', at);
    if (open < 0) return length + json.length - at;
    const close = endOfString(json, open);
    length += open - at + 2;
    if (close < 0) return length;
    at = close + 1;
  }
}

function endOfString(json: string, open: number): number {
  let close = json.indexOf('"', open + 1);
  while (close >= 0 && isEscaped(json, close)) close = json.indexOf('"', close + 1);
  return close;
}

function isEscaped(json: string, at: number): boolean {
  let backslashes = 0;
  while (json[at - 1 - backslashes] === "\\") backslashes++;
  return backslashes % 2 === 1;
}
