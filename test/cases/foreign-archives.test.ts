/** Archives as other programs write them: names in other encodings, backslashes, sparse files, and other compressors. */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { lstat, mkdir, readFile, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { crc32 } from "node:zlib";
import test from "ava";
import { FileService } from "../../gen/svc/v1/file_pb.ts";
import { isRoot, startDaemon } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { keepInMemory } from "../support/in-memory.ts";
import { ownerUid } from "../files/support/ground.ts";
import { sharedGround } from "../files/support/shared-ground.ts";

keepInMemory();

const rootTest = isRoot ? test : test.skip;
const newGround = sharedGround();

/** Writes a zip with one entry, whose name is these bytes. */
const zipScript = `
import io, sys, zipfile
path, name, unicode_name, flag = sys.argv[1], bytes.fromhex(sys.argv[2]), sys.argv[3], int(sys.argv[4])
entry = zipfile.ZipInfo("X" * len(name)); entry.create_system = 0
if unicode_name:
    import struct, zlib
    text = unicode_name.encode()
    entry.extra = struct.pack("<HHBI", 0x7075, 5 + len(text), 1, zlib.crc32(name)) + text
bytes_ = io.BytesIO()
with zipfile.ZipFile(bytes_, "w") as archive: archive.writestr(entry, b"hello\\n")
data = bytearray(bytes_.getvalue().replace(b"X" * len(name), name))
if flag:
    for mark, offset in ((b"PK\\3\\4", 6), (b"PK\\1\\2", 8)):
        at = data.index(mark) + offset; data[at:at + 2] = flag.to_bytes(2, "little")
open(path, "wb").write(data)`;

interface NameCase {
  readonly title: string;
  readonly name: Buffer;
  readonly nameEncoding?: string;
  readonly unicodeName?: string;
  readonly flag?: number;
  readonly unpacked: string;
}

const names: readonly NameCase[] = [
  { title: "CP437 without an option", name: Buffer.from("6772816e2e747874", "hex"), unpacked: "grün.txt" },
  {
    title: "GBK",
    name: Buffer.from("d6d0cec4cec4bcfe2e747874", "hex"),
    nameEncoding: "gbk",
    unpacked: "中文文件.txt",
  },
  {
    title: "Shift JIS, with a backslash as the second byte of a character",
    name: Buffer.from("955c8ea62e747874", "hex"),
    nameEncoding: "shift_jis",
    unpacked: "表示.txt",
  },
  {
    title: "Windows-1252",
    name: Buffer.from("6772fc6e802e747874", "hex"),
    nameEncoding: "windows-1252",
    unpacked: "grün€.txt",
  },
  { title: "UTF-8 without its flag", name: Buffer.from("grün.txt"), unpacked: "grün.txt" },
  { title: "UTF-8 with its flag", name: Buffer.from("grün.txt"), flag: 0x800, unpacked: "grün.txt" },
  {
    title: "a field with the Unicode name",
    name: Buffer.from("d6d0cec4cec4bcfe2e747874", "hex"),
    unicodeName: "中文文件.txt",
    unpacked: "中文文件.txt",
  },
  { title: "backslashes", name: Buffer.from("folder\\sub\\file.txt"), unpacked: "folder/sub/file.txt" },
];

for (const { title, name, nameEncoding = "", unicodeName = "", flag = 0, unpacked } of names) {
  rootTest(`names in a zip are readable: ${title}`, async (t) => {
    const { home, files } = await newGround();
    const path = `${home}/names.zip`;
    execFileSync("python3", ["-c", zipScript, path, name.toString("hex"), unicodeName, String(flag)]);
    await files.extractArchive({ path, target: `${home}/out`, nameEncoding });
    t.is(await readFile(join(home, "out", unpacked), "utf8"), "hello\n");
  });
}

for (const name of ["..\\..\\file.txt", "C:\\x\\file.txt", "\\x\\file.txt"]) {
  rootTest(`a zip with the name ${name} is rejected`, async (t) => {
    const { home, files } = await newGround();
    const path = `${home}/names.zip`;
    execFileSync("python3", ["-c", zipScript, path, Buffer.from(name).toString("hex"), "", "0"]);
    const error = await errorOf(files.extractArchive({ path, target: `${home}/out` }));
    t.like(error, { reason: "archive_refused" });
    t.regex(error.message, /is outside of the archive/);
    t.deepEqual(await readdir(home), ["names.zip"]);
  });
}

rootTest("names in a tar are decoded only on request", async (t) => {
  const { home, files } = await newGround();
  const script = `
import io, tarfile
archive = tarfile.open("${home}/names.tar", "w", format=tarfile.GNU_FORMAT, encoding="gbk")
entry = tarfile.TarInfo("\\u4e2d\\u6587"); entry.size = 1; archive.addfile(entry, io.BytesIO(b"x"))
link = tarfile.TarInfo("link"); link.type = tarfile.LNKTYPE; link.linkname = "\\u4e2d\\u6587"; archive.addfile(link)
archive.close()`;
  execFileSync("python3", ["-c", script]);
  await files.extractArchive({ path: `${home}/names.tar`, target: `${home}/raw` });
  const raw = await readdir(`${home}/raw`, { encoding: "buffer" });
  t.true(raw.some((name) => name.toString("hex") === "d6d0cec4"));
  await files.extractArchive({ path: `${home}/names.tar`, target: `${home}/read`, nameEncoding: "gbk" });
  t.deepEqual((await readdir(`${home}/read`)).toSorted(), ["link", "中文"]);
});

/** Files with holes: at the start, in the middle, at the end, everywhere, and with more parts than one header holds. */
const sparseScript = `
truncate -s 40M middle; printf x | dd of=middle bs=1 seek=20000000 conv=notrunc 2>/dev/null; printf start | dd of=middle conv=notrunc 2>/dev/null
truncate -s 30M start; printf end >> start
truncate -s 30M hollow
for n in $(seq 0 40); do printf part$n | dd of=parts bs=1 seek=$((n * 200000)) conv=notrunc 2>/dev/null; done
printf plain > plain`;
const sparseFiles = ["hollow", "middle", "parts", "plain", "start"];

async function digestOf(path: string): Promise<string> {
  return createHash("sha256")
    .update(await readFile(path))
    .digest("hex");
}

const sparseForms = {
  "the old form of GNU tar": ["--format=gnu"],
  "version 0.0": ["--format=pax", "--sparse-version=0.0"],
  "version 0.1": ["--format=pax", "--sparse-version=0.1"],
  "version 1.0": ["--format=pax", "--sparse-version=1.0"],
};

for (const [form, options] of Object.entries(sparseForms)) {
  for (const compressor of ["", "gzip"]) {
    rootTest(
      `sparse files of a tar archive keep their holes: ${form}, ${compressor || "plain"}`,
      async (t) => {
        const { home, files, as } = await newGround();
        await as(ownerUid, "sh", "-c", `mkdir ${home}/in; cd ${home}/in; ${sparseScript}`);
        const path = `${home}/holes.tar${compressor === "" ? "" : ".gz"}`;
        execFileSync("tar", ["-C", `${home}/in`, "-S", ...options, "-caf", path, ...sparseFiles]);
        t.true((await lstat(path)).size < 3_000_000);
        const { extractedBytes } = await files.extractArchive({ path, target: `${home}/out` });
        t.true(extractedBytes > 100_000_000n);
        for (const name of sparseFiles) {
          t.is(await digestOf(`${home}/out/${name}`), await digestOf(`${home}/in/${name}`), name);
        }
        t.true((await lstat(`${home}/out/middle`)).blocks * 512 < 2_000_000);
        const bounded = { path, target: `${home}/bounded`, maxBytes: 50_000_000n };
        t.like(await errorOf(files.extractArchive(bounded)), { reason: "too_many" });
      },
    );
  }
}

const gnuForms = {
  "an incremental backup": ["--format=gnu", "--incremental"],
  "an incremental backup in the POSIX format": ["--format=pax", "--incremental"],
  "a label": ["--format=gnu", "--label=nightly"],
  "a label in the POSIX format": ["--format=pax", "--label=nightly"],
  "times before 1970": ["--format=gnu", "--mtime=1969-12-30 UTC"],
};

for (const [form, options] of Object.entries(gnuForms)) {
  rootTest(`a tar of GNU tar is unpacked: ${form}`, async (t) => {
    const { home, files, as } = await newGround();
    await as(
      ownerUid,
      "sh",
      "-c",
      `mkdir -p ${home}/in/sub; echo a > ${home}/in/a; echo b > ${home}/in/sub/b`,
    );
    const path = `${home}/a.tar`;
    execFileSync("tar", ["-C", home, ...options, "-cf", path, "in"]);
    await files.extractArchive({ path, target: `${home}/out` });
    t.is(await readFile(`${home}/out/in/a`, "utf8"), "a\n");
    t.is(await readFile(`${home}/out/in/sub/b`, "utf8"), "b\n");
    t.deepEqual((await readdir(`${home}/out/in`)).toSorted(), ["a", "sub"]);
    const listed = execFileSync("tar", ["--utc", "-tvf", path, "in/a"], { encoding: "utf8" });
    if (form.startsWith("times")) {
      t.regex(listed, /1969-12-30 00:00/);
      t.is((await lstat(`${home}/out/in/a`)).mtimeMs, Date.UTC(1969, 11, 30));
    }
  });
}

for (const format of ["tar.gz", "tar.zst", "zip"]) {
  rootTest(`a file with holes survives ${format} with the default limits`, async (t) => {
    const { home, files, as } = await newGround();
    await as(ownerUid, "sh", "-c", `mkdir ${home}/in; cd ${home}/in; ${sparseScript}`);
    const path = `${home}/holes.${format}`;
    await files.createArchive({ paths: [`${home}/in`], target: path });
    await files.extractArchive({ path, target: `${home}/out` });
    for (const name of sparseFiles) {
      t.is(await digestOf(`${home}/out/in/${name}`), await digestOf(`${home}/in/${name}`), name);
    }
    t.true((await lstat(`${home}/out/in/hollow`)).blocks * 512 < 1_000_000);
  });
}

for (const [format, program] of [
  ["tar.xz", "xz"],
  ["tar.bz2", "bzip2"],
] as const) {
  rootTest(`a ${format} is unpacked within the limits, and a damaged one is rejected`, async (t) => {
    const { home, files, as } = await newGround();
    await as(ownerUid, "sh", "-c", `mkdir ${home}/in; seq 2000000 > ${home}/in/numbers`);
    const path = `${home}/a.${format}`;
    execFileSync("tar", ["-C", home, `--use-compress-program=${program} -1`, "-cf", path, "in"]);
    await files.extractArchive({ path, target: `${home}/out` });
    t.is(await digestOf(`${home}/out/in/numbers`), await digestOf(`${home}/in/numbers`));
    const bounded = { path, target: `${home}/bounded`, maxBytes: 1_000_000n };
    t.like(await errorOf(files.extractArchive(bounded)), { reason: "too_many" });
    const bytes = await readFile(path);
    await writeFile(path, bytes.subarray(0, bytes.length / 2));
    const error = await errorOf(files.extractArchive({ path, target: `${home}/damaged` }));
    t.like(error, { reason: "archive_refused" });
    t.regex(
      error.message,
      new RegExp(`cannot be decompressed: ${program}: .*(unexpected|truncated|ends)`, "i"),
    );
    t.deepEqual((await readdir(home)).sort(), [`a.${format}`, "in", "out"]);
  });
}

rootTest("a tar.xz that needs more than 256 MiB of memory is rejected", async (t) => {
  const { home, files, as } = await newGround();
  await as(ownerUid, "sh", "-c", `mkdir ${home}/in; seq 1000 > ${home}/in/numbers`);
  const path = `${home}/a.tar.xz`;
  execFileSync("tar", ["-C", home, "--use-compress-program=xz -1", "-cf", path, "in"]);
  const bytes = await readFile(path);
  // The header of the first block (xz file format 1.1, section 3.1): size, flags, LZMA2, and its dictionary: 1 GiB.
  const header = bytes.subarray(12, 12 + (bytes[12]! + 1) * 4);
  t.deepEqual([...header.subarray(2, 4)], [0x21, 1]);
  header[4] = 36;
  header.writeUInt32LE(crc32(header.subarray(0, -4)), header.length - 4);
  await writeFile(path, bytes);
  const error = await errorOf(files.extractArchive({ path, target: `${home}/out` }));
  t.is(error.reason, "archive_refused");
  t.regex(error.message, /cannot be decompressed: xz: .*memory usage limit/i);
  t.deepEqual((await readdir(home)).sort(), ["a.tar.xz", "in"]);
});

rootTest("without xz on the host, the error for a tar.xz says what to install", async (t) => {
  await using daemon = await startDaemon({ config: '[apps]\npath = ["/nonexistent"]' });
  const path = join(daemon.dir, "a.tar.xz");
  await writeFile(path, "");
  const files = daemon.client(FileService);
  const error = await errorOf(files.extractArchive({ path, target: `${daemon.dir}/out` }));
  t.regex(error.message, /cannot be decompressed: program "xz" is not installed; install xz-utils or xz$/);
});

for (const ending of ["tar.lz", "7z"]) {
  rootTest(`a file with the ending ${ending} is rejected with the list of supported formats`, async (t) => {
    const { home, files } = await newGround();
    await mkdir(`${home}/in`);
    await writeFile(`${home}/a.${ending}`, "");
    const error = await errorOf(files.extractArchive({ path: `${home}/a.${ending}`, target: `${home}/out` }));
    t.like(error, { reason: "invalid_request" });
    t.is(
      error.message,
      `format: ${ending} is not supported; convert the archive to tar, tar.gz, tar.zst or zip`,
    );
  });
}
