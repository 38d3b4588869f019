/** Decodes names in archives of systems whose names are not UTF-8. */
import { isUtf8 } from "node:buffer";

/** Characters of the bytes 128 to 255 in CP437, the encoding of DOS, which `TextDecoder` lacks. */
const cp437 =
  "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐" +
  "└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u00a0";

/**
 * @param {string} name one character per byte
 * @param {string} encoding `cp437` or a label of the WHATWG Encoding Standard; empty: the name keeps its bytes
 * @returns {string} the name as UTF-8, one character per byte
 */
export function decodedName(name, encoding) {
  const bytes = Buffer.from(name, "latin1");
  if (encoding === "" || isUtf8(bytes)) return name;
  const text =
    encoding === "cp437"
      ? name.replace(/[\x80-\xff]/g, (byte) => cp437.charAt(byte.charCodeAt(0) - 128))
      : new TextDecoder(encoding).decode(bytes);
  return Buffer.from(text).toString("latin1");
}
