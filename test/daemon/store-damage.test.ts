/** A large database is checked while the daemon's services are built: nobody is answered from a damaged one. */
import { open } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import test from "ava";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import type { Store } from "../../src/store/store.ts";
import { openStore } from "../store/support/temporary-store.ts";
import { falsifyIndex, recordsOf } from "../store/support/falsify-index.ts";
import { startDaemon } from "../support/daemon.ts";

const pageBytes = 4_096;
const rows = 10_000;

for (const [what, place] of [
  ["that nobody reads while the daemon starts", 1_000],
  ["in its first page", 1],
  ["without which the daemon cannot start", "store_id"],
] as const) {
  test(`a large database with damage ${what} is restored before anybody is answered`, async (t) => {
    await using daemon = await startDaemon();
    await daemon.stop();
    const path = join(daemon.storeDir, "svc.db");
    {
      await using store = await openStore({ dir: daemon.storeDir });
      await fill(store);
    }
    await damage(path, place);
    await daemon.restart();
    t.is(daemon.log().split("its last good snapshot was restored").length, 2, daemon.log());
    t.true((await daemon.client(DaemonService).getStatus({})).version !== "");
    await daemon.stop();
    using database = new DatabaseSync(path, { readOnly: true });
    t.is(database.prepare("SELECT count(*) AS n FROM meta").get()?.["n"], rows);
  });
}

test("an index of the audit trail that says something else than its records is made again, and nothing is lost", async (t) => {
  await using daemon = await startDaemon();
  await daemon.stop();
  {
    await using store = await openStore({ dir: daemon.storeDir });
    await fill(store);
    await store.write([...recordsOf("second"), { sql: "INSERT INTO meta VALUES ('later', '')" }]);
  }
  await falsifyIndex(daemon.storeDir, "audit_by_target", "second", "sXcond");
  await daemon.restart();
  await daemon.stop();
  t.is(daemon.log().split("did not fit its records and was made again").length, 2, daemon.log());
  t.false(daemon.log().includes("snapshot was restored"));
  await using store = await openStore({ dir: daemon.storeDir });
  t.is(store.restoration, undefined);
  t.truthy(store.get("SELECT 1 FROM meta WHERE key = 'later'"));
  t.truthy(store.get("SELECT 1 FROM audit INDEXED BY audit_by_target WHERE target = 'second'"));
});

/** More than is checked before the rest of the daemon is loaded, with a snapshot of it. */
async function fill(store: Store): Promise<void> {
  const columns = [
    Array.from({ length: rows }, (_, row) => `key-${row}`),
    Array.from({ length: rows }, () => "x".repeat(1_000)),
  ];
  await store.write([{ sql: "INSERT INTO meta VALUES (?, ?)", columns }]);
  await store.housekeep();
}

/** Overwrites a page, or the root of a table. */
async function damage(path: string, place: number | string): Promise<void> {
  let page = place;
  if (typeof place === "string") {
    using database = new DatabaseSync(path, { readOnly: true });
    const row = database.prepare("SELECT rootpage FROM sqlite_schema WHERE name = ?").get(place);
    page = Number(row?.["rootpage"]);
  }
  const file = await open(path, "r+");
  await file.write(Buffer.alloc(pageBytes, 0xff), 0, pageBytes, (Number(page) - 1) * pageBytes);
  await file.close();
}
