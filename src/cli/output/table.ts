/** Tables: as wide as their content; on a terminal, cells are cut and columns dropped until the table fits. */
import type { Color, Paint } from "./color.ts";
import { escapeCell } from "./escape.ts";
import { textWidth, truncate } from "./width.ts";

export interface Column<Row> {
  readonly title: string;
  readonly value: (row: Row) => string;
  /** Numbers are right-aligned. */
  readonly align?: "right";
  /** May be cut to this width when the terminal is narrow. */
  readonly shrinkTo?: number;
  readonly color?: (row: Row) => Color | undefined;
  /** The column that other commands take as an argument: never dropped. Default: the first column. */
  readonly isKey?: boolean;
  /** If not all columns fit, those with the highest value are dropped first, the rightmost first. Default: 0. */
  readonly dispensable?: number;
  /** A hidden column that `-o wide` shows. */
  readonly isWide?: boolean;
  /** Has no information in these rows: shown only if `--columns` names it. */
  readonly isHidden?: boolean;
}

export interface TableStyle {
  readonly paint: Paint;
  /** Width of the terminal; undefined for a pipe, where nothing is cut. */
  readonly columns: number | undefined;
}

const gap = "  ";
/** In a pipe nothing is cut. A wider cell does not widen the other rows: a command may have 64 KiB. */
const maxPipeWidth = 80;

interface MeasuredColumn<Row> {
  readonly column: Column<Row>;
  /** Without control characters, in the order of the rows. */
  readonly cells: readonly string[];
  /** Width on the terminal, including the heading. */
  width: number;
}

/**
 * Renders one line per row below a line of headings; each line ends with a line feed. Control characters are
 * escaped, and hidden columns are left out.
 */
export function renderTable<Row>(
  all: readonly Column<Row>[],
  rows: readonly Row[],
  style: TableStyle,
): string {
  const measured = all.filter(({ isHidden }) => isHidden !== true).map((column) => measure(column, rows));
  const isPipe = style.columns === undefined;
  const shown = style.columns === undefined ? measured : fit(measured, style.columns);

  const renderLine = (
    textOf: (column: MeasuredColumn<Row>) => string,
    color: (column: Column<Row>) => Color | undefined,
  ): string => {
    const parts = shown.map((each) => {
      const text = textOf(each);
      const width = isPipe ? Math.min(each.width, maxPipeWidth) : each.width;
      const cut = isPipe ? text : truncate(text, width);
      const space = " ".repeat(Math.max(0, width - textWidth(cut)));
      const painted = style.paint(color(each.column), cut);
      return each.column.align === "right" ? space + painted : painted + space;
    });
    return `${parts.join(gap).trimEnd()}\n`;
  };
  const titles = renderLine(
    ({ column }) => column.title,
    () => "bold",
  );
  const lines = rows.map((row, index) =>
    renderLine(
      ({ cells }) => cells[index] ?? "",
      (column) => column.color?.(row),
    ),
  );
  return titles + lines.join("");
}

function measure<Row>(column: Column<Row>, rows: readonly Row[]): MeasuredColumn<Row> {
  const cells = rows.map((row) => escapeCell(column.value(row)));
  // Not `Math.max(...)`: too many rows for the arguments of one call.
  const width = cells.reduce((widest, cell) => Math.max(widest, textWidth(cell)), textWidth(column.title));
  return { column, cells, width };
}

/** The columns that fit if each is cut as far as allowed, then widened as far as possible. */
function fit<Row>(all: readonly MeasuredColumn<Row>[], available: number): MeasuredColumn<Row>[] {
  const shown = [...all];
  const hasKey = all.some(({ column }) => column.isKey === true);
  const isKey = ({ column }: MeasuredColumn<Row>, at: number): boolean =>
    hasKey ? column.isKey === true : at === 0;
  while (widthOf(shown.map(leastWidth)) > available) {
    let first = -1;
    shown.forEach((each, at) => {
      const isNext = first === -1 || dispensability(each) >= dispensability(shown[first] as typeof each);
      if (!isKey(each, at) && isNext) first = at;
    });
    if (first === -1) break;
    shown.splice(first, 1);
  }
  shrink(shown, available);
  return shown;
}

function leastWidth<Row>({ column, width }: MeasuredColumn<Row>): number {
  return Math.min(width, column.shrinkTo ?? width);
}

/** A column without any text is dropped before all others. */
function dispensability<Row>({ column, cells }: MeasuredColumn<Row>): number {
  return cells.every((cell) => cell === "") ? Infinity : (column.dispensable ?? 0);
}

function widthOf(widths: readonly number[]): number {
  return widths.reduce((sum, width) => sum + width, 0) + gap.length * (widths.length - 1);
}

/** Narrows the widest column that may be cut, until the line fits or nothing more can be cut. */
function shrink<Row>(shown: readonly MeasuredColumn<Row>[], available: number): void {
  let excess = widthOf(shown.map(({ width }) => width)) - available;
  while (excess > 0) {
    const spare = shown.filter((each) => each.width > leastWidth(each));
    const [first] = spare;
    if (first === undefined) return;
    const widest = spare.reduce((most, each) => (each.width > most.width ? each : most), first);
    widest.width -= 1;
    excess -= 1;
  }
}

/** Shown if it has a value. */
export type Field = readonly [name: string, value: string | undefined, color?: Color | undefined];

/** `name: value` lines with aligned values; entries without a value are left out. Control characters are escaped. */
export function renderFields(fields: readonly Field[], paint: Paint): string {
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
