/** Archives: they restore everything, detect any change, and store only what changed. */
import { execFileSync, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { closeSync, createReadStream, createWriteStream, openSync, statfsSync, readFileSync } from "node:fs";
import {
  chmod,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  writeFile,
  open,
  readlink,
} from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { finished } from "node:stream/promises";
import { setTimeout as wait } from "node:timers/promises";
import { constants, zstdCompressSync, zstdDecompressSync } from "node:zlib";
import test, { type ExecutionContext } from "ava";
import { FrameWriter, tableRowBytes } from "../../src/run-as/helper/archive/frames.mjs";
import { discard, inStage } from "../../src/run-as/helper/host/staging.mjs";
import { Syscalls } from "../../src/run-as/helper/host/syscalls.mjs";
import { credentialsMismatch } from "../../src/run-as/helper/verify.mjs";
import type {
  ReadArchiveOptions,
  WrittenArchive,
  WriteArchiveOptions,
} from "../../src/run-as/user-helper-types.ts";
import { loadLibc } from "../../src/sys/libc.ts";
import { assertFails, createWorld, someUid, type World } from "./support/world.ts";

const oddTree = `
  mkdir -p data/sub/deep data/empty repo && cd data &&
  echo one > f && chmod 640 f && ln f sub/hard && ln -s ../f sub/soft && ln -s /nowhere dangling &&
  truncate -s 64M sparse && printf x | dd of=sparse bs=1 seek=40000000 conv=notrunc 2>/dev/null &&
  printf y > "$(printf 'bad\\377\\nname')" && echo é > 'é' &&
  mkfifo fifo && setfacl -m u:1:rw,g::-,m:rw fifo &&
  touch "$(printf 'x%.0s' $(seq 255))" && p=$(printf 'd%.0s' $(seq 200)) && mkdir -p $p/$p && echo deep > $p/$p/$p &&
  setfattr -n user.note -v "a b" f && setfacl -m u:1:r f && setfacl -d -m u:1:r empty &&
  head -c 9000000 /dev/urandom > big && chmod 4755 big &&
  touch -d '2001-02-03T04:05:06.123456789' f sub/deep empty && chmod 2711 empty && chmod 500 sub/deep`;

const parts = (archive: WrittenArchive) =>
  archive.framesBytes + archive.index.bytes + archive.table.bytes + 16;

async function plant({ app, user }: World): Promise<void> {
  const { exitCode, stderr } = await user.runCommand(["sh", "-c", oddTree], { cwd: app });
  if (exitCode !== 0) throw new Error(stderr);
}

async function write({ app, dir, user }: World, trees: readonly string[], exclude: string[] = []) {
  const file = join(dir, "archive.tar.zst");
  const output = createWriteStream(file);
  const archive = await user.writeArchive(app, trees, output, { exclude });
  output.end();
  await finished(output);
  return { file, archive };
}

/** The input of a reader: the content of the index, the content of the table, the frames. */
async function read(
  { app, user }: World,
  bytes: Buffer,
  archive: WrittenArchive,
  options: Partial<ReadArchiveOptions> = {},
) {
  const { framesBytes, index, table } = archive;
  const indexAt = framesBytes + 8;
  const tableAt = indexAt + index.bytes + 8;
  const pieces = [
    bytes.subarray(indexAt, indexAt + index.bytes),
    bytes.subarray(tableAt, tableAt + table.bytes),
    bytes.subarray(0, framesBytes),
  ];
  return user.readArchive(described(archive), Readable.from(pieces.filter(({ length }) => length > 0)), {
    target: { root: app, into: ["repo.restored", "data.restored"] },
    ...options,
  });
}

const described = (parts: WrittenArchive) => ({ parts, uid: someUid, trees: ["repo", "data"] });

const differences = (from: string, to: string) =>
  execFileSync("rsync", ["-niaHAX", "--checksum", "--delete", `${from}/`, `${to}/`], { encoding: "utf8" });

test("trees are restored with names, modes, times, links, holes, attributes and ACLs", async (t) => {
  await using world = await createWorld();
  await plant(world);
  const { file, archive } = await write(world, ["repo", "data", "volumes/none"]);
  const result = await read(world, await readFile(file), archive);
  const { app } = world;
  t.is(differences(join(app, "data"), join(app, "data.restored")), "");
  t.is(differences(join(app, "repo"), join(app, "repo.restored")), "");
  const [before, after] = await Promise.all(
    ["data", "data.restored"].map((dir) => stat(join(app, dir, "sparse"))),
  );
  t.true((after?.blocks ?? 0) <= (before?.blocks ?? 0), "holes stay holes");
  t.is(result.entries, archive.entries);
  t.is(result.contentBytes, archive.contentBytes);
  t.is((await stat(file)).size, parts(archive));
  t.deepEqual(archive.warnings, []);
});

test("zstd and tar can restore the files without svc", async (t) => {
  await using world = await createWorld();
  await plant(world);
  const { file } = await write(world, ["repo", "data"]);
  t.is(spawnSync("zstd", ["-tq", file]).status, 0);
  const { app, user } = world;
  await user.makeDirs(app, ["plain"]);
  await user.runCommand(["sh", "-c", "zstd -dcq | tar x --acls --xattrs -p"], {
    cwd: join(app, "plain"),
    stdin: createReadStream(file),
  });
  t.is(differences(join(app, "data"), join(app, "plain/data")), "");
});

test("paths that are too long for tar are left out with a warning, and the rest is restored", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  // A directory's path at the limit, one above it, and a file in each.
  const deep = `
    mkdir -p repo data && cd data && echo near > near && for n in $(seq 399); do mkdir ddddddddd && cd ddddddddd; done &&
    echo x > f && mkdir "$(printf 'e%.0s' $(seq 99))" && mkdir "$(printf 'l%.0s' $(seq 100))" && cd lll* && echo y > f`;
  const { exitCode, stderr } = await user.runCommand(["bash", "-c", deep], { cwd: app });
  t.is(exitCode, 0, stderr);
  const { file, archive } = await write(world, ["repo", "data"]);
  const [warning, ...others] = archive.warnings;
  t.regex(warning ?? "", /^data\/(d{9}\/)+d*…: path is longer than 4094 bytes and was left out$/);
  t.deepEqual(others, []);
  await read(world, await readFile(file), archive);
  const names = execFileSync("find", [".", "-printf", "%f\n"], {
    cwd: join(app, "data.restored"),
    encoding: "utf8",
  });
  const found = new Set(names.trim().split("\n"));
  t.deepEqual([...found].toSorted(), [".", "ddddddddd", "e".repeat(99), "f", "near"]);
});

