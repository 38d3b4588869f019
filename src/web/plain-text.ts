/** Text of others, for people: what would move, hide or turn around other text is shown as what it is (T 44, 66). */

const colours = /\x1b\[[0-9;:]*m/g;
const escapes = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

/** One line, such as a name. */
export function plainText(text: string): string {
  return text.replace(escapes, escaped);
}

/** A line of a log: colours go, as most logs have them. */
export function plainLine(line: string): string {
  return plainText(line.replace(colours, "").replace(/\r$/, ""));
}

function escaped(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
}

/** Of the daemon's words, which come without a capital and a full stop; the name of a file or setting stays what it is. */
export function sentence(words: string): string {
  const isWord = /^(?!svc\b)[a-z']+(?=[ ,;]|$)/.test(words);
  return ended(isWord ? words.charAt(0).toUpperCase() + words.slice(1) : words);
}

/** So that another sentence may follow. */
export function ended(words: string): string {
  return words === "" || /[.!?…]$/.test(words) ? words : `${words}.`;
}
