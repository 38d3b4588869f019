/** Reading unit files as systemd does (systemd.syntax(7)). */

export interface UnitEntry {
  /** Such as `Service`. */
  readonly section: string;
  readonly key: string;
  readonly value: string;
  /** From 1; of its first line where it goes over several. */
  readonly line: number;
}

/** What is in a unit file that is no such line. */
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
    if (at < 1 || section === "") throw new UnitSyntaxError(line, `"${whole.slice(0, 80)}" is no directive`);
    // In whatever a value would be written again, nothing of it must begin another line.

    if (/[\u0000-\u0008\u000a-\u001f\u007f]/.test(whole) || whole.endsWith("\\")) {
      throw new UnitSyntaxError(line, "it has a control character, or ends in a backslash");
    }
    entries.push({ section, key: whole.slice(0, at).trim(), value: whole.slice(at + 1).trim(), line });
  }
  return entries;
}

/** Lines without comments and empty ones; one that ends in a backslash goes on with the next. */
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
  if (begun.trim() !== "") throw new UnitSyntaxError(first, "its last line goes on with nothing");
}
