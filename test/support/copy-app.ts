import { DatabaseSync } from "node:sqlite";

/**
 * Copies the row of the app `id` until there are `count`, as `id-2` and so on: rows as installs would leave them,
 * without the duration of installs. The daemon must be stopped. @param file the store's database
 */
export function copyApp(file: string, id: string, count: number): void {
  const database = new DatabaseSync(file);
  try {
    const columns = database
      .prepare("PRAGMA table_info(apps)")
      .all()
      .map((column) => String(column["name"]));
    const values = columns.map((column) => (column === "id" ? "?" : column));
    const copy = database.prepare(
      `INSERT INTO apps (${columns.join(", ")}) SELECT ${values.join(", ")} FROM apps WHERE id = ?`,
    );
    database.exec("BEGIN");
    for (let number = 2; number <= count; number += 1) copy.run(`${id}-${number}`, id);
    database.exec("COMMIT");
  } finally {
    database.close();
  }
}
