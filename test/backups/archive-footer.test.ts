/** The end of an untrusted archive: one above the limits is damaged and is not parsed (docs/threat-model.md). */
import { hash } from "node:crypto";
import { inspect } from "node:util";
import { zstdCompressSync } from "node:zlib";
import test from "ava";
import { SvcError } from "../../src/errors.ts";
import {
  encodeFooter,
  footerDigest,
  readFooter,
  type ArchiveFooter,
} from "../../src/backups/archives/archive-footer.ts";
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

/** Like {@link encodeFooter}, with any text. */
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

test("an end within its limits is read", async (t) => {
  const encoded = Buffer.concat([Buffer.alloc(16), await encodeFooter(footer)]);
  t.deepEqual(await readFooter(fileOf(encoded)), { footer, digest: footerDigest(encoded) });
  const long = ["x".repeat(maxBytes - 4096)];
  t.deepEqual((await readFooter(fileOf(endWith(withWarnings(long))))).footer.warnings, long);
});

for (const [what, bytes] of Object.entries({
  "longer than the limit": () => endWith(withWarnings(["x".repeat(maxBytes)])),
  "longer than it states": () => endWith(withWarnings(["x".repeat(1 << 20)]), 1_000),
  "fuller than the limit": () => endWith(withWarnings(Array<string>(25_000).fill(""))),
})) {
  test(`an end that is ${what} is damaged`, async (t) => {
    const error = await t.throwsAsync(readFooter(fileOf(bytes())));
    t.like(error, { reason: "archive_damaged", message: "the archive has a damaged footer" });
  });
}

type Tree = Record<string, unknown>;

const damagedFooter = "has a damaged footer";
const unknownFormat = "has a format that this version of svc does not support";
const otherTrees = "has trees that an app does not have";
const long = "x".repeat(4097);

for (const [path, value, why] of [
  ["format", 3, unknownFormat],
  ["format", 2, unknownFormat],
  ["since", "another", unknownFormat],
  ...["svc_version", "created_at", "mode", "host"].map((key) => [key, "two\nlines", damagedFooter] as const),
  ["host", undefined, damagedFooter],
  ["host", "x".repeat(257), damagedFooter],
  ...["id", "name", "package_id", "runtime", "version", "owner"].map(
    (key) => [`app.${key}`, "two\nlines", damagedFooter] as const,
  ),
  ["app", [], damagedFooter],
  ["app.owner_uid", 2 ** 32 - 1, damagedFooter],
  ["app.run_uid", 2 ** 32 - 1, damagedFooter],
  ["app.run_uid", 8, "has files of another user than the app's owner"],
  ["app.settings", [], damagedFooter],
  ["app.accepted", undefined, damagedFooter],
  ["app.accepted.licenses", [1], damagedFooter],
  ["app.accepted.permissions", "all", damagedFooter],
  ["app.origin", null, damagedFooter],
  ["app.origin.kind", "s3", "has an origin of an unknown kind"],
  ["app.origin.url", long, "has an origin that is too long"],
  ["app.origin.directory", long, "has an origin that is too long"],
  ["app.origin.directory", 5, damagedFooter],
  ...["source", "branch", "tag", "commit"].map(
    (key) => [`app.origin.${key}`, "two\nlines", damagedFooter] as const,
  ),
  ["trees", [1], damagedFooter],
  ["trees", [], otherTrees],
  ["trees", ["repo", "../other"], otherTrees],
  ["trees", ["volumes/../../other"], otherTrees],
  ...["framesBytes", "tarBytes", "contentBytes", "entries"].map(
    (key) => [`parts.${key}`, -1, damagedFooter] as const,
  ),
  ["parts.entries", 1.5, damagedFooter],
  ["parts.index.bytes", 2 ** 31 + 1, damagedFooter],
  ["parts.table.sha256", "0", damagedFooter],
  ["warnings", [1], damagedFooter],
] as const) {
  test(`an end whose ${path} is ${inspect(value).slice(0, 40)} is rejected`, async (t) => {
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

test("an archive that is longer or shorter than its end states is damaged", async (t) => {
  const whole = Buffer.concat([Buffer.alloc(16), await encodeFooter(footer)]);
  for (const bytes of [Buffer.concat([Buffer.alloc(1), whole]), whole.subarray(1)])
    await t.throwsAsync(readFooter(fileOf(bytes)), {
      message: /has a different length than its footer states$/,
    });
});

test("a record that could not be read again is not written", async (t) => {
  const full = { ...footer, warnings: Array<string>(25_000).fill("") };
  await t.throwsAsync(encodeFooter(full), { instanceOf: SvcError, message: /make them smaller/ });
});
