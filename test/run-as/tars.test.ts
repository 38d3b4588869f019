/** Tars: random trees compared by rsync, those of the engine's volumes, and entries that get another owner. */
import { execFileSync } from "node:child_process";
import { createWriteStream } from "node:fs";
import {
  chmod,
  lchown,
  link,
  mkdir,
  mkdtemp,
  open,
  readFile,
  rm,
  symlink,
  utimes,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough, Readable, type Readable as Bytes } from "node:stream";
import { text } from "node:stream/consumers";
import { finished } from "node:stream/promises";
import test from "ava";
import fc from "fast-check";
import { tarOwnedBy } from "../../src/lib/tar-owner.ts";
import { excluder } from "../../src/run-as/helper/archive/exclude-patterns.mjs";
import { headers, padding } from "../../src/run-as/helper/host/archive/tar-bytes.mjs";
import type { WrittenArchive } from "../../src/run-as/user-helper-types.ts";
import { VolumeReceiver } from "../../src/run-as/volume-stream.ts";
import { keepInMemory } from "../support/in-memory.ts";
import { type World, assertFails, createWorld, isRoot, someUid } from "./support/world.ts";

// Tars of the engine's volumes, into an archive and out of it. Containers wrote their content, so it is not trusted.

interface Entry {
  path: string;
  type?: string;
  target?: string;
  content?: string;
  mode?: number;
  uid?: number;
  exactMtime?: string;
}

const end = Buffer.alloc(1024);

function tarOf(entries: readonly Entry[]): Buffer {
  return Buffer.concat([
    ...entries.flatMap(
      ({ path, type = "0", target = "", content = "", mode = 0o644, uid = someUid, ...time }) => {
        const bytes = Buffer.from(content);
        const numbers = { size: bytes.length, mode, uid, gid: uid, mtime: 1_000_000_000 };
        return [headers({ path, type, target, ...numbers, ...time }), bytes, padding(bytes.length)];
      },
    ),
    end,
  ]);
}

const root: Entry = { path: "volume/", type: "5", mode: 0o755 };

async function archived({ app, user }: World, tar: () => AsyncIterable<Buffer>, excludes: string[] = []) {
  const output = new PassThrough();
  const pieces: Buffer[] = [];
  output.on("data", (piece: Buffer) => pieces.push(piece));
  const volumes = [{ tree: "engine/state", excludes, tar }];
  const archive = await user.writeArchive(app, ["data"], output, { volumes });
  return { archive, bytes: Buffer.concat(pieces) };
}

const asStream = (tar: Buffer) => () => Readable.from([tar]) as AsyncIterable<Buffer>;

async function restored({ app, user }: World, archive: WrittenArchive, bytes: Buffer): Promise<string> {
  const { framesBytes, index, table } = archive;
  const indexAt = framesBytes + 8;
  const tableAt = indexAt + index.bytes + 8;
  const input = Readable.from([
    bytes.subarray(indexAt, indexAt + index.bytes),
    bytes.subarray(tableAt, tableAt + table.bytes),
    bytes.subarray(0, framesBytes),
  ]);
  let listed = "";
  await user.readArchive({ parts: archive, uid: someUid, trees: ["data", "engine/state"] }, input, {
    target: {
      root: app,
      into: ["data.restored", null],
      takeVolume: async (tree, tar) => {
        const whole = Buffer.concat(await Array.fromAsync(tar as AsyncIterable<Buffer>));
        listed += `${tree}\n${execFileSync("tar", ["tv", "--numeric-owner", "--full-time"], { input: whole, encoding: "utf8", env: { ...process.env, TZ: "UTC" } })}`;
      },
    },
  });
  return listed;
}

