/** The columns of a table that a command line asks for with `--columns`. */
import { UsageError } from "./failure.ts";
import type { Column } from "./render/table.ts";

/**
 * In the order of `wanted`, hidden ones, too, and none is left out for want of room; as they are when nothing is said.
 * @throws UsageError for one that the table does not have
 */
export function chooseColumns<Row>(
  columns: readonly Column<Row>[],
  wanted: readonly string[] | undefined,
): readonly Column<Row>[] {
  return (
    wanted?.map((name) => {
      const column = columns.find(({ title }) => plain(title) === plain(name));
      if (column !== undefined) return { ...column, isHidden: false, isKey: true };
      const known = columns.map(({ title }) => title.toLowerCase()).join(", ");
      throw new UsageError(`there is no column "${name}" here; there are ${known}`);
    }) ?? columns
  );
}

/** `RUNS FOR`, `runs-for` and `runs_for` are one. */
function plain(title: string): string {
  return title.toLowerCase().replaceAll(/[^a-z0-9]+/g, "");
}
