/** Shows a page of the guide on a terminal. */
import { parseInline, parseMarkdown, visibleText, type Block } from "../../lib/markdown.ts";
import type { Paint } from "./color.ts";
import { textWidth } from "./width.ts";

/** The narrowest column of a table in which words still fit. */
const minColumn = 8;
/** Wider lines are hard to read. */
const maxWidth = 100;

/** @param columns the width of the terminal */
export function renderMarkdown(markdown: string, columns: number, paint: Paint): string {
  const width = Math.min(columns, maxWidth);
  let before: Block | undefined;
  let shown = "";
  for (const block of parseMarkdown(markdown)) {
    const isTight = before === undefined || (before.kind === "item" && block.kind === "item");
    shown += `${isTight ? "" : "\n"}${renderBlock(block, width, paint).join("\n")}\n`;
    before = block;
  }
  return shown;
}

function renderBlock(block: Block, width: number, paint: Paint): readonly string[] {
  switch (block.kind) {
    case "heading":
      return [
        paint("bold", block.level === 1 ? visibleText(block.text).toUpperCase() : visibleText(block.text)),
      ];
    case "code":
      return block.text.split("\n").map((line) => (line === "" ? "" : `    ${paint("cyan", line)}`));
    case "table":
      return renderTable([block.head, ...block.rows], width, paint);
    case "item": {
      const margin = "  ".repeat(block.depth - 1);
      const marker = block.marker.length > 1 ? block.marker : "•";
      const indent = `${margin}${" ".repeat(marker.length + 1)}`;
      const lines = wrap(block.text, width - indent.length, paint);
      return lines.map((line, at) => (at === 0 ? `${margin}${marker} ${line}` : `${indent}${line}`));
    }
    case "paragraph": {
      const margin = "  ".repeat(block.depth);
      return wrap(block.text, width - margin.length, paint).map((line) => margin + line);
    }
  }
}

/** Wraps text at spaces. A code span is wrapped like other words. */
function wrap(text: string, width: number, paint: Paint): readonly string[] {
  const lines: string[] = [];
  let line = "";
  let used = 0;
  // A word can consist of several spans: `code`, a bracket, a link.
  for (const word of wordsOf(text)) {
    const wordWidth = textWidth(word.map((span) => span.text).join(""));
    if (used > 0 && used + 1 + wordWidth > width) {
      lines.push(line);
      [line, used] = ["", 0];
    }
    const painted = word.map((span) => paint(colors[span.kind], span.text)).join("");
    line += used === 0 ? painted : ` ${painted}`;
    used += (used === 0 ? 0 : 1) + wordWidth;
  }
  return [...lines, line];
}

type Word = readonly { readonly kind: keyof typeof colors; readonly text: string }[];
const colors = { text: undefined, code: "cyan", bold: "bold", link: "blue" } as const;

function wordsOf(text: string): readonly Word[] {
  const words: { kind: keyof typeof colors; text: string }[][] = [[]];
  for (const { kind, text: spanText, target } of parseInline(text)) {
    const place = placeOf(target);
    const isHidden = place !== undefined && place !== spanText;
    const parts = (isHidden ? `${spanText} (${place})` : spanText).split(/ +/);
    for (const [at, part] of parts.entries()) {
      if (at > 0) words.push([]);
      if (part !== "") words.at(-1)?.push({ kind, text: part });
    }
  }
  return words.filter((word) => word.length > 0);
}

/** Where a link leads: an address, or the command that shows a page of the guide. */
function placeOf(target = ""): string | undefined {
  if (/^https?:/.test(target)) return target;
  const [, topic] = /(?:^|\/)([a-z][\w-]*)\.md(?:#.*)?$/.exec(target) ?? [];
  return topic === undefined ? undefined : `svc help ${topic}`;
}

/** Columns as wide as their content; if that is too wide, the widest columns are wrapped. */
function renderTable(rows: readonly (readonly string[])[], width: number, paint: Paint): readonly string[] {
  const count = rows[0]?.length ?? 0;
  const widths = Array.from({ length: count }, (_, at) =>
    Math.max(1, ...rows.map((row) => textWidth(visibleText(row[at] ?? "")))),
  );
  for (;;) {
    const excess = widths.reduce((sum, each) => sum + each + 2, -2) - width;
    const widest = Math.max(...widths);
    if (excess <= 0 || widest <= minColumn) break;
    // Short columns stay whole.
    widths[widths.indexOf(widest)] = widest - 1;
  }
  return rows.flatMap((row, at) => {
    const cells = widths.map((each, column) => {
      const text = row[column] ?? "";
      return wrap(text, each, paint).map((line, lineAt) => ({
        line: at === 0 ? paint("bold", line) : line,
        width: textWidth(wrap(text, each, (_, plain) => plain)[lineAt] ?? ""),
      }));
    });
    const height = Math.max(...cells.map((lines) => lines.length));
    return Array.from({ length: height }, (_, lineAt) =>
      cells
        .map((lines, column) => {
          const { line, width: used } = lines[lineAt] ?? { line: "", width: 0 };
          const isLast = column === cells.length - 1;
          return isLast ? line : line + " ".repeat(Math.max(0, (widths[column] ?? 0) - used));
        })
        .join("  ")
        .trimEnd(),
    );
  });
}
