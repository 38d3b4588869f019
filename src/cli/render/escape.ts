/** Text of others on our terminal: what an application prints or is called must not move the cursor or change the title (T44). */

/** C0 but for tab, DEL, C1, line and paragraph separators, and the marks that turn the reading direction. */
const controls = /[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\u061c]/g;

/** Every control character as `\xNN` or `\uNNNN`; a tab as it is. */
export function escapeControls(text: string): string {
  return text.replace(controls, (character) => {
    const code = character.charCodeAt(0);
    return code < 0x100
      ? `\\x${code.toString(16).padStart(2, "0")}`
      : `\\u${code.toString(16).padStart(4, "0")}`;
  });
}

/** As {@link escapeControls}, for text of several lines. */
export function escapeLines(text: string): string {
  return text.split(/\r?\n/).map(escapeControls).join("\n");
}

/** As {@link escapeControls}, with tabs made spaces: for a cell whose width counts. */
export function escapeCell(text: string): string {
  return escapeControls(text.replaceAll("\t", " "));
}
