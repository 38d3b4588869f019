import { open } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import type { Statement } from "../../../src/store/store.ts";

const pageBytes = 4_096;

/** Audit records of calls with these targets, with the columns that an index needs. */
export function recordsOf(...targets: readonly string[]): Statement[] {
  return targets.map((target) => ({
    sql: `INSERT INTO audit (time, request_id, method, protocol, uid, user, kind, target, result, duration_ms, hash)
          VALUES (1, 'r', 'm', 'rest', 0, 'root', 'local', ?, 'ok', 1, zeroblob(32))`,
    params: [target],
  }));
}

/** Changes a small index so that it disagrees with its table, in an otherwise valid page. */
export async function falsifyIndex(storeDir: string, index: string, from: string, to: string): Promise<void> {
  const path = join(storeDir, "svc.db");
  using database = new DatabaseSync(path, { readOnly: true });
  const row = database.prepare("SELECT rootpage FROM sqlite_schema WHERE name = ?").get(index);
  const start = (Number(row?.["rootpage"]) - 1) * pageBytes;
  await using file = await open(path, "r+");
  const page = Buffer.alloc(pageBytes);
  await file.read(page, 0, pageBytes, start);
  await file.write(to, start + page.indexOf(from), "latin1");
}
