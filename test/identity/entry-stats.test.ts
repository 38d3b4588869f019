/** What a listing says of an entry is what lstat(2) says of it, and of its attributes what the kernel has. */
import { execFileSync } from "node:child_process";
import { closeSync, openSync, readdirSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { describeEntry, entryAt } from "../../src/identity/helper/host/entries.mjs";
import { Syscalls } from "../../src/identity/helper/host/syscalls.mjs";

const script = `echo x > file; chmod 4751 file; mkdir dir; ln -s file link; mkfifo -m 600 fifo; truncate -s 9999999999 sparse
touch -d '1960-01-02 03:04:05.678' before; touch -d '2300-01-02 03:04:05.987654321' after`;

test("every kind of entry is as lstat has it", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-test-"));
  const syscalls = new Syscalls();
  try {
    execFileSync("sh", ["-c", script], { cwd: dir });
    for (const place of [dir, "/dev"]) {
      const fd = openSync(place, "r");
      const names = readdirSync(place);
      t.true(names.length > 5);
      // Terminals and clocks of the host go on meanwhile.
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

test("attributes are read one at a time: all that a file has may be more than there is room for", async (t) => {
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
