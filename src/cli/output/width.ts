/** The width of text on a terminal, and how to make it fit. */

/** East Asian wide and fullwidth characters, and emoji: the ranges that common terminals show two columns wide. */
const wide =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\u33ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1f64f}\u{1f680}-\u{1f6ff}\u{1f900}-\u{1f9ff}\u{20000}-\u{3fffd}]/u;
/** Combining marks and joiners have no width. */
const zeroWidth = /\p{Mn}|\p{Me}|[\u200b-\u200d]|[\ufe00-\ufe0f]/u;
const printableAscii = /^[\x20-\x7e]*$/;

/** @param text without control characters */
export function textWidth(text: string): number {
  if (printableAscii.test(text)) return text.length;
  let width = 0;
  for (const character of text) width += characterWidth(character);
  return width;
}

function characterWidth(character: string): number {
  if (zeroWidth.test(character)) return 0;
  return wide.test(character) ? 2 : 1;
}

/** The width of a terminal. A serial console, or a terminal without a window, reports 0 for unknown. */
export function columnsOf({ columns }: { readonly columns?: number | undefined }): number {
  return columns === undefined || columns === 0 ? 80 : columns;
}

/** Cuts a text to `columns`, with an ellipsis if anything is cut. */
export function truncate(text: string, columns: number): string {
  if (textWidth(text) <= columns) return text;
  let shown = "";
  let width = 0;
  for (const character of text) {
    width += characterWidth(character);
    if (width > columns - 1) break;
    shown += character;
  }
  return `${shown}…`;
}
