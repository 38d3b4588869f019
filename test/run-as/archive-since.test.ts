/** Archives of changes: unchanged files are taken from the restored previous archive, and nothing else is. */
import { createWriteStream, statfsSync } from "node:fs";
import { open, readFile, readlink, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { finished } from "node:stream/promises";
import { setTimeout as wait } from "node:timers/promises";
import test from "ava";
import type { WriteArchiveOptions, WrittenArchive } from "../../src/run-as/user-helper-types.ts";
import { loadLibc } from "../../src/sys/libc.ts";
import { assertFails, createWorld, someUid, type World } from "./support/world.ts";

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

async function write({ app, dir, user }: World, options: WriteArchiveOptions): Promise<Made> {
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
function read({ app, user }: World, made: Made, into: readonly string[], base?: readonly string[]) {
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

const plant = `
  mkdir -p repo data/sub/deep data/moved data/gone && echo code > repo/app &&
  head -c 3000000 /dev/urandom > data/bulk && echo one > data/sub/same && echo two > data/sub/changed &&
  echo three > data/gone/file && echo four > data/sub/linked && ln data/sub/linked data/sub/deep/hard &&
  ln -s ../sub/same data/moved/link && echo "odd" > "data/sub/$(printf 'bad\\377\\nname')" &&
  echo aaaa > data/sub/deep/swap && echo bbbb > data/moved/swap && touch -d 2001-02-03 data/sub/deep/swap data/moved/swap`;

test("unchanged files are stored by name only, and everything is restored", async (t) => {
  await using world = await createWorld();
  await run(world, plant);
  await wait(settledMs);
  const base = await write(world, { marks: true });
  await read(world, base, ["repo.base", "data.base"]);
  const change = `
    echo 'two and more' > data/sub/changed && rm -r data/gone && echo five > data/new &&
    mv data/sub/deep data/deeper && mv data/moved data/sub/deep && chmod 600 data/sub/same`;
  await run(world, change);
  await wait(settledMs);
  const rest = await write(world, since(base));
  t.true(rest.archive.contentBytes < 1_000, String(rest.archive.contentBytes));
  const result = await read(world, rest, ["repo.new", "data.new"], ["repo.base", "data.base"]);
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
  const base = await write(world, { marks: true });
  await read(world, base, ["repo.base", "data.base"]);
  await run(world, "echo higher > data/e");
  const rest = await write(world, since(base));
  t.true(rest.archive.contentBytes < 10, String(rest.archive.contentBytes));
  await read(world, rest, ["repo.new", "data.new"], ["repo.base", "data.base"]);
  const place = join(world.app, deepest.replace("data", "data.new"), "file");
  t.is(await readFile(place, "utf8"), "low\n");
});

test("a base that has changed or is missing is rejected", async (t) => {
  await using world = await createWorld();
  await run(world, plant);
  await wait(settledMs);
  const base = await write(world, { marks: true });
  await read(world, base, ["repo.base", "data.base"]);
  const rest = await write(world, since(base));
  await assertFails(t, read(world, rest, ["repo.a", "data.a"]), "data_loss");
  await run(world, "echo 'one, and more' > data.base/sub/same");
  await assertFails(t, read(world, rest, ["repo.b", "data.b"], ["repo.base", "data.base"]), "data_loss");
  await run(world, "rm data.base/sub/same && ln -s /etc/passwd data.base/sub/same");
  await assertFails(t, read(world, rest, ["repo.c", "data.c"], ["repo.base", "data.base"]), "data_loss");
  await run(world, "mv data.base/sub data.base/real && ln -s real data.base/sub");
  await t.throwsAsync(read(world, rest, ["repo.d", "data.d"], ["repo.base", "data.base"]));
});

test("without marks, or with marks of recently written files, every file is stored", async (t) => {
  await using world = await createWorld();
  await run(world, plant);
  await writeFile(join(world.app, "data", "own"), "own");
  const base = await write(world, {});
  const rest = await write(world, since(base));
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
  const base = await write(world, { marks: true });
  fill(2);
  const rest = await write(world, since(base));
  t.is(rest.archive.contentBytes, bytes);
});
