/** The columns of a table that `--columns` selects. */
import { UsageError } from "./failure.ts";
import type { Column } from "./table.ts";

/**
 * Returns the columns in the given order, including hidden ones, and never drops one for lack of space.
 * Without a selection, returns the columns unchanged.
 * @throws UsageError for an unknown column
 */
export function chooseColumns<Row>(
  columns: readonly Column<Row>[],
  names: readonly string[] | undefined,
): readonly Column<Row>[] {
  return (
    names?.map((name) => {
      const column = columns.find(({ title }) => plain(title) === plain(name));
      if (column !== undefined) return { ...column, isHidden: false, isKey: true };
      const known = columns.map(({ title }) => title.toLowerCase()).join(", ");
      throw new UsageError(`unknown column "${name}"; use: ${known}`);
    }) ?? columns
  );
}

/** `RUNS FOR`, `runs-for` and `runs_for` name the same column. */
function plain(title: string): string {
  return title.toLowerCase().replaceAll(/[^a-z0-9]+/g, "");
}
