/** The order in which writes reach the disk, which only the sequence of calls shows. */
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import { mkdir, mkdtempDisposable, open, readFile, readdir, writeFile } from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { unpackFiles } from "../../src/run-as/helper/host/archive/unpack.mjs";
import { movePath } from "../../src/run-as/helper/host/relocate.mjs";
import { Syscalls } from "../../src/run-as/helper/host/syscalls.mjs";
import { uploadFile } from "../../src/run-as/helper/host/upload.mjs";

const noSignal = new AbortController().signal;
const calls: string[] = [];

/** The directory's names at the moment of a call. */
let looked = "";
function note(call: string): void {
  calls.push(`${call} of ${looked === "" ? "?" : fs.readdirSync(looked).sort().join("+") || "nothing"}`);
}

/** The calls that name a file, and those that sync a file system. */
class NotedCalls extends Syscalls {
  override link(fd: number, parent: number, name: string): void {
    note("link");
    super.link(fd, parent, name);
  }

  override renameToFree(fromParent: number, from: string, toParent: number, to: string): void {
    note("rename");
    super.renameToFree(fromParent, from, toParent, to);
  }

  override async syncTree(fd: number): Promise<void> {
    await super.syncTree(fd);
    note("sync");
  }
}

test.before(async () => {
  const { fsyncSync } = fs;
  fs.fsyncSync = (fd) => {
    fsyncSync(fd);
    note("directory");
  };
  syncBuiltinESMExports();
  await using handle = await open(tmpdir());
  const handles = Object.getPrototypeOf(handle) as { sync: () => Promise<void> };
  const { sync } = handles;
  handles.sync = async function (this: unknown) {
    await sync.call(this);
    note("file");
  };
});

function inputOf(text: string) {
  return {
    batches: async function* () {
      yield await Promise.resolve([Buffer.from(text)]);
    },
  };
}

async function upload(path: string, text: string): Promise<void> {
  const args = { path, overwrite: true, ifMatch: "", mode: null, temporary: ".svc-0.tmp" };
  await uploadFile(new NotedCalls(), args, inputOf(text) as never, noSignal);
}

async function noted(t: ExecutionContext, dir: string, work: () => Promise<unknown>): Promise<string[]> {
  looked = dir;
  calls.length = 0;
  await work();
  t.log(calls.join(", "));
  return [...calls];
}

test.serial("an upload is synced before it is renamed, and renamed before the response", async (t) => {
  await using place = await mkdtempDisposable(join(tmpdir(), "svc-durable-"));
  const path = join(place.path, "new");
  const made = await noted(t, place.path, () => upload(path, "one"));
  t.deepEqual(made, ["file of nothing", "link of nothing", "directory of new"]);
  const replaced = await noted(t, place.path, () => upload(path, "two"));
  t.deepEqual(replaced, ["file of new", "link of new", "directory of new"]);
  t.is(await readFile(path, "utf8"), "two");
});

test.serial(
  "a file that another process writes at the last moment stays, and nothing of the upload does",
  async (t) => {
    await using place = await mkdtempDisposable(join(tmpdir(), "svc-durable-"));
    const path = join(place.path, "shared");
    await writeFile(path, "read");
    class LastMoment extends Syscalls {
      override link(fd: number, parent: number, name: string): void {
        super.link(fd, parent, name);
        fs.writeFileSync(path, "somebody else's");
      }
    }
    const { ino, size, mtimeNs, ctimeNs } = fs.statSync(path, { bigint: true });
    const ifMatch = [ino, size, mtimeNs, ctimeNs].map((part) => part.toString(32)).join("-");
    const args = { path, overwrite: true, ifMatch, mode: null, temporary: ".svc-0.tmp" };
    looked = "";
    const uploading = uploadFile(new LastMoment(), args, inputOf("mine") as never, noSignal);
    await t.throwsAsync(uploading, { message: /has changed since it was read/ });
    t.is(await readFile(path, "utf8"), "somebody else's");
    t.deepEqual(await readdir(place.path), ["shared"]);
  },
);

test.serial(
  "a name that another process takes during an unpacking keeps it, and nothing of the archive stays",
  async (t) => {
    await using place = await mkdtempDisposable(join(tmpdir(), "svc-durable-"));
    const [dir, path] = [join(place.path, "into"), join(place.path, "two.tar")];
    await mkdir(dir);
    for (const name of ["a", "b", "c"]) await writeFile(join(place.path, name), "of the archive");
    execFileSync("tar", ["-C", place.path, "-cf", path, "a", "b", "c"]);
    class LastMoment extends Syscalls {
      override renameToFree(fromParent: number, from: string, toParent: number, to: string): void {
        // Before the second of them, in any order.
        const [there] = fs.readdirSync(dir).filter((name) => !name.startsWith("."));
        if (there !== undefined && there !== to && !fs.existsSync(join(dir, to)))
          fs.writeFileSync(join(dir, to), "mine");
        super.renameToFree(fromParent, from, toParent, to);
      }
    }
    const limits = { maxEntries: 10, maxBytes: 1_000, maxRatio: 10 };
    const args = {
      path,
      target: dir,
      format: "tar",
      nameEncoding: "",
      overwrite: false,
      temporary: ".svc-0.tmp",
      limits,
    } as const;
    const unpacking = unpackFiles(new LastMoment(), args, () => undefined, noSignal);
    await t.throwsAsync(unpacking, { code: "EEXIST" });
    const [left = "", ...more] = await readdir(dir);
    t.deepEqual([await readFile(join(dir, left), "utf8"), more], ["mine", []]);
  },
);

test.serial(
  "a move to another file system is synced and renamed before the original is removed",
  async (t) => {
    await using place = await mkdtempDisposable(join(tmpdir(), "svc-durable-"));
    await using far = await mkdtempDisposable("/dev/shm/svc-durable-");
    const from = join(place.path, "tree");
    await mkdir(from);
    await writeFile(join(from, "f"), "x");
    const args = { from, to: join(far.path, "to"), overwrite: false, temporary: ".svc-0.tmp" };
    const moved = await noted(t, place.path, () =>
      movePath(new NotedCalls(), args, () => undefined, noSignal),
    );
    // The rename to the other file system, which fails; then the copy's.
    t.deepEqual(moved.slice(0, 4), ["rename of tree", "sync of tree", "rename of tree", "directory of tree"]);
    t.deepEqual(moved.slice(-1), ["directory of nothing"]);
    t.deepEqual(await readdir(far.path), ["to"]);
  },
);
