/** What a listing says of an entry is what lstat(2) says of it. */
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
