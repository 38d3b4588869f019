/** No table is forgotten by whoever looks for rows that are damaged. */
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import test from "ava";
import { counters, rowKinds } from "../../src/daemon/stored-rows.ts";
import { openStore, temporaryDir } from "../store/support/temporary-store.ts";

test("each table is known, with what each of its columns must be", async (t) => {
  await using dir = await temporaryDir();
  await (await openStore({ dir: dir.path }))[Symbol.asyncDispose]();
  using database = new DatabaseSync(join(dir.path, "svc.db"), { readOnly: true });
  const tables = database
    .prepare(
      `SELECT t.name, json_group_array(c.name) AS columns FROM sqlite_schema AS t, pragma_table_info(t.name) AS c
       WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%' GROUP BY t.name`,
    )
    .all() as { name: string; columns: string }[];
  t.deepEqual(
    Object.fromEntries(
      tables.map(({ name, columns }) => [name, (JSON.parse(columns) as string[]).toSorted()] as const),
    ),
    Object.fromEntries([
      ...rowKinds.map(({ table, columns }) => [table, Object.keys(columns).toSorted()] as const),
      ...counters.map((name) => {
        const { columns = "[]" } = tables.find((each) => each.name === name) ?? {};
        return [name, (JSON.parse(columns) as string[]).toSorted()] as const;
      }),
    ]),
  );
});
