import { execFileSync, spawnSync } from "node:child_process";
import { createReadStream, createWriteStream } from "node:fs";
import { readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { finished } from "node:stream/promises";
import test from "ava";
import type { ReadArchiveOptions, WrittenArchive } from "../../src/identity/identity-work.ts";
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

/** The input of a reader: the content of the index, that of the table, the frames. */
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

test("trees come back as they were: names, modes, times, links, holes, attributes, access lists", async (t) => {
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

test("zstd and tar alone give the files back", async (t) => {
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

test("what lies too deep for tar is left out, and said, and the rest comes back", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  // A directory's path at the bound, one beyond it, and what would lie in either.
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

test("what is excluded is not in it, and one of several trees is read alone", async (t) => {
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

test("a byte that is another one is found, wherever it is", async (t) => {
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
    // The prefixes of the parts are the reader's of the whole file.
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
