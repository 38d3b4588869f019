/** Parses unit files like systemd (systemd.syntax(7)). */

export interface UnitEntry {
  /** Such as `Service`. */
  readonly section: string;
  readonly key: string;
  readonly value: string;
  /** 1-based; the first of several continued lines. */
  readonly line: number;
}

/** A syntax error in a unit file. */
export class UnitSyntaxError extends Error {
  readonly line: number;

  constructor(line: number, message: string) {
    super(message);
    this.line = line;
  }
}

/** @throws UnitSyntaxError */
export function parseUnit(text: string): UnitEntry[] {
  const entries: UnitEntry[] = [];
  let section = "";
  for (const { line, text: whole } of logicalLines(text)) {
    const header = /^\[([^\]]+)\]$/.exec(whole)?.[1];
    if (header !== undefined) {
      section = header;
      continue;
    }
    const at = whole.indexOf("=");
    if (at < 1 || section === "")
      throw new UnitSyntaxError(line, `"${whole.slice(0, 80)}" is not a directive`);
    // A value that is written again must never start a new line.

    if (/[\u0000-\u0008\u000a-\u001f\u007f]/.test(whole) || whole.endsWith("\\")) {
      throw new UnitSyntaxError(line, "the line contains a control character or ends in a backslash");
    }
    entries.push({ section, key: whole.slice(0, at).trim(), value: whole.slice(at + 1).trim(), line });
  }
  return entries;
}

/** Lines without comments and empty ones; a backslash at the end continues a line. */
function* logicalLines(text: string): Generator<{ line: number; text: string }, void> {
  let begun = "";
  let first = 0;
  for (const [index, raw] of text.split(/\r?\n/).entries()) {
    const isComment = /^\s*[#;]/.test(raw);
    if (isComment || (begun === "" && raw.trim() === "")) continue;
    if (begun === "") first = index + 1;
    if (raw.endsWith("\\")) {
      begun += `${raw.slice(0, -1)} `;
      continue;
    }
    yield { line: first, text: (begun + raw).trim() };
    begun = "";
  }
  if (begun.trim() !== "") throw new UnitSyntaxError(first, "a continued line is missing at the end");
}