test("a volume is restored like its tar: names, owners, modes, times, links", async (t) => {
  await using world = await createWorld();
  await world.user.makeDirs(world.app, ["data"]);
  const long = `volume/${"d".repeat(120)}`;
  const tar = tarOf([
    { ...root, mode: 0o1777, uid: 4_000_000_000 },
    { path: "volume/file", content: "x".repeat(5_000_000), mode: 0o600, uid: 999 },
    { path: "volume/hard", type: "1", target: "volume/file", uid: 999 },
    { path: "volume/soft", type: "2", target: "/etc/passwd" },
    { path: "volume/pipe", type: "6" },
    { path: `${long}/`, type: "5", mode: 0o700 },
    { path: `${long}/é`, content: "deep" },
    { path: "volume/empty" },
    { path: "volume/exact", exactMtime: "1000000000.123456789" },
    { path: "volume/old", exactMtime: "-1.5" },
  ]);
  const { archive, bytes } = await archived(world, asStream(tar));
  t.deepEqual(archive.warnings, []);
  const expected = execFileSync("tar", ["tv", "--numeric-owner", "--full-time"], {
    ...{ input: tar, encoding: "utf8" },
    env: { ...process.env, TZ: "UTC" },
  });
  t.is(await restored(world, archive, bytes), `engine/state\n${expected}`);
});

test("entries of a volume that a backup cannot contain are left out with a warning", async (t) => {
  await using world = await createWorld();
  const tar = tarOf([
    root,
    { path: "volume/device", type: "3" },
    { path: "volume/cache/", type: "5" },
    { path: "volume/cache/big", content: "x" },
    { path: "volume/again", type: "1", target: "volume/cache/big" },
    { path: "volume/su", content: "x", mode: 0o4755, uid: 1 },
  ]);
  const { archive, bytes } = await archived(world, asStream(tar), ["cache"]);
  t.deepEqual(archive.warnings, [
    "engine/state/device is a device and was left out",
    "engine/state/again is a hard link to an entry that was left out, and was left out",
    ...(isRoot ? ["engine/state/su was stored without its setuid or setgid bit"] : []),
  ]);
  const listed = await restored(world, archive, bytes);
  t.regex(listed, /-rwxr-xr-x 1\/1 .* volume\/su\n/);
  t.notRegex(listed, /cache|again|device/);
});

for (const [what, tar] of [
  ["a name beside the volume", tarOf([root, { path: "else", content: "x" }])],
  ["an absolute name", tarOf([root, { path: "/etc/passwd", content: "x" }])],
  ["a name with ..", tarOf([root, { path: "volume/../../x", content: "x" }])],
  ["a file in no directory", tarOf([root, { path: "volume/none/x", content: "x" }])],
  [
    "a file beneath a link",
    tarOf([root, { path: "volume/l", type: "2", target: "/" }, { path: "volume/l/x" }]),
  ],
  ["a hard link out of it", tarOf([root, { path: "volume/x", type: "1", target: "etc/passwd" }])],
  ["a name twice", tarOf([root, { path: "volume/x" }, { path: "volume/x" }])],
  ["a volume that is a file", tarOf([{ path: "volume", content: "x" }])],
  ["no end", tarOf([root, { path: "volume/x", content: "x" }]).subarray(0, -1024)],
  ["an end within a file", tarOf([root, { path: "volume/x", content: "x".repeat(2000) }]).subarray(0, 1800)],
  ["noise", Buffer.alloc(100_000, "noise")],
  ["an endless header", Buffer.concat([tarOf([root]).subarray(0, 512), hugeHeader()])],
] as const) {
  test(`a volume's tar with ${what} is rejected`, async (t) => {
    await using world = await createWorld();
    await assertFails(t, archived(world, asStream(tar)), "data_loss");
  });
}

/** An extended header that declares a gigabyte. */
function hugeHeader(): Buffer {
  const numbers = { size: 2 ** 30, mode: 0o644, uid: 0, gid: 0, mtime: 0 };
  return Buffer.concat([
    headers({ path: "x", type: "x", target: "", ...numbers }),
    Buffer.alloc(1 << 20, "x"),
  ]);
}

test("an error of the engine within a volume fails the backup with the engine's message", async (t) => {
  await using world = await createWorld();
  async function* broken(): AsyncGenerator<Buffer> {
    yield tarOf([root]).subarray(0, 512);
    throw new Error("the engine went away");
  }
  await t.throwsAsync(archived(world, broken), { message: "the engine went away" });
});

