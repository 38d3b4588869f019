/** Makes untrusted text safe to show: characters that would move, hide or reverse other text are escaped. */

const colours = /\x1b\[[0-9;:]*m/g;
const escapes = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\u061c]/g;

/** One line, such as a name. */
export function plainText(text: string): string {
  return text.replace(escapes, escaped);
}

/** A line of a log, without color codes. */
export function plainLine(line: string): string {
  return plainText(line.replace(colours, "").replace(/\r$/, ""));
}

function escaped(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
}

/** Turns a daemon message into a sentence. Names of files and settings stay unchanged. */
export function sentence(words: string): string {
  const isWord = /^(?!svc\b)[a-z']+(?=[ ,;]|$)/.test(words);
  return ended(isWord ? words.charAt(0).toUpperCase() + words.slice(1) : words);
}

/** Adds a full stop if needed, so that another sentence may follow. */
export function ended(words: string): string {
  return words === "" || /[.!?…]$/.test(words) ? words : `${words}.`;
}
