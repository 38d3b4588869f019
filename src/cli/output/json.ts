/** JSON output in the shape of REST, safe to print on a terminal. */

/** DEL, C1, separators and direction marks: JSON may contain them unescaped, and a terminal may interpret them. */
const controls = /[\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\u061c]/g;

/** @param indent 2 for a document, 0 for one line of a stream */
export function formatJson(value: unknown, indent: 0 | 2): string {
  const text = JSON.stringify(value, undefined, indent);
  return `${text.replace(controls, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`)}\n`;
}