/** A piece as a helper sends it. */
function piece(tree: number, bytes: Buffer): Buffer {
  const prefix = Buffer.alloc(8);
  prefix.writeUInt32LE(bytes.length, 0);
  prefix.writeUInt32LE(tree, 4);
  return Buffer.concat([prefix, bytes]);
}

for (const [what, pieces] of [
  ["a device", [piece(0, tarOf([root, { path: "volume/d", type: "4" }])), piece(0, Buffer.alloc(0))]],
  [
    "a file that runs as root",
    [piece(0, tarOf([root, { path: "volume/su", mode: 0o4755, uid: 0 }])), piece(0, Buffer.alloc(0))],
  ],
  ["a name out of it", [piece(0, tarOf([root, { path: "volume/../x" }]))]],
  ["another name", [piece(0, tarOf([{ path: "etc/passwd" }]))]],
  ["noise", [piece(0, Buffer.alloc(2048, "x"))]],
  ["no end", [piece(0, tarOf([root]).subarray(0, 512)), piece(0, Buffer.alloc(0))]],
  ["an unknown tree", [piece(7, tarOf([root]))]],
  ["another tree in the middle", [piece(0, tarOf([root]).subarray(0, 512)), piece(1, tarOf([root]))]],
] as const) {
  test(`the daemon rejects ${what} from a manipulated helper`, async (t) => {
    let taken = 0;
    const receiver = new VolumeReceiver(["engine/a", "engine/b"], someUid, async (_tree, tar: Bytes) => {
      await text(tar);
      taken++;
    });
    const push = async (): Promise<void> => {
      for (const bytes of pieces)
        for (const byte of [bytes.subarray(0, 5), bytes.subarray(5)]) await receiver.push(byte);
    };
    const error = await t.throwsAsync(push(), { message: /a volume of the archive/ });
    await receiver.abort(error);
    t.is(taken, 0);
  });
}

for (const [pattern, path, expected] of [
  ["cache", "cache", true],
  ["cache", "cache/a/b", true],
  ["cache", "cached", false],
  ["cache", "a/cache", false],
  ["*.tmp", "a/b.tmp", true],
  ["tmp-?", "tmp-1", true],
  ["tmp-?", "tmp-12", false],
  ["log[0-9]", "log7/x", true],
  ["log[!0-9]", "log7", false],
  ["a.b", "axb", false],
  ["[", "[", true],
] as const) {
  test(`the pattern ${pattern} ${expected ? "excludes" : "does not exclude"} ${path}, as in tar`, (t) => {
    t.is(excluder([pattern])(path), expected);
  });
}

// Random trees are restored as they were, as compared by rsync.

keepInMemory();

type Node =
  | {
      kind: "file";
      name: Buffer;
      content: Uint8Array;
      mode: number;
      mtimeSecs: number;
      attribute: string | undefined;
    }
  | { kind: "sparse"; name: Buffer; holeBytes: number; content: Uint8Array }
  | { kind: "symlink"; name: Buffer; target: Buffer }
  | { kind: "hardlink"; name: Buffer }
  | {
      kind: "directory";
      name: Buffer;
      mode: number;
      attribute: string | undefined;
      children: readonly Node[];
    };

/** All bytes that are allowed in names. */
const bytesOfName = fc
  .uint8Array({ minLength: 1, maxLength: 40 })
  .map((bytes) => Buffer.from(bytes.map((byte) => (byte === 0 || byte === 47 ? 10 : byte))));
const name = fc
  .oneof(
    { weight: 3, arbitrary: bytesOfName },
    {
      weight: 3,
      arbitrary: fc
        .string({ minLength: 1, maxLength: 20 })
        .map((text) => Buffer.from(text.replaceAll(/[\0/]/g, "_"))),
    },
    { weight: 1, arbitrary: fc.constant(Buffer.alloc(255, "n")) },
    {
      weight: 1,
      arbitrary: fc.constantFrom(
        Buffer.from("-rf"),
        Buffer.from("a\\b"),
        Buffer.from("*"),
        Buffer.from("GNUSparseFile.0"),
      ),
    },
  )
  .filter((bytes) => ![".", ".."].includes(bytes.toString("latin1")));

