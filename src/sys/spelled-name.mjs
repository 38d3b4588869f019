const spelledByte = /\\x(5c|[89a-f][0-9a-f])/g;

/**
 * The bytes of a file name in the contract's spelling, where `\xNN` stands for a byte that is not valid UTF-8.
 *
 * @param {string} text well-formed
 * @returns {string} one character per byte (latin1)
 */
export function decodeSpelling(text) {
  return Buffer.from(text)
    .toString("latin1")
    .replace(spelledByte, (_, hex) => String.fromCharCode(Number.parseInt(hex, 16)));
}
