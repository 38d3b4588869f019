/** A large database is checked while the daemon's services are built: no response comes from a damaged one. */
import { spawn } from "node:child_process";
import { chmod, mkdtemp, open, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import test from "ava";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import type { Store } from "../../src/store/store.ts";
import { openStore, temporaryDir } from "../store/support/temporary-store.ts";
import { falsifyIndex, recordsOf } from "../store/support/falsify-index.ts";
import { isRoot, needsRoot, startDaemon } from "../support/daemon.ts";
import { counters, rowKinds } from "../../src/daemon/stored-rows.ts";
import { claimStore } from "../../src/daemon/store-claim.ts";
import { SvcError } from "../../src/errors.ts";
import { main } from "../support/svc-main.ts";
import { nextEvent } from "../support/eventually.ts";

const pageBytes = 4_096;
const rows = 10_000;

for (const [what, place] of [
  ["that is not read at the start", 1_000],
  ["in its first page", 1],
  ["in a page that the start needs", "store_id"],
] as const) {
  test(`a large database with damage ${what} is restored before any response`, async (t) => {
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

test("an audit index that differs from its records is rebuilt without loss", async (t) => {
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
  t.is(daemon.log().split("rebuilt the index of the audit trail").length, 2, daemon.log());
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

// The search for damaged rows covers every table.

test("each table is covered, with the rule of each of its columns", async (t) => {
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

// A store has one daemon: jobs of two would fire twice, and each would stop what the other starts.

test("a second daemon of a store exits with a message, whatever else it listens on", async (t) => {
  await using daemon = await startDaemon();
  const file = join(daemon.dir, "second.toml");
  await writeFile(
    file,
    `[api]\nlisten = "127.0.0.1:0"\nsocket = "${join(daemon.dir, "second.sock")}"\n[store]\ndir = "${daemon.storeDir}"\n`,
  );
  const second = spawn(process.execPath, [main, "daemon", "--config", file], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  let said = "";
  second.stderr.setEncoding("utf8").on("data", (text: string) => {
    said += text;
    // Nothing else would stop it.
    if (said.includes("svc is ready")) second.kill();
  });
  t.deepEqual(await nextEvent(second, "close"), [6, null], said);
  t.regex(
    said,
    new RegExp(`^svc: another svc daemon works with the store ${daemon.storeDir}; stop that one`, "m"),
  );
  t.notRegex(said, /svc is ready/);
  await t.notThrowsAsync(daemon.client(DaemonService).getStatus({}));
  // The next daemon after a killed one gets the store.
  await daemon.kill();
  await daemon.restart();
  t.pass();
});

test("a store is available to the next daemon as soon as the previous one releases it", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-claim-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const first = await claimStore(dir);
  const next = claimStore(dir);
  await first[Symbol.asyncDispose]();
  const claim = await next;
  const error = await t.throwsAsync(claimStore(dir), { instanceOf: SvcError });
  t.is(error.code, "unavailable");
  await claim[Symbol.asyncDispose]();
});

(isRoot ? test : test.skip)(
  `a user who may read the store's directory cannot keep the daemon from it${needsRoot}`,
  async (t) => {
    const dir = await mkdtemp(join(tmpdir(), "svc-claim-"));
    t.teardown(() => rm(dir, { recursive: true }));
    await chmod(dir, 0o755);
    const locked = "exec flock --no-fork --nonblock . sh -c 'echo locked; exec sleep 60'";
    const drop = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    const user = spawn("setpriv", [...drop, "sh", "-c", locked], {
      cwd: dir,
      stdio: ["ignore", "pipe", "inherit"],
    });
    t.teardown(() => user.kill());
    await nextEvent(user.stdout, "data");
    await using claim = await claimStore(dir);
    t.truthy(claim);
  },
);
