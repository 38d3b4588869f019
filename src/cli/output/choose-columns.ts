/** The columns of a table that `--columns` selects, and the order of its rows. */
import { UsageError } from "./failure.ts";
import type { Column } from "./table.ts";

/**
 * Returns the columns in the given order, including hidden ones, and never drops one for lack of space.
 * Without a selection, returns the columns unchanged, or with those of `-o wide`.
 * @throws UsageError for an unknown column
 */
export function chooseColumns<Row>(
  columns: readonly Column<Row>[],
  names: readonly string[] | undefined,
  isWide = false,
): readonly Column<Row>[] {
  if (names !== undefined)
    return names.map((name) => ({ ...findColumn(columns, name), isHidden: false, isKey: true }));
  return isWide
    ? columns.map((column) => (column.isWide === true ? { ...column, isHidden: false } : column))
    : columns;
}

/** @throws UsageError for an unknown column */
function findColumn<Row>(columns: readonly Column<Row>[], name: string): Column<Row> {
  const column = columns.find(({ title }) => plain(title) === plain(name));
  if (column !== undefined) return column;
  const known = columns.map(({ title }) => title.toLowerCase()).join(", ");
  throw new UsageError(`unknown column "${name}"; use: ${known}`);
}

/**
 * Sorts rows by a column: sizes, durations and numbers by value, the rest as text. Rows without a value are last.
 * @param name the column, with `-` for descending order; undefined: keep the order
 * @throws UsageError for an unknown column
 */
export function sortRows<Row>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  name: string | undefined,
): readonly Row[] {
  if (name === undefined) return rows;
  const { value } = findColumn(columns, name.replace(/^-/, ""));
  const direction = name.startsWith("-") ? -1 : 1;
  return rows
    .map((row) => ({ row, text: value(row) }))
    .toSorted((one, other) => {
      const isEmpty = (text: string): boolean => text === "" || text === "-";
      if (isEmpty(one.text) || isEmpty(other.text))
        return Number(isEmpty(one.text)) - Number(isEmpty(other.text));
      return direction * compareCells(one.text, other.text);
    })
    .map(({ row }) => row);
}

function compareCells(one: string, other: string): number {
  const [first, second] = [amountOf(one), amountOf(other)];
  if (first !== undefined && second !== undefined) return first - second;
  return one.localeCompare(other, "en", { numeric: true });
}

const unitSizes: Readonly<Record<string, number>> = {
  ...{ "%": 1, "": 1, B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40, PiB: 2 ** 50 },
  ...{ s: 1, m: 60, h: 3600, d: 86_400, y: 365 * 86_400 },
};

/** `1.5 KiB`, `12.3%`, `1d 2h` and `7` as numbers. */
function amountOf(text: string): number | undefined {
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?) ?([A-Za-z%]*)(?: |$)/g)];
  if (parts.map(([part]) => part).join("") !== text) return undefined;
  const amounts = parts.map(([, digits, unit = ""]) => Number(digits) * (unitSizes[unit] ?? Number.NaN));
  const sum = amounts.reduce((total, each) => total + each, 0);
  return Number.isNaN(sum) ? undefined : sum;
}

/** `RUNS FOR`, `runs-for` and `runs_for` name the same column. */
function plain(title: string): string {
  return title.toLowerCase().replaceAll(/[^a-z0-9]+/g, "");
}