const content = fc.uint8Array({ maxLength: 2_000 });
const leaf: fc.Arbitrary<Node> = fc.oneof(
  fc.record({
    kind: fc.constant("file" as const),
    ...{ name, content },
    mode: fc.integer({ min: 0, max: 0o7777 }).map((mode) => mode | 0o400),
    mtimeSecs: fc.integer({ min: 0, max: 4_000_000_000 }),
    attribute: fc.option(fc.string({ minLength: 1, maxLength: 30 }), { nil: undefined }),
  }),
  fc.record({
    kind: fc.constant("sparse" as const),
    ...{ name, content },
    holeBytes: fc.integer({ min: 1, max: 64 << 20 }),
  }),
  fc.record({
    kind: fc.constant("symlink" as const),
    name,
    target: fc.oneof(name, fc.constantFrom(Buffer.from("/etc/passwd"), Buffer.from("../../.."))),
  }),
  fc.record({ kind: fc.constant("hardlink" as const), name }),
);
const { tree } = fc.letrec<{ tree: readonly Node[]; node: Node }>((tie) => ({
  tree: fc.uniqueArray(tie("node"), { maxLength: 6, selector: (node) => node.name.toString("latin1") }),
  node: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    leaf,
    fc.record({
      kind: fc.constant("directory" as const),
      name,
      mode: fc.integer({ min: 0, max: 0o3777 }).map((mode) => mode | 0o500),
      attribute: fc.option(fc.constant("of a directory"), { nil: undefined }),
      children: tie("tree"),
    }) as fc.Arbitrary<Node>,
  ),
}));

async function plant(dir: Buffer, nodes: readonly Node[], files: Buffer[], gid: number): Promise<void> {
  for (const node of nodes) {
    const path = Buffer.concat([dir, Buffer.from("/"), node.name]);
    switch (node.kind) {
      case "file":
        await writeFile(path, node.content);
        await lchown(path, someUid, gid);
        await setAttribute(path, node.attribute);
        await chmod(path, node.mode);
        await utimes(path, node.mtimeSecs, node.mtimeSecs);
        files.push(path);
        break;
      case "sparse": {
        await using file = await open(path, "w");
        await file.write(node.content, 0, node.content.length, node.holeBytes);
        await file.truncate(node.holeBytes * 2);
        await lchown(path, someUid, gid);
        break;
      }
      case "symlink":
        await symlink(node.target, path);
        await lchown(path, someUid, gid);
        break;
      case "hardlink": {
        const target = files.at(-1);
        if (target !== undefined) await link(target, path);
        break;
      }
      case "directory":
        await mkdir(path);
        await plant(path, node.children, files, gid);
        await setAttribute(path, node.attribute);
        await lchown(path, someUid, gid);
        await chmod(path, node.mode);
    }
  }
}

async function setAttribute(path: Buffer, value: string | undefined): Promise<void> {
  if (value === undefined) return;
  // By descriptor: some names cannot be passed to the program.
  await using file = await open(path, "r");
  const bytes = `0x${Buffer.from(value).toString("hex")}`;
  execFileSync("setfattr", ["-n", "user.note", "-v", bytes, "/proc/self/fd/3"], {
    stdio: ["ignore", "ignore", "inherit", file.fd],
  });
}

async function roundTrip({ user, dir, app }: World, nodes: readonly Node[]): Promise<string> {
  const { gid } = user.user;
  const root = await mkdtemp(join(app, "case-"));
  try {
    await lchown(root, someUid, gid);
    await user.makeDirs(root, ["data", "data.restored"]);
    await plant(Buffer.from(join(root, "data")), nodes, [], gid);
    const file = join(dir, "archive");
    const output = createWriteStream(file);
    const archive = await user.writeArchive(root, ["data"], output, { exclude: [] });
    output.end();
    await finished(output);
    const described = { parts: archive, uid: someUid, trees: ["data"] };
    const input = inputOf(await readFile(file), archive);
    await user.readArchive(described, input, { target: { root, into: ["data.restored"] } });
    return execFileSync(
      "rsync",
      ["-niaHAX", "--checksum", "--delete", "--omit-dir-times", "data/", "data.restored/"],
      {
        cwd: root,
        encoding: "latin1",
      },
    );
  } finally {
    await rm(root, { recursive: true });
  }
}

