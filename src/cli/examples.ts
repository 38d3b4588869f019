/** Example lines for the end of a command's help. The reference pages of the documentation also use them. */
export function examples(...lines: readonly string[]): string {
  return `\nExamples:\n${lines.map((line) => `  ${line}\n`).join("")}`;
}