test("excluded paths are not stored, and one of several trees can be restored", async (t) => {
  await using world = await createWorld();
  await plant(world);
  const { app } = world;
  const { file, archive } = await write(world, ["repo", "data"], ["data/big", "data/sub/*"]);
  const bytes = await readFile(file);
  await read(world, bytes, archive, { paths: ["data/f", "data/sub"] });
  const names = execFileSync("find", [".", "-printf", "%P\n"], {
    cwd: join(app, "data.restored"),
    encoding: "utf8",
  });
  t.deepEqual(names.trim().split("\n").toSorted(), ["f", "sub"]);
});

test("any changed byte of an archive is detected", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  await user.runCommand(["sh", "-c", "mkdir data repo; echo hello > data/f; ln data/f data/g"], { cwd: app });
  const { file, archive } = await write(world, ["repo", "data"]);
  const bytes = await readFile(file);
  await read(world, bytes, archive, {});
  for (let at = 0; at < bytes.length; at++) {
    const isPrefix =
      (at >= archive.framesBytes && at < archive.framesBytes + 8) ||
      (at >= archive.framesBytes + 8 + archive.index.bytes &&
        at < archive.framesBytes + 16 + archive.index.bytes);
    // Only a reader of the whole file checks the prefixes of the parts.
    if (isPrefix) continue;
    const broken = Buffer.from(bytes);
    broken[at] = (broken[at] ?? 0) ^ 0x10;
    const error = await t.throwsAsync(
      user.readArchive(described(archive), partsOf(broken, archive)),
      undefined,
      `byte ${at}`,
    );
    if (!/archive/.test(error.message)) t.fail(`byte ${at}: ${error.message}`);
  }
  await assertFails(t, read(world, bytes.subarray(0, -60), archive, { paths: [] }), "data_loss");
  await writeFile(file, "");
});

