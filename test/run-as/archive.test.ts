import { execFileSync, spawnSync } from "node:child_process";
import { closeSync, createReadStream, createWriteStream, openSync } from "node:fs";
import { chmod, mkdir, mkdtemp, readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { finished } from "node:stream/promises";
import test, { type ExecutionContext } from "ava";
import type { ReadArchiveOptions, WrittenArchive } from "../../src/run-as/user-helper-types.ts";
import { assertFails, createWorld, someUid, type World } from "./support/world.ts";
import { credentialsMismatch } from "../../src/run-as/helper/verify.mjs";
import { discard, inStage } from "../../src/run-as/helper/host/staging.mjs";
import { Syscalls } from "../../src/run-as/helper/host/syscalls.mjs";

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

test("what takes the name of a stage is not removed with it", async (t) => {
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
