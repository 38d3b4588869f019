import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { lstat, open, rm } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { SvcError } from "../../src/errors.ts";
import type { Store } from "../../src/store/store.ts";
import { keys, openStore, put, temporaryDir, until } from "./support/temporary-store.ts";
import { nextEvent } from "../support/eventually.ts";

const isRoot = process.getuid?.() === 0;
const rootTest = isRoot ? test.serial : test.serial.skip;
const title = (what: string): string =>
  `full disk: ${what}${isRoot ? "" : " (skipped: mounting a tmpfs needs root)"}`;

async function run(command: string, args: readonly string[]): Promise<void> {
  const child = spawn(command, args, { stdio: "inherit" });
  const [code] = (await nextEvent(child, "close")) as [number | null];
  if (code !== 0) throw new Error(`${command} ${args.join(" ")} ended with ${code}`);
}

/** A small file system. */
async function smallDisk(
  sizeMiB: number,
): Promise<AsyncDisposable & { path: string; fill(): Promise<void> }> {
  const dir = await temporaryDir();
  await run("mount", ["-t", "tmpfs", "-o", `size=${sizeMiB}m,mode=0700`, "tmpfs", dir.path]);
  return {
    path: dir.path,
    async fill() {
      const file = await open(join(dir.path, "filler"), "a");
      try {
        for (const sizeBytes of [1_048_576, 4_096]) {
          for (;;) await file.appendFile(Buffer.alloc(sizeBytes, 1)).catch(stopWhenFull);
        }
      } catch (error) {
        if (error !== full) throw error;
      } finally {
        await file.close();
      }
    },
    async [Symbol.asyncDispose]() {
      await run("umount", [dir.path]);
      await dir[Symbol.asyncDispose]();
    },
  };
}

const full = Symbol("full");
function stopWhenFull(error: unknown): void {
  throw (error as NodeJS.ErrnoException).code === "ENOSPC" ? full : error;
}

const diskFull = { instanceOf: SvcError, code: "resource_exhausted", message: /disk .* full/ };

/** Writes until the log needs more space than is free. */
async function writeUntilFull(store: Store): Promise<string[]> {
  const kept: string[] = [];
  for (let n = 0; n < 10_000; n++) {
    const key = `k${String(n).padStart(5, "0")}`;
    try {
      await store.write([put(key, "x".repeat(2_000))]);
    } catch (error) {
      if (!(error instanceof SvcError) || error.reason !== "disk_full") throw error;
      return kept;
    }
    kept.push(key);
  }
  throw new Error("the disk was never full");
}

rootTest(title("a write fails with disk_full, the old state stays, essential writes succeed"), async (t) => {
  await using disk = await smallDisk(32);
  const reserve = join(disk.path, "reserve");
  let kept: string[];
  {
    await using store = await openStore({ dir: disk.path });
    await store.write([put("before")]);
    await store.housekeep();
    const { blocks } = await lstat(reserve);
    t.true(blocks * 512 >= 8 * 1_048_576, "really allocated");

    await disk.fill();
    kept = await writeUntilFull(store);
    t.deepEqual(keys(store), ["before", ...kept]);
    t.true(existsSync(reserve));

    for (let n = 0; n < 200; n++) {
      await store.write(
        [{ sql: "UPDATE meta SET value = ? WHERE key = 'before'", params: [String(n)], changes: 1 }],
        {
          essential: true,
        },
      );
    }
    t.false(existsSync(reserve), "given up");
    t.is(store.get<{ value: string }>("SELECT value FROM meta WHERE key = 'before'")?.value, "199");
    await t.throwsAsync(store.write([put("greedy")]), diskFull, "the reserved space is for essential writes");

    const together = await Promise.allSettled([
      store.write([put("greedy")]),
      store.write([put("essential")], { essential: true }),
      store.write([put("greedy too")]),
    ]);
    t.deepEqual(
      together.map(({ status }) => status),
      ["rejected", "fulfilled", "rejected"],
    );

    await rm(join(disk.path, "filler"));
    await store.write([put("roomy")]);
    // Waits until the writer has finished its work after the first write.
    await store.write([put("roomy too")]);
    t.true(existsSync(reserve), "made again at once");
  }
  await using store = await openStore({ dir: disk.path });
  t.is(store.restoration, undefined);
  t.deepEqual(keys(store), ["before", "essential", ...kept, "roomy", "roomy too"]);
});

rootTest(title("a write that records a stop succeeds even when the reserve is used up"), async (t) => {
  await using disk = await smallDisk(32);
  await using store = await openStore({ dir: disk.path });
  await store.write([put("state")]);
  await disk.fill();
  await writeUntilFull(store);
  const record = (value: string): Promise<unknown> =>
    store.write([{ sql: "UPDATE meta SET value = ? WHERE key = 'state'", params: [value], changes: 1 }], {
      essential: true,
    });
  await record("the reserve was given up for this");
  t.false(existsSync(join(disk.path, "reserve")));
  await disk.fill();
  for (let n = 0; n < 200; n++) await record(String(n));
  t.is(store.get<{ value: string }>("SELECT value FROM meta WHERE key = 'state'")?.value, "199");
  await t.throwsAsync(store.write([put("greedy")]), diskFull);
});

rootTest(title("a store opens, and space can be freed"), async (t) => {
  await using disk = await smallDisk(32);
  {
    await using store = await openStore({ dir: disk.path });
    await store.write([put("a"), put("b")]);
    await store.housekeep();
  }
  await disk.fill();
  await using store = await openStore({ dir: disk.path });
  t.deepEqual(keys(store), ["a", "b"]);
  await store.write([{ sql: "DELETE FROM meta WHERE key = 'b'", changes: 1 }], { essential: true });
  t.deepEqual(keys(store), ["a"]);
});

rootTest(title("creating a store fails with a clear error and leaves no partial files"), async (t) => {
  await using disk = await smallDisk(2);
  await disk.fill();
  await t.throwsAsync(openStore({ dir: disk.path }), diskFull);
  await rm(join(disk.path, "filler"));
  await using store = await openStore({ dir: disk.path });
  t.deepEqual(keys(store), []);
  t.is(store.restoration, undefined);
});

rootTest(title("a snapshot that does not fit leaves the old one and is logged"), async (t) => {
  await using disk = await smallDisk(32);
  const warnings: string[] = [];
  await using store = await openStore({
    dir: disk.path,
    housekeepingIntervalMs: 100,
    log: { warn: (_, message) => warnings.push(message) },
  });
  await store.write([put("a")]);
  await store.housekeep();
  await store.write(Array.from({ length: 1_000 }, (_, n) => put(`k${n}`, "x".repeat(2_000))));
  await disk.fill();
  await store.write([put("b")], { essential: true });
  await disk.fill();
  // Housekeeping may have replaced the snapshot before.
  const { ino } = await lstat(join(disk.path, "svc.db.bak"));
  warnings.length = 0;
  await until(() => warnings.some((warning) => warning.includes("snapshot")));
  t.is((await lstat(join(disk.path, "svc.db.bak"))).ino, ino);
});
