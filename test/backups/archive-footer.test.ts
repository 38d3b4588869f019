/** The end of an archive, which anybody may have written: longer or fuller than any is damaged, and is not parsed (docs/threat-model.md). */
import { hash } from "node:crypto";
import { inspect } from "node:util";
import { zstdCompressSync } from "node:zlib";
import test from "ava";
import { SvcError } from "../../src/errors.ts";
import { encodeFooter, readFooter, type ArchiveFooter } from "../../src/backups/archive-footer.ts";
import type { StoredFile } from "../../src/backups/storages/storage.ts";

const maxBytes = 2 << 20;
const part = { bytes: 0, sha256: "0".repeat(64) };
const footer: ArchiveFooter = {
  ...{ format: 1, svc_version: "1.0.0", created_at: "2026-01-01T00:00:00Z", mode: "live", host: "0123abcd" },
  app: {
    ...{ id: "web", name: "Web", package_id: "web", runtime: "process", version: "1.0.0" },
    ...{ owner_uid: 7, owner: "seven", run_uid: 7, settings: {} },
    origin: { kind: "directory", url: "/x", source: "", branch: "", tag: "", commit: "" },
    accepted: { licenses: [], permissions: [] },
  },
  trees: ["repo"],
  parts: { framesBytes: 0, tarBytes: 0, contentBytes: 0, entries: 0, index: part, table: part },
  warnings: [],
};

function fileOf(bytes: Buffer): StoredFile {
  return {
    sizeBytes: bytes.length,
    read: async function* (start: number, end: number) {
      yield bytes.subarray(start, end);
    },
    [Symbol.asyncDispose]: async () => undefined,
  };
}

/** As {@link encodeFooter} has it, with any text. */
function endWith(text: string, saidBytes = Buffer.byteLength(text)): Buffer {
  const json = zstdCompressSync(text);
  const tail = Buffer.alloc(48);
  hash("sha256", json, "buffer").copy(tail, 0);
  tail.writeUInt32LE(json.length, 32);
  tail.writeUInt32LE(saidBytes, 36);
  tail.write("svcbkup1", 40, "latin1");
  const prefix = Buffer.alloc(8);
  prefix.writeUInt32LE(0x184d2a5a, 0);
  prefix.writeUInt32LE(json.length + tail.length, 4);
  // The prefixes of the index and of the table, which are empty.
  return Buffer.concat([Buffer.alloc(16), prefix, json, tail]);
}

const withWarnings = (warnings: string[]): string => JSON.stringify({ ...footer, warnings });

test("an end within its bounds is read", async (t) => {
  t.deepEqual(
    await readFooter(fileOf(Buffer.concat([Buffer.alloc(16), await encodeFooter(footer)]))),
    footer,
  );
  const long = ["x".repeat(maxBytes - 4096)];
  t.deepEqual((await readFooter(fileOf(endWith(withWarnings(long))))).warnings, long);
});

for (const [what, bytes] of Object.entries({
  "longer than any": () => endWith(withWarnings(["x".repeat(maxBytes)])),
  "longer than it says": () => endWith(withWarnings(["x".repeat(1 << 20)]), 1_000),
  "fuller than any": () => endWith(withWarnings(Array<string>(25_000).fill(""))),
})) {
  test(`an end that is ${what} is damaged`, async (t) => {
    const error = await t.throwsAsync(readFooter(fileOf(bytes())));
    t.like(error, { reason: "archive_damaged", message: "the archive has a damaged end" });
  });
}

type Tree = Record<string, unknown>;

const damagedEnd = "has a damaged end";
const unknownFormat = "is of a format that this version of svc does not know";
const foreignTrees = "has trees that are none of an app's";
const long = "x".repeat(4097);

for (const [path, value, why] of [
  ["format", 3, unknownFormat],
  ["format", 2, unknownFormat],
  ["since", "another", unknownFormat],
  ...["svc_version", "created_at", "mode", "host"].map((key) => [key, "two\nlines", damagedEnd] as const),
  ["host", undefined, damagedEnd],
  ["host", "x".repeat(257), damagedEnd],
  ...["id", "name", "package_id", "runtime", "version", "owner"].map(
    (key) => [`app.${key}`, "two\nlines", damagedEnd] as const,
  ),
  ["app", [], damagedEnd],
  ["app.owner_uid", 2 ** 32 - 1, damagedEnd],
  ["app.run_uid", 2 ** 32 - 1, damagedEnd],
  ["app.run_uid", 8, "has files of another user than its app's"],
  ["app.settings", [], damagedEnd],
  ["app.accepted", undefined, damagedEnd],
  ["app.accepted.licenses", [1], damagedEnd],
  ["app.accepted.permissions", "all", damagedEnd],
  ["app.origin", null, damagedEnd],
  ["app.origin.kind", "s3", "has an origin of an unknown kind"],
  ["app.origin.url", long, "has an origin that is too long"],
  ["app.origin.directory", long, "has an origin that is too long"],
  ["app.origin.directory", 5, damagedEnd],
  ...["source", "branch", "tag", "commit"].map(
    (key) => [`app.origin.${key}`, "two\nlines", damagedEnd] as const,
  ),
  ["trees", [1], damagedEnd],
  ["trees", [], foreignTrees],
  ["trees", ["repo", "../other"], foreignTrees],
  ["trees", ["volumes/../../other"], foreignTrees],
  ...["framesBytes", "tarBytes", "contentBytes", "entries"].map(
    (key) => [`parts.${key}`, -1, damagedEnd] as const,
  ),
  ["parts.entries", 1.5, damagedEnd],
  ["parts.index.bytes", 2 ** 31 + 1, damagedEnd],
  ["parts.table.sha256", "0", damagedEnd],
  ["warnings", [1], damagedEnd],
] as const) {
  test(`an end whose ${path} is ${inspect(value).slice(0, 40)} is refused`, async (t) => {
    const wrong = structuredClone(footer) as unknown as Tree;
    const names = path.split(".");
    const last = names.pop() ?? "";
    const holder = names.reduce((tree, name) => tree[name] as Tree, wrong);
    holder[last] = value;
    const end = endWith(JSON.stringify(wrong));
    const error = await t.throwsAsync(readFooter(fileOf(end)), { instanceOf: SvcError });
    t.is(error.message, `the archive ${why}`);
  });
}

test("an archive that is longer or shorter than its end says is damaged", async (t) => {
  const whole = Buffer.concat([Buffer.alloc(16), await encodeFooter(footer)]);
  for (const bytes of [Buffer.concat([Buffer.alloc(1), whole]), whole.subarray(1)])
    await t.throwsAsync(readFooter(fileOf(bytes)), { message: /is shorter or longer than its end says$/ });
});

test("a record that nobody could read again is not written", async (t) => {
  const full = { ...footer, warnings: Array<string>(25_000).fill("") };
  await t.throwsAsync(encodeFooter(full), { instanceOf: SvcError, message: /make them smaller/ });
});
