/**
 * Escapes untrusted text for a terminal: output or names of an application must not move the cursor or change
 * the title.
 */

/** C0 except tab, DEL, C1, line and paragraph separators, and marks that change the text direction. */
const controls = /[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\u061c]/g;

/** Prints every control character as `\xNN` or `\uNNNN`; keeps tabs. */
export function escapeControls(text: string): string {
  return text.replace(controls, (character) => {
    const code = character.charCodeAt(0);
    return code < 0x100
      ? `\\x${code.toString(16).padStart(2, "0")}`
      : `\\u${code.toString(16).padStart(4, "0")}`;
  });
}

/** Select Graphic Rendition (ECMA-48, section 8.3.117): colors, bold, underline. */
const styles = /(\x1b\[[0-9;:]*m)/;

/** Like {@link escapeControls}, but keeps colors and other styles. A line with a style ends with a reset. */
export function escapeKeepingStyles(line: string): string {
  const parts = line.split(styles);
  if (parts.length === 1) return escapeControls(line);
  // `split` puts the captured sequences at the odd positions.
  return `${parts.map((part, at) => (at % 2 === 1 ? part : escapeControls(part))).join("")}\x1b[0m`;
}

/** Like {@link escapeControls}, for text of several lines. */
export function escapeLines(text: string): string {
  return text.split(/\r?\n/).map(escapeControls).join("\n");
}

/** Like {@link escapeControls}, with tabs replaced by spaces: for cells of a table. */
export function escapeCell(text: string): string {
  return escapeControls(text.replaceAll("\t", " "));
}

/** DEL, C1, separators and direction marks: JSON may contain them unescaped, and a terminal may interpret them. */
const controlsInJson = /[\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\u061c]/g;

/** JSON in the shape of REST, safe to print on a terminal. @param indent 2 for a document, 0 for one line of a stream */
export function formatJson(value: unknown, indent: 0 | 2): string {
  const text = JSON.stringify(value, undefined, indent);
  return `${text.replace(controlsInJson, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`)}\n`;
}