function inputOf(bytes: Buffer, { framesBytes, index, table }: WrittenArchive): Readable {
  const tableAt = framesBytes + 16 + index.bytes;
  return Readable.from(
    [
      bytes.subarray(framesBytes + 8, framesBytes + 8 + index.bytes),
      bytes.subarray(tableAt, tableAt + table.bytes),
      bytes.subarray(0, framesBytes),
    ].filter(({ length }) => length > 0),
  );
}

const numRuns = process.env["SVC_LONG"] === "1" ? 1_000 : 30;

test("any tree is restored as it was", async (t) => {
  await using world = await createWorld();
  await fc.assert(
    fc.asyncProperty(tree, async (nodes) => {
      const differences = await roundTrip(world, nodes);
      if (differences !== "") throw new Error(`rsync finds: ${differences}`);
    }),
    { numRuns, includeErrorInReport: true },
  );
  t.pass();
});

test("read-only entries are restored with their attributes and modes", async (t) => {
  await using world = await createWorld();
  const file = { kind: "file", content: Buffer.from("x"), mtimeSecs: 1, attribute: "kept" } as const;
  const links = [
    { ...file, name: Buffer.from("a-file"), mode: 0o400 },
    { kind: "hardlink", name: Buffer.from("a-link") },
    { ...file, name: Buffer.from("set-uid"), mode: 0o4555 },
    { ...file, name: Buffer.alloc(255, "n"), mode: 0o444, content: Buffer.alloc(5 << 20, "large") },
  ] as const;
  const inside = { kind: "directory", mode: 0o555, attribute: "kept", children: links } as const;
  t.is(await roundTrip(world, [{ ...inside, name: Buffer.from("inside") }, ...links]), "");
});

// Archives whose entries get another owner, made and listed by tar(1).

async function* inParts(bytes: Buffer, size: number): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += size) yield await Promise.resolve(bytes.subarray(at, at + size));
}

async function archiveOf(t: { teardown: (work: () => Promise<void>) => void }): Promise<Buffer> {
  const directory = await mkdtemp(join(tmpdir(), "svc-tar-"));
  t.teardown(() => rm(directory, { recursive: true }));
  await mkdir(join(directory, "vélo/sub"), { recursive: true });
  await writeFile(join(directory, `vélo/${"long".repeat(40)}`), "x".repeat(1_500), { mode: 0o644 });
  await writeFile(join(directory, "vélo/sub/empty"), "");
  execFileSync("chmod", ["4755", join(directory, "vélo/sub/empty")]);
  await symlink("empty", join(directory, "vélo/sub/link"));
  return execFileSync("tar", ["-C", directory, "--format=pax", "--owner=7", "--group=8", "-c", "vélo"]);
}

for (const owner of [
  { uid: 1000, gid: 1001 },
  { uid: 3_000_000_000, gid: 12 },
]) {
  test(`every entry belongs to ${owner.uid}, the directory itself last`, async (t) => {
    const archive = await archiveOf(t);
    for (const size of [1, 700, archive.length]) {
      const owned = await Array.fromAsync(tarOwnedBy(inParts(archive, size), owner));
      const input = Buffer.concat(owned);
      const lines = execFileSync("tar", ["--numeric-owner", "-tvf", "-"], { input })
        .toString()
        .trim()
        .split("\n");
      t.is(lines.length, 5);
      for (const line of lines) t.regex(line, new RegExp(`^[^s]+ ${owner.uid}/${owner.gid} `));
      t.regex(lines.at(-1)!, /^d.* v.*lo\/$/);
    }
  });
}

test("a directory that already belongs to the owner needs no change, and a truncated archive is an error", async (t) => {
  const archive = await archiveOf(t);
  t.deepEqual(await Array.fromAsync(tarOwnedBy(inParts(archive, 512), { uid: 7, gid: 8 })), []);
  const half = inParts(archive.subarray(0, 2_048), 512);
  await t.throwsAsync(Array.fromAsync(tarOwnedBy(half, { uid: 1, gid: 1 })), { message: /ended early/ });
});
