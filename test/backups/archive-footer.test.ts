/** The end of an archive, which anybody may have written: longer or fuller than any is damaged, and is not parsed (docs/threat-model.md). */
import { hash } from "node:crypto";
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

test("an archive that is longer or shorter than its end says is damaged", async (t) => {
  const whole = Buffer.concat([Buffer.alloc(16), await encodeFooter(footer)]);
  for (const bytes of [Buffer.concat([Buffer.alloc(1), whole]), whole.subarray(1)])
    await t.throwsAsync(readFooter(fileOf(bytes)), { message: /is shorter or longer than its end says$/ });
});

test("a record that nobody could read again is not written", async (t) => {
  const full = { ...footer, warnings: Array<string>(25_000).fill("") };
  await t.throwsAsync(encodeFooter(full), { instanceOf: SvcError, message: /make them smaller/ });
});
