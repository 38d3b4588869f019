/** Reads the Markdown of `docs/`: the part of GitHub's Markdown that these pages use. */

export type Block =
  | { readonly kind: "heading"; readonly level: number; readonly text: string }
  | { readonly kind: "code"; readonly text: string }
  | {
      readonly kind: "table";
      readonly head: readonly string[];
      readonly rows: readonly (readonly string[])[];
    }
  | { readonly kind: "item"; readonly marker: string; readonly depth: number; readonly text: string }
  /** The depth of the list item that the paragraph continues; 0 outside of lists. */
  | { readonly kind: "paragraph"; readonly depth: number; readonly text: string };

export interface Span {
  readonly kind: "text" | "code" | "bold" | "link";
  readonly text: string;
  /** Target of a link. */
  readonly target?: string;
}

const itemStart = /^( *)([-*]|\d+\.) +(.*)$/;

export function parseMarkdown(markdown: string): readonly Block[] {
  const blocks: Block[] = [];
  const lines = markdown.replaceAll(/<!--[^]*?-->\n?/g, "").split("\n");
  for (let at = 0; at < lines.length;) {
    const line = lines[at++] ?? "";
    const heading = /^(#{1,6}) (.*)$/.exec(line);
    const fence = /^ *```/.exec(line);
    const item = itemStart.exec(line);
    if (line.trim() === "") continue;
    if (heading !== null) {
      blocks.push({ kind: "heading", level: heading[1]?.length ?? 1, text: heading[2] ?? "" });
    } else if (fence !== null) {
      const code: string[] = [];
      while (at < lines.length && !/^ *```\s*$/.test(lines[at] ?? "")) code.push(lines[at++] ?? "");
      at++;
      blocks.push({ kind: "code", text: code.join("\n") });
    } else if (line.startsWith("|")) {
      const rows = [cellsOf(line)];
      while (lines[at]?.startsWith("|") === true) rows.push(cellsOf(lines[at++] ?? ""));
      const [head = [], , ...body] = rows;
      blocks.push({ kind: "table", head, rows: body });
    } else {
      const depth = item === null ? depthOf(line) : depthOf(item[1] ?? "") + 1;
      const words = [item === null ? line.trim() : (item[3] ?? "")];
      while (isContinuation(lines[at])) words.push((lines[at++] ?? "").trim());
      const text = words.join(" ");
      if (item === null) blocks.push({ kind: "paragraph", depth, text });
      else blocks.push({ kind: "item", marker: item[2] ?? "-", depth, text });
    }
  }
  return blocks;
}

function depthOf(line: string): number {
  return Math.ceil((/^ */.exec(line)?.[0].length ?? 0) / 3);
}

/** Whether a line continues the paragraph or the item above it. */
function isContinuation(line: string | undefined): boolean {
  return (
    line !== undefined &&
    line.trim() !== "" &&
    !/^(?:#{1,6} |\||<!--)|^ *```/.test(line) &&
    !itemStart.test(line)
  );
}

function cellsOf(row: string): readonly string[] {
  const cells = row
    .trim()
    .replace(/^\|/, "")
    .replace(/\|$/, "")
    .split(/(?<!\\)\|/);
  return cells.map((cell) => cell.trim().replaceAll("\\|", "|"));
}

const inline = /`([^`]+)`|\*\*(.+?)\*\*|\[((?:[^\]`]|`[^`]*`)+)\]\(([^)\s]+)\)|<(https?:[^>\s]+)>/g;

/** The parts of a line of text. Marks within bold text and link texts are removed. */
export function parseInline(text: string): readonly Span[] {
  const spans: Span[] = [];
  let end = 0;
  for (const match of text.matchAll(inline)) {
    const [, code, bold, label, target, url] = match;
    if (match.index > end) spans.push({ kind: "text", text: text.slice(end, match.index) });
    end = match.index + match[0].length;
    if (code !== undefined) spans.push({ kind: "code", text: code });
    else if (bold !== undefined) spans.push({ kind: "bold", text: visibleText(bold) });
    else if (label !== undefined)
      spans.push({ kind: "link", text: visibleText(label), target: target ?? "" });
    else if (url !== undefined) spans.push({ kind: "link", text: url, target: url });
  }
  if (end < text.length) spans.push({ kind: "text", text: text.slice(end) });
  return spans;
}

/** The text that a reader sees. */
export function visibleText(text: string): string {
  return parseInline(text)
    .map((span) => span.text)
    .join("");
}

/** The anchor that GitHub generates for a heading. */
export function anchorOf(heading: string): string {
  return heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
    .replaceAll(" ", "-");
}
