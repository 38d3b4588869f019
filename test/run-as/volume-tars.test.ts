/** Tars of the engine's volumes, into an archive and out of it. Containers wrote their content, so it is not trusted. */
import { execFileSync } from "node:child_process";
import { text } from "node:stream/consumers";
import { PassThrough, Readable, type Readable as Bytes } from "node:stream";
import test from "ava";
import { excluder } from "../../src/run-as/helper/archive/exclude-patterns.mjs";
import { headers, padding } from "../../src/run-as/helper/host/archive/tar-bytes.mjs";
import { VolumeReceiver } from "../../src/run-as/volume-stream.ts";
import type { WrittenArchive } from "../../src/run-as/user-helper-types.ts";
import { assertFails, createWorld, isRoot, someUid, type World } from "./support/world.ts";

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