function partsOf(bytes: Buffer, { framesBytes, index, table }: WrittenArchive): Readable {
  const indexAt = framesBytes + 8;
  const tableAt = indexAt + index.bytes + 8;
  return Readable.from([
    bytes.subarray(indexAt, indexAt + index.bytes),
    bytes.subarray(tableAt, tableAt + table.bytes),
    bytes.subarray(0, framesBytes),
  ]);
}

const expected = { uid: 5, gid: 60, groups: [60, 44, 100], dropped: true };
const good = {
  Uid: "5\t5\t5\t5",
  Gid: "60\t60\t60\t60",
  Groups: "44 60 100 ",
  CapInh: "0000000000000000",
  CapPrm: "0000000000000000",
  CapEff: "0000000000000000",
  CapBnd: "0000000000000000",
  CapAmb: "0000000000000000",
  NoNewPrivs: "1",
};

function status(fields: Record<string, string | undefined>): string {
  return Object.entries(fields)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${name}:\t${value ?? ""}\n`)
    .join("");
}

test("the expected identity is accepted", (t) => {
  t.is(credentialsMismatch(status(good), expected), undefined);
});

for (const [field, value] of [
  ["Uid", "0\t5\t5\t5"],
  ["Uid", "5\t0\t5\t5"],
  ["Uid", "5\t5\t0\t5"],
  ["Uid", "5\t5\t5\t0"],
  ["Uid", "5\t5\t5"],
  ["Gid", "60\t60\t0\t60"],
  ["Groups", "60 44"],
  ["Groups", "0 44 60 100"],
  ["Groups", ""],
  ["CapInh", "0000000000000001"],
  ["CapPrm", "0000000000000001"],
  ["CapEff", "0000000000000001"],
  ["CapBnd", "000001ffffffffff"],
  ["CapAmb", "0000000000000400"],
  ["NoNewPrivs", "0"],
  ...Object.keys(good).map((name) => [name, undefined] as const),
] as const) {
  test(`${field} ${value === undefined ? "missing" : JSON.stringify(value)} is a mismatch`, (t) => {
    t.regex(
      credentialsMismatch(status({ ...good, [field]: value }), expected) ?? "",
      new RegExp(`^${field}`),
    );
  });
}

test("IDs are checked even if no privileges were dropped", (t) => {
  const self = { uid: 5, gid: 60, groups: [], dropped: false };
  t.is(credentialsMismatch(status({ Uid: good.Uid, Gid: good.Gid }), self), undefined);
  t.regex(credentialsMismatch(status({ Uid: "0 0 0 0", Gid: good.Gid }), self) ?? "", /^Uid/);
});

// Where files are made before they are seen, in a directory that somebody else may write to.

const name = ".svc-0123456789abcdef.tmp";

async function openParent(t: ExecutionContext) {
  const dir = await mkdtemp(join(tmpdir(), "svc-stage-"));
  const fd = openSync(dir, "r");
  t.teardown(async () => {
    closeSync(fd);
    await rm(dir, { recursive: true });
  });
  const plant = async (mode: number): Promise<void> => {
    await mkdir(join(dir, name, "precious"), { recursive: true });
    await writeFile(join(dir, name, "precious/file"), "1");
    await chmod(join(dir, name), mode);
  };
  return { dir, fd, plant };
}

test("a directory that takes the name of a stage is not removed with the stage", async (t) => {
  const { dir, fd, plant } = await openParent(t);
  await inStage(fd, name, async () => {
    await writeFile(join(dir, name, "new"), "1");
    await rename(join(dir, name), join(dir, "elsewhere"));
    await plant(0o700);
  });
  t.deepEqual(await readdir(join(dir, name, "precious")), ["file"]);
  t.deepEqual(await readdir(join(dir, "elsewhere")), [], "what was made is gone, wherever it is");
});

test("a directory that others can enter is not a stage that a process left", async (t) => {
  const { dir, plant } = await openParent(t);
  const place = { path: join(dir, "target"), temporary: name };
  await plant(0o755);
  await discard(new Syscalls(), place);
  t.deepEqual(await readdir(join(dir, name, "precious")), ["file"]);
  await chmod(join(dir, name), 0o700);
  await discard(new Syscalls(), place);
  t.deepEqual(await readdir(dir), []);
  await writeFile(join(dir, name), "1");
  await discard(new Syscalls(), place);
  t.deepEqual(await readdir(dir), []);
  await discard(new Syscalls(), place);
});

// Archives of changes: unchanged files are taken from the restored previous archive, and nothing else is.

/** A recently changed file has no mark. */
const settledMs = 2_500;
const trees = ["repo", "data"];
/** A file system on which only the first change through a mapping is visible. */
const isInMemory = statfsSync(tmpdir()).type === 0x01021994;
const diskTest = isInMemory ? test.skip : test;

async function run({ app, user }: World, script: string): Promise<void> {
  const { exitCode, stderr } = await user.runCommand(["sh", "-c", script], { cwd: app });
  if (exitCode !== 0) throw new Error(stderr);
}

interface Made {
  readonly bytes: Buffer;
  readonly archive: WrittenArchive;
}

async function writeWith({ app, dir, user }: World, options: WriteArchiveOptions): Promise<Made> {
  const file = join(dir, "archive.tar.zst");
  const output = createWriteStream(file);
  const archive = await user.writeArchive(app, trees, output, options);
  output.end();
  await finished(output);
  return { archive, bytes: await readFile(file) };
}

function indexOf({ bytes, archive: { framesBytes, index } }: Made): Buffer {
  return bytes.subarray(framesBytes + 8, framesBytes + 8 + index.bytes);
}

const since = (base: Made): WriteArchiveOptions => ({
  since: {
    ...base.archive.index,
    index: async function* () {
      await Promise.resolve();
      yield indexOf(base);
    },
  },
});

/** @param base the restored previous archive; default: only verify */
function readOnto({ app, user }: World, made: Made, into: readonly string[], base?: readonly string[]) {
  const { bytes, archive } = made;
  const tableAt = archive.framesBytes + 16 + archive.index.bytes;
  const pieces = [
    indexOf(made),
    bytes.subarray(tableAt, tableAt + archive.table.bytes),
    bytes.subarray(0, archive.framesBytes),
  ];
  const input = Readable.from(pieces.filter(({ length }) => length > 0));
  const described = { parts: archive, uid: someUid, trees };
  return user.readArchive(described, input, { target: { root: app, into, ...(base && { base }) } });
}

const plantFiles = `
  mkdir -p repo data/sub/deep data/moved data/gone && echo code > repo/app &&
  head -c 3000000 /dev/urandom > data/bulk && echo one > data/sub/same && echo two > data/sub/changed &&
  echo three > data/gone/file && echo four > data/sub/linked && ln data/sub/linked data/sub/deep/hard &&
  ln -s ../sub/same data/moved/link && echo "odd" > "data/sub/$(printf 'bad\\377\\nname')" &&
  echo aaaa > data/sub/deep/swap && echo bbbb > data/moved/swap && touch -d 2001-02-03 data/sub/deep/swap data/moved/swap`;

test("unchanged files are stored by name only, and everything is restored", async (t) => {
  await using world = await createWorld();
  await run(world, plantFiles);
  await wait(settledMs);
  const base = await writeWith(world, { marks: true });
  await readOnto(world, base, ["repo.base", "data.base"]);
  const change = `
    echo 'two and more' > data/sub/changed && rm -r data/gone && echo five > data/new &&
    mv data/sub/deep data/deeper && mv data/moved data/sub/deep && chmod 600 data/sub/same`;
  await run(world, change);
  await wait(settledMs);
  const rest = await writeWith(world, since(base));
  t.true(rest.archive.contentBytes < 1_000, String(rest.archive.contentBytes));
  const result = await readOnto(world, rest, ["repo.new", "data.new"], ["repo.base", "data.base"]);
  t.is(result.entries, rest.archive.entries);
  const { app } = world;
  // Another file with the same size and time counts as changed.
  t.is(await readFile(join(app, "data.new/sub/deep/swap"), "utf8"), "bbbb\n");
  t.is(await readFile(join(app, "data.new/sub/changed"), "utf8"), "two and more\n");
  t.is(await readlink(join(app, "data.new/sub/deep/link")), "../sub/same");
  const compare = `
    for tree in repo data; do
      (cd $tree && find . -printf '%p %y %s %m %T@ %l\\n' | sort > ../$tree.list)
      (cd $tree.new && find . -printf '%p %y %s %m %T@ %l\\n' | sort > ../$tree.new.list)
      sed -i 's/\\.\\([0-9]\\{3\\}\\)[0-9]* /.\\1 /' $tree.list $tree.new.list
      diff $tree.list $tree.new.list && diff -r --no-dereference $tree $tree.new || exit 1
    done`;
  await t.notThrowsAsync(run(world, compare));
  const [bulk, there] = await Promise.all(
    ["data.base/bulk", "data.new/bulk"].map((path) => stat(join(app, path))),
  );
  t.is(bulk?.ino, there?.ino, "no byte of it was copied");
});

test("trees of any depth have marks", async (t) => {
  await using world = await createWorld();
  const deepest = `data${"/d".repeat(700)}`;
  await run(world, `mkdir -p repo ${deepest} && echo low > ${deepest}/file && echo high > data/e`);
  await wait(settledMs);
  const base = await writeWith(world, { marks: true });
  await readOnto(world, base, ["repo.base", "data.base"]);
  await run(world, "echo higher > data/e");
  const rest = await writeWith(world, since(base));
  t.true(rest.archive.contentBytes < 10, String(rest.archive.contentBytes));
  await readOnto(world, rest, ["repo.new", "data.new"], ["repo.base", "data.base"]);
  const place = join(world.app, deepest.replace("data", "data.new"), "file");
  t.is(await readFile(place, "utf8"), "low\n");
});

test("a base that has changed or is missing is rejected", async (t) => {
  await using world = await createWorld();
  await run(world, plantFiles);
  await wait(settledMs);
  const base = await writeWith(world, { marks: true });
  await readOnto(world, base, ["repo.base", "data.base"]);
  const rest = await writeWith(world, since(base));
  await assertFails(t, readOnto(world, rest, ["repo.a", "data.a"]), "data_loss");
  await run(world, "echo 'one, and more' > data.base/sub/same");
  await assertFails(t, readOnto(world, rest, ["repo.b", "data.b"], ["repo.base", "data.base"]), "data_loss");
  await run(world, "rm data.base/sub/same && ln -s /etc/passwd data.base/sub/same");
  await assertFails(t, readOnto(world, rest, ["repo.c", "data.c"], ["repo.base", "data.base"]), "data_loss");
  await run(world, "mv data.base/sub data.base/real && ln -s real data.base/sub");
  await t.throwsAsync(readOnto(world, rest, ["repo.d", "data.d"], ["repo.base", "data.base"]));
});

test("without marks, or with marks of recently written files, every file is stored", async (t) => {
  await using world = await createWorld();
  await run(world, plantFiles);
  await writeFile(join(world.app, "data", "own"), "own");
  const base = await writeWith(world, {});
  const rest = await writeWith(world, since(base));
  t.is(rest.archive.contentBytes, base.archive.contentBytes);
});

/** Maps a file into memory. @returns a function that overwrites all its bytes there */
function mapFile(fd: number, bytes: number): (byte: number) => void {
  const [readAndWrite, shared] = [3, 1];
  const libc = loadLibc();
  const map = libc.func("void *mmap(void *place, size_t bytes, int rights, int flags, int fd, int64_t from)");
  const fill = libc.func("void *memset(void *place, int byte, size_t bytes)");
  const place: unknown = map(null, bytes, readAndWrite, shared, fd, 0);
  return (byte) => void fill(place, byte, bytes);
}

diskTest("changes through a memory mapping are stored again", async (t) => {
  await using world = await createWorld();
  const bytes = 65_536;
  await run(world, `mkdir repo data && head -c ${bytes} /dev/zero > data/mapped`);
  await using file = await open(join(world.app, "data/mapped"), "r+");
  const fill = mapFile(file.fd, bytes);
  fill(1);
  await wait(settledMs);
  const base = await writeWith(world, { marks: true });
  fill(2);
  const rest = await writeWith(world, since(base));
  t.is(rest.archive.contentBytes, bytes);
});

// The frames of an archive while they are written.

const mib = 1 << 20;
const frameBytes = 4 * mib;
/** Text that the thorough level compresses better than the fast one. */
const text = readFileSync(createRequire(import.meta.url).resolve("typescript")).subarray(0, frameBytes);

const compressed = (raw: Buffer, level: number): Buffer =>
  zstdCompressSync(raw, {
    // In one pass.
    chunkSize: 2 * raw.length,
    params: { [constants.ZSTD_c_compressionLevel]: level, [constants.ZSTD_c_checksumFlag]: 1 },
  });

async function writeFrames(pieces: readonly Buffer[]) {
  const frames: Buffer[] = [];
  const writer = new FrameWriter((frame) => {
    frames.push(frame);
    return Promise.resolve();
  });
  for (const piece of pieces) {
    // Only valid during the call; overwritten afterwards.
    const lent = Buffer.from(piece);
    writer.write(lent);
    lent.fill(0);
    await writer.room();
  }
  await writer.end();
  return { frames, table: writer.table(), storedBytes: writer.storedBytes };
}

test("each frame is a complete zstd frame", async (t) => {
  const raw = Buffer.concat([text, text, randomBytes(5 * mib)]);
  const pieces = Array.from({ length: Math.ceil(raw.length / 700_000) }, (_, n) =>
    raw.subarray(n * 700_000, (n + 1) * 700_000),
  );
  const { frames, table, storedBytes } = await writeFrames(pieces);
  t.is(frames.length, Math.ceil(raw.length / frameBytes));
  t.is(table.length, frames.length * tableRowBytes);
  t.is(storedBytes, Buffer.concat(frames).length);
  for (const [n, frame] of frames.entries()) {
    const part = raw.subarray(n * frameBytes, (n + 1) * frameBytes);
    t.true(zstdDecompressSync(frame).equals(part), `${n}`);
    t.is(frame.length, compressed(part, 3).length, `${n}`);
  }
});

test("data is compressed thoroughly if that saves space, even after data for which it does not", async (t) => {
  const noise = Array.from({ length: 20 }, () => randomBytes(frameBytes));
  const [fast, thorough] = [compressed(text, 1).length, compressed(text, 3).length];
  t.true(thorough < 0.95 * fast, `${thorough} of ${fast}`);
  const { frames } = await writeFrames([...noise, ...Array.from({ length: 24 }, () => text)]);
  // Tried again every 16 frames.
  for (const frame of frames.slice(-4)) t.is(frame.length, thorough);
});
