/**
 * Escapes names, which are bytes and do not have to be UTF-8: UTF-8 text with `\xNN` (two lower-case hexadecimal
 * digits) for each invalid byte. A backslash that would look like such an escape is written as `\x5c`; any other
 * backslash is literal.
 *
 * Inside the helper names are strings of one character per byte (latin1).
 */
import { decodeSpelling } from "../../../sys/spelled-name.mjs";
import { RequestError } from "../request-error.mjs";

const ambiguous = /\\(?=x(?:5c|[89a-f][0-9a-f]))/g;
const plain = /^[^\\\x80-\xff]*$/;
const maxNames = 4096;
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** @param {string} bytes */
export function spell(bytes) {
  if (plain.test(bytes)) return bytes;
  const escaped = Buffer.from(bytes.replace(ambiguous, String.raw`\x5c`), "latin1");
  try {
    return utf8.decode(escaped);
  } catch {
    return spellPieces(escaped);
  }
}

/** @param {Buffer} bytes */
function spellPieces(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length;) {
    const lead = bytes[at] ?? 0;
    const length = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    try {
      text += utf8.decode(bytes.subarray(at, at + length));
      at += length;
    } catch {
      text += `\\x${lead.toString(16)}`;
      at += 1;
    }
  }
  return text;
}

/**
 * @param {string} text
 * @throws RequestError `INVALID`
 */
export function bytesOf(text) {
  if (typeof text !== "string" || text.includes("\0") || !text.isWellFormed()) {
    throw new RequestError("INVALID", "is not a valid path");
  }
  return decodeSpelling(text);
}

/**
 * Splits an absolute path into names.
 * @param {string} text
 * @returns {string[]}
 * @throws RequestError `INVALID` also for `..`, which is ambiguous if the path contains links
 */
export function namesOf(text) {
  const bytes = bytesOf(text);
  if (!bytes.startsWith("/")) throw new RequestError("INVALID", "must be absolute");
  const names = splitPath(bytes);
  if (names.includes("..")) throw new RequestError("INVALID", 'must not contain ".."');
  if (names.length > maxNames) throw new RequestError("INVALID", "has too many parts");
  return names;
}

/** @param {string} bytes */
export function splitPath(bytes) {
  return bytes.split("/").filter((name) => name !== "" && name !== ".");
}
