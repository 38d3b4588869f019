/** Tables for people: as wide as their content, cut to the terminal. */
import type { Color, Paint } from "./color.ts";
import { escapeCell } from "./escape.ts";
import { textWidth, truncate } from "./width.ts";

export interface Column<Row> {
  readonly title: string;
  readonly value: (row: Row) => string;
  /** Numbers stand at the right. */
  readonly align?: "right";
  /** May be cut, down to this many columns, when the terminal is narrow. */
  readonly shrinkTo?: number;
  readonly color?: (row: Row) => Color | undefined;
  /** Tells nothing in these rows: shown only where a line asks for it by name. */
  readonly isHidden?: boolean;
}

export interface TableStyle {
  readonly paint: Paint;
  /** Columns of the terminal; undefined for a pipe, where nothing is cut. */
  readonly columns: number | undefined;
}

const gap = "  ";
/** In a pipe, where nothing is cut, one cell that is wider widens no other row: a command may have 64 KiB. */
const maxPipeWidth = 80;

/**
 * One line per row under a line of titles, each ended by a line feed. Control characters are escaped, and hidden columns
 * left out.
 */
export function renderTable<Row>(
  all: readonly Column<Row>[],
  rows: readonly Row[],
  style: TableStyle,
): string {
  const columns = all.filter(({ isHidden }) => isHidden !== true);
  const cells = rows.map((row) => columns.map((column) => escapeCell(column.value(row))));
  const widths = columns.map((column, at) =>
    Math.max(textWidth(column.title), ...cells.map((line) => textWidth(line[at] ?? ""))),
  );
  const isPipe = style.columns === undefined;
  if (style.columns !== undefined) shrink(columns, widths, style.columns);

  const renderLine = (texts: readonly string[], color: (at: number) => Color | undefined): string => {
    const parts = texts.map((text, at) => {
      const width = isPipe ? Math.min(widths[at] ?? 0, maxPipeWidth) : (widths[at] ?? 0);
      const cut = isPipe ? text : truncate(text, width);
      const space = " ".repeat(Math.max(0, width - textWidth(cut)));
      const painted = style.paint(color(at), cut);
      return columns[at]?.align === "right" ? space + painted : painted + space;
    });
    return `${parts.join(gap).trimEnd()}\n`;
  };
  const titles = renderLine(
    columns.map((column) => column.title),
    () => "bold",
  );
  const lines = rows.map((row, index) => renderLine(cells[index] ?? [], (at) => columns[at]?.color?.(row)));
  return titles + lines.join("");
}

/** Takes columns from the widest cell that may be cut, until the line fits or nothing more can go. */
function shrink<Row>(columns: readonly Column<Row>[], widths: number[], available: number): void {
  let excess = widths.reduce((sum, width) => sum + width, 0) + gap.length * (widths.length - 1) - available;
  while (excess > 0) {
    let widest = -1;
    columns.forEach((column, at) => {
      const spare = (widths[at] ?? 0) - (column.shrinkTo ?? Infinity);
      if (spare > 0 && (widest === -1 || (widths[at] ?? 0) > (widths[widest] ?? 0))) widest = at;
    });
    if (widest === -1) return;
    widths[widest] = (widths[widest] ?? 0) - 1;
    excess -= 1;
  }
}

/** `name: value` lines with the values under each other; entries without a value are left out. Control characters are escaped. */
export function renderFields(
  fields: readonly (readonly [name: string, value: string | undefined, color?: Color | undefined])[],
  paint: Paint,
): string {
  const shown = fields
    .filter(([, value]) => value !== undefined && value !== "")
    .map(([name, value = "", color]) => ({ name: escapeCell(name), value: escapeCell(value), color }));
  const width = Math.max(0, ...shown.map(({ name }) => textWidth(name))) + 1;
  return shown
    .map(({ name, value, color }) => {
      const label = paint("bold", `${name}:`) + " ".repeat(width - textWidth(name));
      return `${label}${paint(color, value)}\n`;
    })
    .join("");
}
