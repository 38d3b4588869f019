/** Trees of apps: entries that the user may rename, and trees that change while they are read. */
import { execFileSync } from "node:child_process";
import {
  appendFileSync,
  closeSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  readdirSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import {
  chmod,
  chown,
  lstat,
  mkdir,
  mkdtemp,
  mkdtempDisposable,
  readFile,
  rename,
  rm,
  symlink,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import test from "ava";
import { SvcError } from "../../src/errors.ts";
import { TreeTar } from "../../src/run-as/helper/archive/tree-tar.mjs";
import { describeEntry, entryAt } from "../../src/run-as/helper/host/entries.mjs";
import { Syscalls } from "../../src/run-as/helper/host/syscalls.mjs";
import { openEntry } from "../../src/run-as/helper/host/tree-entries.mjs";
import { WriteBack } from "../../src/run-as/helper/host/upload.mjs";
import { createUserHelpers } from "../../src/run-as/user-helpers.ts";
import { isRoot, needsRoot } from "../support/daemon.ts";
import { programs } from "../support/programs.ts";

// Trees that change while they are read: missing entries are reported, and nothing else is lost or mixed up.

const largeBytes = 3 << 20;
const changed = (name: string): string => `data${name}: file changed as it was read`;
const removed = (name: string): string => `data${name}: file removed before it was read`;

/** An action right before the n-th call of a kind for a name, or for the open file with this name. */
interface Intrusion {
  readonly call: "stat" | "open" | "attributes" | "nextData";
  readonly name: string;
  readonly turn?: number;
  readonly act: (dir: string) => void;
}

function intruded({ call, name, turn = 1, act }: Intrusion, dir: string): Syscalls {
  const syscalls = new Syscalls();
  const original = syscalls[call].bind(syscalls) as (...args: unknown[]) => unknown;
  let calls = 0;
  const nameOf = (fd: unknown, of: unknown): unknown =>
    typeof of === "string" ? of : basename(readlinkSync(`/proc/self/fd/${String(fd)}`));
  const replaced = (...args: unknown[]): unknown => {
    if (nameOf(args[0], args[1]) === name && ++calls === turn) act(dir);
    return original(...args);
  };
  return Object.assign(syscalls, { [call]: replaced });
}

/** Reads a tree, and unpacks it with tar(1). */
async function readWhile(plant: (dir: string) => void, intrusion: Intrusion) {
  const base = mkdtempSync(join(tmpdir(), "svc-changing-"));
  const dir = join(base, "data");
  mkdirSync(dir);
  plant(dir);
  const pieces: Buffer[] = [];
  const warnings: string[] = [];
  let space = Buffer.alloc(0);
  const tar = new TreeTar(
    {
      entry: (_entry, headers) => pieces.push(headers),
      space: (bytes) => (space = Buffer.alloc(Math.min(bytes, 1 << 20))),
      filled: (bytes) => pieces.push(space.subarray(0, bytes)),
      read: () => undefined,
      content: (piece) => pieces.push(piece),
      padding: (piece) => pieces.push(piece),
      entryEnd: () => undefined,
      warn: (warning) => warnings.push(warning),
    },
    { syscalls: intruded(intrusion, dir), isExcluded: () => false },
  );
  const fd = openSync(dir, "r");
  try {
    for (const step of tar.read(fd, "data")) await step;
  } finally {
    closeSync(fd);
  }
  const restored = join(base, "restored");
  mkdirSync(restored);
  execFileSync("tar", ["-x", "--same-permissions", "-f", "-"], {
    cwd: restored,
    input: Buffer.concat([...pieces, Buffer.alloc(1024)]),
  });
  return {
    warnings,
    names: readdirSync(join(restored, "data"), { recursive: true }).map(String).toSorted(),
    file: (name: string) => readFileSync(join(restored, "data", name)),
    [Symbol.dispose]: () => rmSync(base, { recursive: true }),
  };
}

test("a directory that disappears when it is entered affects nothing else", async (t) => {
  const names = ["a", "b", "c", "d", "e"];
  using found = await readWhile(
    (dir) => {
      for (const name of names) mkdirSync(join(dir, name));
      for (const name of names) writeFileSync(join(dir, name, "file"), name);
    },
    {
      ...{ call: "stat", name: "." },
      // The first call is for the tree itself.
      turn: 2,
      act() {
        // File systems in user space fail like this; the kernel's own return an empty directory.
        throw Object.assign(new Error("statx"), { code: "ENOENT" });
      },
    },
  );
  const [warning = "", ...others] = found.warnings;
  t.deepEqual(others, []);
  const gone = names.find((name) => warning === removed(`/${name}`));
  t.truthy(gone, warning);
  const rest = names.filter((name) => name !== gone);
  t.deepEqual(
    found.names,
    rest.flatMap((name) => [name, `${name}/file`]),
  );
});

for (const [what, act] of [
  ["goes away", (file: string) => rmSync(file)],
  [
    "becomes a directory",
    (file: string) => {
      rmSync(file);
      mkdirSync(file);
    },
  ],
  [
    "becomes a symlink",
    (file: string) => {
      rmSync(file);
      symlinkSync("/etc/passwd", file);
    },
  ],
  [
    "becomes a FIFO",
    (file: string) => {
      rmSync(file);
      execFileSync("mkfifo", [file]);
    },
  ],
] as const) {
  test(`a file that ${what} before it is opened is reported, and the rest is stored`, async (t) => {
    using found = await readWhile(
      (dir) => {
        for (const name of ["a", "file", "z"]) writeFileSync(join(dir, name), name);
      },
      { call: "open", name: "file", act: (dir) => act(join(dir, "file")) },
    );
    t.deepEqual(found.names, ["a", "z"]);
    const expected = what === "goes away" || what === "becomes a symlink" ? removed : changed;
    t.deepEqual(found.warnings, [expected("/file"), changed("")]);
  });
}

test("a file that is replaced before it is opened does not give its content to its other names", async (t) => {
  const names = ["one", "two", "three"];
  for (const name of names) {
    using found = await readWhile(
      (dir) => {
        writeFileSync(join(dir, "one"), "old");
        for (const other of names.slice(1)) linkSync(join(dir, "one"), join(dir, other));
      },
      {
        ...{ call: "open", name },
        act(dir) {
          writeFileSync(join(dir, "new"), "new");
          renameSync(join(dir, "new"), join(dir, name));
        },
      },
    );
    const others = names.filter((each) => each !== name).map((each) => String(found.file(each)));
    t.deepEqual(others, ["old", "old"]);
    // The action applies to whichever of the names is opened.
    if (String(found.file(name)) === "new") return;
  }
  t.fail("nothing was replaced");
});

for (const size of [5_000, largeBytes]) {
  const readChanging = (change: (file: string) => void) =>
    readWhile(
      (dir) => {
        writeFileSync(join(dir, "file"), Buffer.alloc(size, "x"));
        writeFileSync(join(dir, "other"), "other");
      },
      // The file's size is known by then.
      { call: "attributes", name: "file", act: (dir) => change(join(dir, "file")) },
    );

  test(`a file of ${size} bytes that shrinks while it is read has zeros for the rest`, async (t) => {
    using found = await readChanging((file) => truncateSync(file, 1_000));
    t.deepEqual(found.file("file"), Buffer.concat([Buffer.alloc(1_000, "x"), Buffer.alloc(size - 1_000)]));
    t.is(String(found.file("other")), "other");
    t.deepEqual(found.warnings, [`data/file: file shrank by ${size - 1_000} bytes; padded with zeros`]);
  });

  test(`a file of ${size} bytes that grows while it is read is stored up to its old size`, async (t) => {
    using found = await readChanging((file) => appendFileSync(file, "more"));
    t.deepEqual(found.file("file"), Buffer.alloc(size, "x"));
    t.is(String(found.file("other")), "other");
    t.deepEqual(found.warnings, [changed("/file")]);
  });
}

test("a sparse file that grows while its holes are searched keeps its size", async (t) => {
  using found = await readWhile(
    (dir) => {
      writeFileSync(join(dir, "file"), "x".repeat(4096));
      truncateSync(join(dir, "file"), 1 << 20);
    },
    { call: "nextData", name: "file", turn: 2, act: (dir) => appendFileSync(join(dir, "file"), "more") },
  );
  t.deepEqual(found.file("file"), Buffer.concat([Buffer.alloc(4096, "x")], 1 << 20));
  t.deepEqual(found.warnings, [changed("/file")]);
});

test("a name that appears while its directory is read is reported", async (t) => {
  using found = await readWhile((dir) => writeFileSync(join(dir, "a"), "a"), {
    ...{ call: "stat", name: "a" },
    act: (dir) => writeFileSync(join(dir, "b"), "b"),
  });
  t.deepEqual(found.names, ["a"]);
  t.deepEqual(found.warnings, [changed("")]);
});

// A file found by a walk is opened only if it is still the same file.

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

// Which entries of an app's directory the user may rename.

const rootTest = isRoot ? test : test.skip;
const nobody = 65534;

const userHelpers = createUserHelpers({ helperPath: programs.userHelper });
test.after.always(() => userHelpers[Symbol.asyncDispose]());

/** The layout of an earlier svc: everything belongs to the user. */
async function legacyTree(t: { teardown: (end: () => Promise<void>) => void }) {
  const parent = await mkdtemp(join(tmpdir(), "svc-tree-"));
  await chmod(parent, 0o755);
  t.teardown(() => rm(parent, { recursive: true, force: true }));
  const root = join(parent, "app");
  for (const path of ["", "repo", "data", "data/a", "data/a/db", "data/b"]) {
    await mkdir(join(root, path));
    await chown(join(root, path), nobody, nobody);
  }
  const tree = await userHelpers.tree(root, nobody);
  const fixed = async (): Promise<string[]> => {
    const all = ["", "repo", "data", "data/a", "data/a/db", "data/b"];
    const owners = await Promise.all(all.map(async (path) => (await lstat(join(root, path))).uid));
    return all.filter((_, at) => owners[at] === 0);
  };
  return { root, tree, fixed };
}

rootTest(
  `directories that lead to a mount belong to the daemon while it is mounted${needsRoot}`,
  async (t) => {
    const { root, tree, fixed } = await legacyTree(t);
    const user = await userHelpers.as(nobody);
    await tree.claim();
    t.deepEqual(await fixed(), [""]);
    await tree.hold(["data/a/db", "repo"]);
    t.deepEqual(await fixed(), ["", "data", "data/a"]);
    for (const path of ["data", "data/a", "data/a/db", "repo"]) {
      await t.throwsAsync(user.rename(root, path, `${path}.gone`), { message: /permission denied/ }, path);
    }
    t.is((await user.list(root, "data")).length, 2, "the user may look");
    await user.writeFile(root, "data/a/db/row", "1");
    await tree.writeFile("data/settings.json", "{}");
    t.like(await lstat(join(root, "data/settings.json")), { uid: nobody, mode: 0o100600 });
    await tree.hold(["data"]);
    t.deepEqual(await fixed(), [""], "what is not on the way any more is the user's again");
    await user.rename(root, "data/a", "data/c");
  },
);

rootTest(`a tree is closed to other users with the owner's primary group${needsRoot}`, async (t) => {
  const { root, tree } = await legacyTree(t);
  const readAs = (uid: number): string =>
    execFileSync(
      "setpriv",
      [`--reuid=${uid}`, `--regid=${nobody}`, "--clear-groups", "cat", join(root, "data/a/conf")],
      { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] },
    );
  await tree.hold(["data/a/db"]);
  await tree.writeFile("data/a/conf", "secret", 0o644);
  t.is(readAs(nobody), "secret");
  t.throws(() => readAs(5), { message: /Permission denied/ });
});

rootTest(`a link on the way to a mount is not followed${needsRoot}`, async (t) => {
  const { root, tree } = await legacyTree(t);
  const outside = join(root, "..", "outside");
  await mkdir(join(outside, "db"), { recursive: true });
  await symlink(outside, join(root, "data/link"));
  await t.throwsAsync(tree.hold(["data/link/db"]), { message: /a parent of it is a symlink/ });
  t.is((await lstat(outside)).mode & 0o777, (await lstat(join(outside, "db"))).mode & 0o777);
  await tree.destroy();
  t.true((await lstat(join(outside, "db"))).isDirectory(), "nor at the removal");
});

rootTest(`a tree with directories of both is copied and removed${needsRoot}`, async (t) => {
  const { root, tree } = await legacyTree(t);
  await writeFile(join(root, "data/a/db/row"), "1");
  await chown(join(root, "data/a/db/row"), nobody, nobody);
  await tree.hold(["data/a/db"]);
  await tree.writeFile("data/a/conf", "x");
  await tree.copy("data", tree, "data.copy");
  t.is(await readFile(join(root, "data.copy/a/db/row"), "utf8"), "1");
  t.like(await lstat(join(root, "data.copy/a/conf")), { uid: nobody });
  await tree.remove("data");
  await tree.rename("data.copy", "data");
  t.is(await readFile(join(root, "data/a/conf"), "utf8"), "x");
  await tree.destroy();
  await t.throwsAsync(lstat(root), { code: "ENOENT" });
});

rootTest(
  `empty directories of root in a user's directory are removed with the tree${needsRoot}`,
  async (t) => {
    const { root, tree } = await legacyTree(t);
    await tree.claim();
    const user = await userHelpers.as(nobody);
    await user.writeFile(root, "data/a/db/row", "1");
    await user.makeDirs(root, ["data/a/db/own/deep"]);
    for (const path of ["data/a/db/own/deep/x", "data/a/db/y"]) {
      await mkdir(join(root, path, "1/2"), { recursive: true });
    }
    await mkdir(join(root, "data/a/db/y/3"));
    await t.throwsAsync(user.removeTree(root, "data"), { message: /permission denied/ });
    t.true((await tree.remove("data")).freedBytes > 0);
    t.deepEqual(
      (await user.list(root, ".")).map(({ name }) => name),
      ["repo"],
    );
  },
);

for (const [what, keep] of [
  ["a file", (dir: string) => writeFile(join(dir, "kept"), "1")],
  ["a link", (dir: string) => symlink("/etc", join(dir, "kept"))],
  [
    "a directory of others",
    (dir: string) => mkdir(join(dir, "kept")).then(() => chown(join(dir, "kept"), 1, 1)),
  ],
  [
    "a directory that others may write to",
    (dir: string) => mkdir(join(dir, "kept")).then(() => chmod(join(dir, "kept"), 0o777)),
  ],
] as const) {
  rootTest(`a directory of root that contains ${what} is not removed${needsRoot}`, async (t) => {
    const { root, tree } = await legacyTree(t);
    const stuck = join(root, "data/a/db/x/1");
    await mkdir(stuck, { recursive: true });
    await keep(stuck);
    await t.throwsAsync(tree.destroy(), { message: /permission denied; check owner and mode/ });
    t.truthy(await lstat(join(stuck, "kept")));
  });
}

rootTest(
  `directories that root made in a user's home stay root's in the tree of an app${needsRoot}`,
  async (t) => {
    const { root, tree } = await legacyTree(t);
    const user = await userHelpers.as(nobody);
    const home = join(root, "../home");
    await mkdir(join(home, "site/kept/deep"), { recursive: true });
    await mkdir(join(home, "site/mount"));
    await chmod(join(home, "site/kept"), 0o700);
    await writeFile(join(home, "site/kept/deep/key"), "secret");
    for (const path of ["", "site", "site/mount"]) await chown(join(home, path), nobody, nobody);
    const move = ["mv", join(home, "site"), join(root, "data/site")];
    t.is((await user.runCommand(move)).exitCode, 0);

    await tree.hold(["data/site/mount"]);
    const kept = join(root, "data/site/kept");
    const expectRootsOwn = async (): Promise<void> => {
      for (const path of [kept, join(kept, "deep")]) t.like(await lstat(path), { uid: 0, gid: 0 });
      t.is((await lstat(kept)).mode & 0o7777, 0o700);
    };
    await expectRootsOwn();
    await t.throwsAsync(tree.hold(["data/site/kept/deep/mount"]), {
      message: /is not a directory, or a parent of it is a symlink/,
    });
    await t.throwsAsync(tree.hold(["data/site/kept/mount"]), {
      message: /is not a directory, or a parent of it is a symlink/,
    });
    await t.throwsAsync(tree.copy("data", tree, "data.copy"), { instanceOf: SvcError });
    await t.throwsAsync(tree.destroy(), { message: /is not a directory, or a parent of it is a symlink/ });
    await expectRootsOwn();
    t.is(await readFile(join(kept, "deep/key"), "utf8"), "secret");
  },
);

rootTest(`empty directories of root on the way to a mount become the daemon's${needsRoot}`, async (t) => {
  const { root, tree } = await legacyTree(t);
  await mkdir(join(root, "data/new/deep"), { recursive: true });
  await tree.hold(["data/new/mount"]);
  t.like(await lstat(join(root, "data/new")), { uid: 0, gid: nobody, mode: 0o40750 });
  await tree.hold(["repo"]);
  t.like(await lstat(join(root, "data/new")), { uid: nobody });
});
