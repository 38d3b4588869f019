/** A store with many apps, without the time that so many installs take. */
import { cp } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import type { BenchDaemon } from "./daemon.ts";

/** Installs one app and copies its row and its directories until there are `count`. The daemon stands still meanwhile. */
export async function fillStore(daemon: BenchDaemon, count: number): Promise<void> {
  const idle = await daemon.writePackage("idle", "setInterval(() => {}, 1e6);\n");
  await daemon.svc("install", idle);
  await daemon.stop();
  const database = new DatabaseSync(join(daemon.storeDir, "svc.db"));
  try {
    const columns = database
      .prepare("PRAGMA table_info(apps)")
      .all()
      .map((column) => String(column["name"]));
    const values = columns.map((column) => (column === "id" ? "?" : column));
    const copy = database.prepare(
      `INSERT INTO apps (${columns.join(", ")}) SELECT ${values.join(", ")} FROM apps WHERE id = 'idle'`,
    );
    database.exec("BEGIN");
    for (let number = 2; number <= count; number += 1) copy.run(`idle-${number}`);
    database.exec("COMMIT");
  } finally {
    database.close();
  }
  for (const folder of ["apps", "run"]) {
    const from = join(daemon.storeDir, folder, "idle");
    for (let number = 2; number <= count; number += 1) {
      await cp(from, `${from}-${number}`, { recursive: true }).catch((error: unknown) => {
        if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
      });
    }
  }
}
