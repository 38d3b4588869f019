import { chmod, chown, link, lstat, mkdir, readFile, readdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { SvcError } from "../../src/errors.ts";
import { openStore, put, temporaryDir } from "./support/temporary-store.ts";

// AVA runs each test file in a separate process, so this affects no other test.
process.umask(0);

const isRoot = process.getuid?.() === 0;
const rootTest = isRoot ? test : test.skip;
const onlyRoot = isRoot ? "" : " (skipped: needs root)";

const mode = async (path: string): Promise<string> => ((await lstat(path)).mode & 0o7777).toString(8);

test("with umask 0, every file of the store is accessible only to its owner", async (t) => {
  await using parent = await temporaryDir();
  const dir = join(parent.path, "new");
  {
    await using store = await openStore({ dir });
    await store.write([put("a")]);
    await store.housekeep();
    const names = await readdir(dir);
    t.deepEqual(names.toSorted(), [
      "reserve",
      "svc.db",
      "svc.db-shm",
      "svc.db-wal",
      "svc.db.bak",
      "svc.lock",
    ]);
    for (const name of names) t.is(await mode(join(dir, name)), "600", name);
  }
  t.is(await mode(dir), isRoot ? "711" : "700");
});

test("opening removes other users' access to the files", async (t) => {
  await using parent = await temporaryDir();
  const dir = join(parent.path, "open");
  await mkdir(dir, { mode: 0o777 });
  await (await openStore({ dir }))[Symbol.asyncDispose]();
  t.is(await mode(dir), "755");
  await chmod(join(dir, "svc.db"), 0o666);
  await (await openStore({ dir }))[Symbol.asyncDispose]();
  t.is(await mode(join(dir, "svc.db")), "600");
});

for (const name of ["svc.db", "svc.db-wal", "svc.db-shm", "svc.db.bak", "svc.lock", "reserve"]) {
  for (const dangling of [false, true]) {
    test(`a symlink planted as ${name}${dangling ? " to nowhere" : ""} is rejected and not followed`, async (t) => {
      await using dir = await temporaryDir();
      const target = join(dir.path, "canary");
      if (!dangling) await writeFile(target, "canary");
      await symlink(target, join(dir.path, name));
      await t.throwsAsync(openStore({ dir: dir.path }), {
        instanceOf: SvcError,
        code: "failed_precondition",
        message: /is not a plain file/,
      });
      if (dangling) await t.throwsAsync(lstat(target), { code: "ENOENT" });
      else t.is(await readFile(target, "utf8"), "canary");
    });
  }
}

test("a hard link to another file is rejected as the database", async (t) => {
  await using dir = await temporaryDir();
  await writeFile(join(dir.path, "canary"), "canary");
  await link(join(dir.path, "canary"), join(dir.path, "svc.db"));
  await t.throwsAsync(openStore({ dir: dir.path }), { message: /has several hard links/ });
});

rootTest(`another user's file or directory is rejected${onlyRoot}`, async (t) => {
  await using dir = await temporaryDir();
  await writeFile(join(dir.path, "svc.db"), "");
  await chown(join(dir.path, "svc.db"), 65_534, 65_534);
  await t.throwsAsync(openStore({ dir: dir.path }), { message: /svc\.db belongs to uid 65534/ });
  await chown(dir.path, 65_534, 65_534);
  await t.throwsAsync(openStore({ dir: dir.path }), { message: /belongs to uid 65534 and not to uid 0/ });
});
