/** Backups of a database with constant writes are consistent: with a dump, frozen, or stopped. */
import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { DatabaseSync } from "node:sqlite";
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../../gen/svc/v1/backup_pb.ts";
import { startDaemon } from "../../support/daemon.ts";
import { eventually } from "../../support/eventually.ts";

const accounts = 100;
const total = accounts * 100;

/** Transfers amounts between accounts as fast as it can. A torn copy has a wrong sum or is not a valid database. */
const bank = `
import { DatabaseSync } from "node:sqlite";
const db = new DatabaseSync(process.env.SVC_DATA_DIR + "/bank.sqlite");
db.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; PRAGMA busy_timeout = 10000");
db.exec("CREATE TABLE IF NOT EXISTS accounts (id INTEGER PRIMARY KEY, amount INTEGER)");
db.exec("CREATE TABLE IF NOT EXISTS moves (id INTEGER PRIMARY KEY, note BLOB)");
const { n } = db.prepare("SELECT count(*) AS n FROM accounts").get();
for (let id = n; id < ${accounts}; id++) db.prepare("INSERT INTO accounts VALUES (?, 100)").run(id);
const pay = db.prepare("UPDATE accounts SET amount = amount + ? WHERE id = ?");
const note = db.prepare("INSERT INTO moves (note) VALUES (randomblob(2000))");
const step = () => {
  for (let move = 0; move < 10; move++) {
    const [from, to] = [Math.floor(Math.random() * ${accounts}), Math.floor(Math.random() * ${accounts})];
    db.exec("BEGIN IMMEDIATE");
    pay.run(-1, from);
    note.run();
    pay.run(1, to);
    db.exec("COMMIT");
  }
  setTimeout(step, 5);
};
step();
`;
const dump = `
import { rmSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
const to = process.env.SVC_DATA_DIR + "/dump.sqlite";
rmSync(to, { force: true });
const db = new DatabaseSync(process.env.SVC_DATA_DIR + "/bank.sqlite");
db.exec("PRAGMA busy_timeout = 10000");
db.prepare("VACUUM INTO ?").run(to);
`;
const undump = `
import { renameSync, rmSync } from "node:fs";
const dir = process.env.SVC_DATA_DIR;
for (const end of ["-wal", "-shm"]) rmSync(dir + "/bank.sqlite" + end, { force: true });
renameSync(dir + "/dump.sqlite", dir + "/bank.sqlite");
`;
// The one on the PATH may be too old to include SQLite.
const node = JSON.stringify(process.execPath);
const hooks = `backup: { dump: { exec: [${node}, dump.mjs] }, restore: { exec: [${node}, undump.mjs] } }`;

function moves(directory: string): number {
  using db = new DatabaseSync(join(directory, "data/bank.sqlite"), { readOnly: true });
  return Number(db.prepare("SELECT count(*) AS n FROM moves").get()?.["n"]);
}

for (const [mode, how, backup] of [
  ["live", "with a dump", hooks],
  ["pause", "frozen, as it is", ""],
  ["stop", "stopped, as it is", ""],
] as const) {
  test(`a database under writes restores to a consistent state: ${mode}, ${how}`, async (t) => {
    await using daemon = await startDaemon();
    const apps = daemon.client(AppService);
    const backups = daemon.client(BackupService);
    const dir = join(daemon.dir, "bank");
    await mkdir(dir);
    const manifest = `id: bank\nname: Bank\nversion: "1.0.0"\nprocess: { exec: [${node}, bank.mjs] }\n${backup}\n`;
    const files = { "svc.yaml": manifest, "bank.mjs": bank, "dump.mjs": dump, "undump.mjs": undump };
    for (const [name, text] of Object.entries(files)) await writeFile(join(dir, name), text);
    const { directory } = await apps.installApp({ spec: dir });
    await apps.startApp({ id: "bank" });
    await eventually(() => assert.ok(moves(directory) > 3000), 60_000);
    const before = moves(directory);
    const { results } = await backups.createBackup({ appId: "bank", mode });
    const after = await eventually(() => {
      const now = moves(directory);
      assert.ok(now > before, "it is written to again");
      return now;
    }, 60_000);
    const ref = { appId: "bank", storage: "local", name: results[0]?.name ?? "" };
    const copy = await backups.restoreBackup({ ...ref, asNew: true });
    const { directory: there } = await apps.getApp({ id: copy.appId });
    using db = new DatabaseSync(join(there, "data/bank.sqlite"));
    t.like(db.prepare("PRAGMA integrity_check").get(), { integrity_check: "ok" });
    t.like(db.prepare("SELECT sum(amount) AS total, count(*) AS n FROM accounts").get(), {
      total,
      n: accounts,
    });
    const kept = Number(db.prepare("SELECT count(*) AS n FROM moves").get()?.["n"]);
    t.true(kept >= before && kept <= after, `${before} <= ${kept} <= ${after}`);
    await apps.stopApp({ id: "bank" });
  });
}
