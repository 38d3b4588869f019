/** Random trees are restored as they were, as compared by rsync. */
import { execFileSync } from "node:child_process";
import { createWriteStream } from "node:fs";
import {
  chmod,
  link,
  lchown,
  mkdir,
  mkdtemp,
  open,
  readFile,
  rm,
  symlink,
  utimes,
  writeFile,
} from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { finished } from "node:stream/promises";
import test from "ava";
import fc from "fast-check";
import type { WrittenArchive } from "../../src/run-as/user-helper-types.ts";
import { keepInMemory } from "../support/in-memory.ts";
import { createWorld, someUid, type World } from "./support/world.ts";

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
