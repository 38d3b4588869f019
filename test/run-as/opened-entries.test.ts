/** A file found by a walk is opened only if it is still the same file. */
import { execFileSync } from "node:child_process";
import { closeSync, lstatSync, openSync, readdirSync } from "node:fs";
import { mkdir, mkdtemp, mkdtempDisposable, rename, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { openEntry } from "../../src/run-as/helper/host/tree-entries.mjs";
import { describeEntry, entryAt } from "../../src/run-as/helper/host/entries.mjs";
import { Syscalls } from "../../src/run-as/helper/host/syscalls.mjs";
import { WriteBack } from "../../src/run-as/helper/host/upload.mjs";

for (const [what, replace] of [
  [
    "another file",
    (path: string) => writeFile(`${path}.new`, "other").then(() => rename(`${path}.new`, path)),
  ],
  ["a link to it", (path: string) => rename(path, `${path}.old`).then(() => symlink(`${path}.old`, path))],
  ["a FIFO, which nobody waits for", (path: string) => rm(path).then(() => execFileSync("mkfifo", [path]))],
  ["a directory", (path: string) => rm(path).then(() => mkdir(path))],
] as const) {
  test(`a replaced file is not opened: ${what}`, async (t) => {
    await using place = await mkdtempDisposable(join(tmpdir(), "svc-entry-"));
    const path = join(place.path, "f");
    await writeFile(path, "text");
    const parent = openSync(place.path, "r");
    try {
      const stats = lstatSync(path, { bigint: true });
      const entry = { parent, name: "f", path: ["f"], stats, isLeft: false };
      {
        await using file = await openEntry(entry);
        t.is(await file?.readFile("utf8"), "text");
      }
      await replace(path);
      await using other = await openEntry(entry);
      t.is(other, undefined);
    } finally {
      closeSync(parent);
    }
  });
}

// The entries of a listing agree with lstat(2), and their attributes with the kernel.

const script = `echo x > file; chmod 4751 file; mkdir dir; ln -s file link; mkfifo -m 600 fifo; truncate -s 9999999999 sparse
touch -d '1960-01-02 03:04:05.678' before; touch -d '2300-01-02 03:04:05.987654321' after`;

test("every type of entry agrees with lstat", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-test-"));
  const syscalls = new Syscalls();
  try {
    execFileSync("sh", ["-c", script], { cwd: dir });
    for (const place of [dir, "/dev"]) {
      const fd = openSync(place, "r");
      const names = readdirSync(place);
      t.true(names.length > 5);
      // Terminals and clocks of the host change in the meantime.
      for (const name of place === dir ? names : ["null", "full", "fd", "shm"]) {
        t.deepEqual(describeEntry(fd, name, syscalls.stat(fd, name)), entryAt(fd, name), name);
      }
      const error = t.throws(() => syscalls.stat(fd, "nothing"));
      t.is((error as NodeJS.ErrnoException).code, "ENOENT");
      closeSync(fd);
    }
  } finally {
    await rm(dir, { recursive: true });
  }
});

test("attributes are read one at a time, because all values may not fit into memory", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-test-"));
  const path = join(dir, "file");
  execFileSync("sh", ["-c", 'echo > "$0"; for n in a b c; do setfattr -n user.$n -v $n "$0"; done', path]);
  const fd = openSync(path, "r");
  try {
    const names: string[] = [];
    for (const [name, value] of new Syscalls().attributes(fd)) {
      if (!name.startsWith("user.")) continue;
      t.is(`user.${value.toString()}`, name);
      if (names.push(name) > 1) continue;
      for (const other of ["user.a", "user.b", "user.c"]) execFileSync("setfattr", ["-x", other, path]);
    }
    t.is(names.length, 1);
  } finally {
    closeSync(fd);
    await rm(dir, { recursive: true });
  }
});

// Uploaded data is written to disk while more arrives.

const pieces = [Buffer.alloc(10 << 20), Buffer.alloc(6 << 20)];

test("write-back runs in large amounts, one at a time, and ends before the file is closed", async (t) => {
  const begun: PromiseWithResolvers<undefined>[] = [];
  const writeBack = new WriteBack(async () => {
    const beginning = Promise.withResolvers<undefined>();
    begun.push(beginning);
    await beginning.promise;
  });
  writeBack.count(pieces.slice(0, 1));
  t.is(begun.length, 0);
  writeBack.count(pieces.slice(1));
  writeBack.count(pieces);
  t.is(begun.length, 1);
  let isOver = false;
  const ending = writeBack[Symbol.asyncDispose]().then(() => (isOver = true));
  for (let turn = 0; turn < 10; turn++) await Promise.resolve();
  t.false(isOver);
  begun[0]?.resolve(undefined);
  await ending;
  writeBack.count([]);
  t.is(begun.length, 2);
  begun[1]?.resolve(undefined);
  await writeBack[Symbol.asyncDispose]();
});
