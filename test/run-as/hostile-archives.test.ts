/**
 * Malicious archives. Their checksums are right, and index, table and frames agree, except in the cases about exactly
 * that. So only the checks of the entries protect the host.
 */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { closeSync, openSync } from "node:fs";
import { lstat, mkdir, mkdtempDisposable, readdir, readFile, rename, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import test from "ava";
import { IndexWriter } from "../../src/run-as/helper/archive/entry-index.mjs";
import { FrameWriter, sha256 } from "../../src/run-as/helper/archive/frames.mjs";
import { type TarEntry, TarReader } from "../../src/run-as/helper/archive/tar-reader.mjs";
import type { WrittenArchive } from "../../src/run-as/user-helper-types.ts";
import { assertFails, createWorld, someUid, type World } from "./support/world.ts";
import { DirectoryStack } from "../../src/run-as/helper/directory-stack.mjs";

interface HostileEntry {
  path: string;
  /** Type flag of tar: `0` file, `1` hard link, `2` symlink, `3` device, `5` directory. */
  type?: string;
  target?: string;
  content?: string;
  mode?: number;
  /** Most tars end the mode's digits with a NUL. */
  hasLongMode?: boolean;
  uid?: number;
  /** Records of an extended header. */
  extended?: Readonly<Record<string, string>>;
}

const directory = (path: string): HostileEntry => ({ path, type: "5", mode: 0o755 });
const trees = [directory("repo"), directory("data")];

function block({
  path,
  type = "0",
  target = "",
  content = "",
  mode = 0o644,
  hasLongMode = false,
  uid = someUid,
}: HostileEntry): Buffer {
  const header = Buffer.alloc(512);
  header.write(path, 0, 100, "latin1");
  const octal = (value: number, at: number, length: number): void => {
    header.write(`${value.toString(8).padStart(length - 1, "0")}\0`, at, "latin1");
  };
  octal(mode, 100, hasLongMode ? 9 : 8);
  octal(uid, 108, 8);
  octal(uid, 116, 8);
  octal(Buffer.byteLength(content), 124, 12);
  octal(1_000_000_000, 136, 12);
  header.fill(" ", 148, 156);
  header.write(type, 156, "latin1");
  header.write(target, 157, 100, "latin1");
  header.write("ustar\u000000", 257, "latin1");
  octal(0, 329, 8);
  octal(0, 337, 8);
  octal(
    header.reduce((sum, byte) => sum + byte, 0),
    148,
    7,
  );
  header[155] = 0x20;
  return header;
}

function padded(content: string): Buffer {
  const bytes = Buffer.from(content);
  return Buffer.concat([bytes, Buffer.alloc((512 - (bytes.length % 512)) % 512)]);
}

function record(key: string, value: string): string {
  const rest = ` ${key}=${value}\n`;
  let length = rest.length;
  while (`${length}${rest}`.length !== length) length++;
  return `${length}${rest}`;
}

function tarOf(entries: readonly HostileEntry[]): Buffer {
  const pieces = entries.flatMap((entry) => {
    const { content = "", extended } = entry;
    const records =
      extended &&
      Object.entries(extended)
        .map(([key, value]) => record(key, value))
        .join("");
    const before =
      records === undefined ? [] : [block({ path: "x", type: "x", content: records }), padded(records)];
    return [...before, block(entry), padded(content)];
  });
  return Buffer.concat(pieces);
}

/** @param lie changes an entry of the index; undefined omits it */
async function archiveOf(
  entries: readonly HostileEntry[],
  lie: (entry: TarEntry & { sha256: string }) => (TarEntry & { sha256: string }) | undefined = (entry) =>
    entry,
) {
  const tar = tarOf(entries);
  const sent: Buffer[] = [];
  const frames = new FrameWriter((bytes) => {
    sent.push(Buffer.from(bytes));
    return Promise.resolve();
  });
  const index = new IndexWriter();
  const counts = { entries: 0, contentBytes: 0 };
  let hash = createHash("sha256");
  let current: TarEntry | undefined;
  let at = 0;
  const reader = new TarReader({
    entry: (entry, headers) => {
      current = { ...entry, at, dataAt: at + headers.length };
      hash = createHash("sha256");
      at += headers.length;
    },
    content: (piece) => {
      hash.update(piece);
      at += piece.length;
    },
    padding: (piece) => void (at += piece.length),
    entryEnd: () => {
      if (current === undefined) return;
      const said = lie({ ...current, sha256: current.type === "file" ? hash.digest("hex") : "" });
      if (said === undefined) return;
      counts.entries++;
      counts.contentBytes += said.size;
      index.add(said);
    },
  });
  reader.push(tar);
  frames.write(tar);
  frames.write(Buffer.alloc(1024));
  await frames.end();
  const [indexBytes, table] = [await index.end(), frames.table()];
  const archive: WrittenArchive = {
    framesBytes: frames.storedBytes,
    tarBytes: frames.rawBytes,
    ...counts,
    index: { bytes: indexBytes.length, sha256: sha256(indexBytes).toString("hex") },
    table: { bytes: table.length, sha256: sha256(table).toString("hex") },
    warnings: [],
  };
  return { archive, input: () => Readable.from([indexBytes, table, ...sent]) };
}

async function layOut(
  { app, user }: World,
  { archive, input }: Awaited<ReturnType<typeof archiveOf>>,
  paths: readonly string[] = [],
) {
  const described = { parts: archive, uid: someUid, trees: ["repo", "data"] };
  return user.readArchive(described, input(), {
    target: { root: app, into: ["repo.restored", "data.restored"] },
    ...(paths.length > 0 && { paths }),
  });
}

async function prepare(world: World): Promise<string> {
  const outside = join(world.dir, "outside");
  // Writable for everybody, so that only our checks protect it.
  await mkdir(outside, { mode: 0o777 });
  await writeFile(join(outside, "canary"), "alive", { mode: 0o666 });
  await world.user.makeDirs(world.app, ["repo.restored", "data.restored", "data.restored-evil"]);
  return outside;
}

const file = (path: string, more: Partial<HostileEntry> = {}): HostileEntry => ({
  path,
  content: "evil",
  ...more,
});

const corpus: [string, (outside: string) => HostileEntry[]][] = [
  ["an absolute path", (outside) => [...trees, file(`${outside}/canary`)]],
  [
    "an absolute path of a long name",
    (outside) => [...trees, file("data/x", { extended: { path: `${outside}/canary` } })],
  ],
  ["..", () => [...trees, file("data/../../outside/canary")]],
  // As single entries, these would also lie in no directory of the archive.
  [
    ".. that is a directory of it",
    () => [
      ...trees,
      directory("data/.."),
      directory("data/../.."),
      directory("data/../../outside"),
      file("data/../../outside/canary"),
    ],
  ],
  ["a dot that is a directory of it", () => [...trees, directory("data/."), file("data/./x")]],
  [
    ".. in a long name",
    () => [...trees, file("data/x", { extended: { path: "data/../../outside/canary" } })],
  ],
  ["a dot in between", () => [...trees, file("data/./x")]],
  ["two slashes", () => [...trees, file("data//x")]],
  ["another directory beside the trees", () => [...trees, file("data-evil")]],
  [
    "a path that starts like a tree",
    () => [...trees, directory("data.restored-evil"), file("data.restored-evil/x")],
  ],
  [
    "a tree that is a link",
    (outside) => [trees[0] ?? directory(""), { path: "data", type: "2", target: outside }],
  ],
  [
    "a file through a symlink",
    (outside) => [...trees, { path: "data/l", type: "2", target: outside }, file("data/l/canary")],
  ],
  [
    "a file through a chain of symlinks",
    (outside) => [
      ...trees,
      { path: "data/a", type: "2", target: "b" },
      { path: "data/b", type: "2", target: outside },
      file("data/a/canary"),
    ],
  ],
  [
    "a directory that becomes a symlink",
    (outside) => [
      ...trees,
      directory("data/d"),
      { path: "data/d", type: "2", target: outside },
      file("data/d/canary"),
    ],
  ],
  [
    "a hard link out of it",
    (outside) => [...trees, { path: "data/h", type: "1", target: `${outside}/canary` }],
  ],
  ["a hard link up", () => [...trees, { path: "data/h", type: "1", target: "data/../../outside/canary" }]],
  [
    "a hard link into another tree",
    () => [...trees, file("repo/f"), { path: "data/h", type: "1", target: "repo/f" }],
  ],
  [
    "a hard link through a symlink",
    (outside) => [
      ...trees,
      { path: "data/l", type: "2", target: outside },
      { path: "data/h", type: "1", target: "data/l/canary" },
    ],
  ],
  [
    "a hard link to a later entry",
    () => [...trees, { path: "data/h", type: "1", target: "data/f" }, file("data/f")],
  ],
  ["a file that is there twice", () => [...trees, file("data/f"), file("data/f")]],
  ["a device", () => [...trees, { path: "data/null", type: "3", mode: 0o666 }]],
  ["a file that runs as root", () => [...trees, file("data/su", { mode: 0o4755, uid: 0 })]],
  ["a file of root's group", () => [...trees, file("data/sg", { mode: 0o2755, uid: 0 })]],
];

for (const [what, entriesOf] of corpus) {
  test(`rejected, with nothing changed outside: ${what}`, async (t) => {
    await using world = await createWorld();
    const outside = await prepare(world);
    const made = await archiveOf(entriesOf(outside));
    await assertFails(t, layOut(world, made), "data_loss");
    await assertFails(
      t,
      world.user.readArchive({ parts: made.archive, uid: someUid, trees: ["repo", "data"] }, made.input()),
      "data_loss",
    );
    t.is(await readFile(join(outside, "canary"), "utf8"), "alive");
    t.deepEqual(await readdir(outside), ["canary"]);
    t.deepEqual(await readdir(join(world.app, "data.restored-evil")), []);
    const laid = await readdir(join(world.app, "data.restored"), { recursive: true, withFileTypes: true });
    t.false(laid.some((entry) => entry.isCharacterDevice()));
  });
}

const lies: [
  string,
  (entry: TarEntry & { sha256: string }) => (TarEntry & { sha256: string }) | undefined,
][] = [
  ["another path", (entry) => (entry.path === "data/f" ? { ...entry, path: "data/g" } : entry)],
  ["another type", (entry) => (entry.path === "data/l" ? { ...entry, type: "fifo" } : entry)],
  ["another target", (entry) => (entry.path === "data/l" ? { ...entry, target: "g" } : entry)],
  ["a larger size", (entry) => (entry.path === "data/f" ? { ...entry, size: entry.size + 1 } : entry)],
  ["a smaller size", (entry) => (entry.path === "data/f" ? { ...entry, size: 1, stored: 1 } : entry)],
  [
    "a thousand times the size",
    (entry) => (entry.path === "data/f" ? { ...entry, size: 4_000, stored: 4_000 } : entry),
  ],
  ["another mode", (entry) => (entry.path === "data/f" ? { ...entry, mode: 0o777 } : entry)],
  ["another owner", (entry) => (entry.path === "data/f" ? { ...entry, uid: 0 } : entry)],
  ["another checksum", (entry) => (entry.path === "data/f" ? { ...entry, sha256: "0".repeat(64) } : entry)],
  ["nothing", (entry) => (entry.path === "data/f" ? undefined : entry)],
];

for (const [what, lie] of lies) {
  test(`rejected: an index with ${what}`, async (t) => {
    await using world = await createWorld();
    await prepare(world);
    const entries = [...trees, file("data/f"), { path: "data/l", type: "2", target: "f" }];
    await layOut(world, await archiveOf(entries));
    t.is(
      await readFile(join(world.app, "data.restored/f"), "utf8"),
      "evil",
      "without the lie it is unpacked",
    );
    await assertFails(t, layOut(world, await archiveOf(entries, lie)), "data_loss");
  });
}

for (const type of ["7", "g", "L", "K", "S", "V", "D", "A"]) {
  test(`entries of type ${type} are unknown and rejected`, (t) => {
    const ignore = () => undefined;
    const reader = new TarReader({ entry: ignore, content: ignore, padding: ignore, entryEnd: ignore });
    t.throws(() => reader.push(tarOf([file("data/f", { type })])));
  });
}

test("a link in the archive may point anywhere, and nothing follows it", async (t) => {
  await using world = await createWorld();
  const outside = await prepare(world);
  const entries = [...trees, { path: "data/l", type: "2", target: outside }, file("data/f")];
  await layOut(world, await archiveOf(entries));
  t.true((await lstat(join(world.app, "data.restored/l"))).isSymbolicLink());
  t.deepEqual(await readdir(outside), ["canary"]);
});

test("read-only entries keep their mode and attributes, even if the mode's digits fill their field", async (t) => {
  await using world = await createWorld();
  await prepare(world);
  const extended = { "SCHILY.xattr.user.note": "kept" };
  const entries = [...trees, file("data/f", { mode: 0o444, hasLongMode: true, extended })];
  await layOut(world, await archiveOf(entries));
  const laid = join(world.app, "data.restored/f");
  t.is((await lstat(laid)).mode & 0o7777, 0o444);
  const argv = ["--absolute-names", "--only-values", "--name=user.note", laid];
  t.is(execFileSync("getfattr", argv, { encoding: "utf8" }), "kept");
});

// Limits of the memory that a reader of untrusted tars uses.

const ignore = (): undefined => undefined;

function externalReader(): TarReader {
  const handler = { entry: ignore, content: ignore, padding: ignore, entryEnd: ignore };
  return new TarReader(handler, { external: true });
}

/** An extended header that declares this size. */
function extendedHeader(type: string, size: number): Buffer {
  const block = Buffer.alloc(512);
  block.write("h", 0);
  for (const at of [100, 108, 116]) block.write("0000000\0", at);
  block.write(`${size.toString(8).padStart(11, "0")}\0`, 124);
  block.write("00000000000\0", 136);
  block.write(`        ${type}`, 148);
  block.write("ustar\x0000", 257);
  const sum = block.reduce((all, byte) => all + byte, 0);
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return block;
}

for (const type of ["x", "g", "L", "K"]) {
  test(`an extended header "${type}" that declares a large size is rejected before it is stored`, (t) => {
    const reader = externalReader();
    reader.push(extendedHeader(type, 100));
    t.throws(() => externalReader().push(extendedHeader(type, 8 * 1024 ** 3 - 1)), { message: /too large/ });
  });
}

test("any number of extended headers before an entry uses no memory", (t) => {
  const reader = externalReader();
  const headers = Buffer.concat(Array.from({ length: 1000 }, () => extendedHeader("x", 0)));
  const before = process.memoryUsage().arrayBuffers;
  for (let turn = 0; turn < 200; turn++) reader.push(headers);
  const grownBytes = process.memoryUsage().arrayBuffers - before;
  // All headers together have 100 MB.
  t.true(grownBytes < 20e6, `${grownBytes} bytes`);
});

// The path into a tree and back up: never to a directory other than the original one.

/** More levels than keep their descriptor. */
const levels = 80;

test("a walk does not return to the new parent of a directory that was moved", async (t) => {
  await using place = await mkdtempDisposable(join(tmpdir(), "svc-trail-"));
  const names = Array.from({ length: levels }, (_, index) => `d${index}`);
  await mkdir(join(place.path, ...names), { recursive: true });
  await mkdir(join(place.path, "elsewhere"));
  const start = openSync(place.path, "r");
  const walk = (): DirectoryStack => {
    const stack = new DirectoryStack(start);
    for (const name of names) stack.enter(name);
    return stack;
  };
  const back = (stack: DirectoryStack): void => {
    for (const _name of names) stack.leave();
  };
  try {
    t.notThrows(() => back(walk()));
    const stack = walk();
    await rename(join(place.path, ...names.slice(0, 10)), join(place.path, "elsewhere/d9"));
    t.throws(() => back(stack), { message: /was moved while it was read/ });
    stack[Symbol.dispose]();
  } finally {
    closeSync(start);
  }
});
