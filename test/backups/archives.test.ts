/** Archives: their encryption, compared with the real age, and their footer. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { hash, randomBytes } from "node:crypto";
import { mkdtemp, readFile, readdir, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inspect } from "node:util";
import { zstdCompressSync } from "node:zlib";
import test, { type ExecutionContext } from "ava";
import {
  type ArchiveFooter,
  encodeFooter,
  footerDigest,
  readFooter,
} from "../../src/backups/archives/archive-footer.ts";
import { Spool } from "../../src/backups/archives/spool.ts";
import { Age } from "../../src/backups/encryption/age.ts";
import { openEncrypted } from "../../src/backups/encryption/encrypted-file.ts";
import { EncryptedForms } from "../../src/backups/encryption/encrypted-forms.ts";
import type { StoredFile } from "../../src/backups/storages/storage.ts";
import { SvcError } from "../../src/errors.ts";
import { type AgeKey, hasAge, needsAge, newAgeKey } from "../support/age.ts";
import { eventually } from "../support/eventually.ts";
import { programs } from "../support/programs.ts";

// Encryption of archives, compared with the real age.

const ageTest = hasAge ? test : test.skip;
const chunk = 64 << 10;

/** One byte, chunks to the byte, and more than is processed at once. */
const sizes = [1, chunk - 1, chunk, chunk + 1, 8 * chunk, 8 * chunk + 1, 20 * chunk + 12_345];

interface Bench {
  age: Age;
  dir: string;
  key: AgeKey;
  other: AgeKey;
}

async function setUp(t: ExecutionContext): Promise<Bench> {
  const dir = await mkdtemp(join(tmpdir(), "svc-age-"));
  const age = new Age(programs.ageThread);
  t.teardown(async () => {
    age[Symbol.dispose]();
    await rm(dir, { recursive: true });
  });
  return { age, dir, key: await newAgeKey(dir, "key.txt"), other: await newAgeKey(dir, "other.txt") };
}

/** In memory, and counts the bytes read. */
function storedFile(bytes: Buffer): StoredFile & { readBytes: number; isClosed: boolean } {
  return {
    sizeBytes: bytes.length,
    readBytes: 0,
    isClosed: false,
    async *read(start, end) {
      const part = bytes.subarray(start, end);
      this.readBytes += part.length;
      // Chunks with sizes that divide nothing.
      for (let at = 0; at < part.length; at += 50_000)
        yield await Promise.resolve(part.subarray(at, at + 50_000));
    },
    async [Symbol.asyncDispose]() {
      this.isClosed = true;
      await Promise.resolve();
    },
  };
}

async function encrypt({ age, dir }: Bench, plain: Buffer, recipients: readonly string[]): Promise<Buffer> {
  const spool = new Spool(join(dir, "spool"), { bootId: "test", pid: process.pid, startTicks: 0 });
  await using file = await spool.create();
  await file.append(plain);
  await file.end();
  await using forms = new EncryptedForms({ archive: file, spool, age, isPermanent: false });
  const form = await forms.for(recipients, {});
  const bytes = await readFile(form.path);
  if (bytes.length !== form.sizeBytes) throw new Error("its size differs");
  return bytes;
}

/** The bytes of each file of a spool. */
async function spooled(dir: string): Promise<number[]> {
  const names = await readdir(join(dir, "spool"));
  return Promise.all(names.map(async (name) => (await stat(join(dir, "spool", name))).size));
}

async function decrypt({ age }: Bench, sealed: Buffer, identity: string): Promise<Buffer> {
  await using file = await openEncrypted(storedFile(sealed), { identity, uid: 0 }, age);
  return Buffer.concat(await Array.fromAsync(file.read(0, file.sizeBytes)));
}

ageTest(
  `the real age decrypts what svc encrypts, for each recipient, and vice versa${needsAge}`,
  async (t) => {
    const bench = await setUp(t);
    const { key, other } = bench;
    for (const size of sizes) {
      const plain = randomBytes(size);
      const sealed = await encrypt(bench, plain, [key.recipient, other.recipient]);
      for (const { file } of [key, other]) {
        const opened = execFileSync("age", ["-d", "-i", file], { input: sealed, maxBuffer: 1 << 30 });
        t.true(opened.equals(plain), `${size} bytes`);
      }
      const theirs = execFileSync("age", ["-r", key.recipient], { input: plain, maxBuffer: 1 << 30 });
      t.true((await decrypt(bench, theirs, key.identity)).equals(plain), `${size} bytes of age`);
      t.true((await decrypt(bench, sealed, `${other.secret}\n${key.secret}`)).equals(plain));
    }
  },
);

ageTest(`an archive is encrypted while it is created${needsAge}`, async (t) => {
  const { age, dir, key } = await setUp(t);
  const spool = new Spool(join(dir, "spool"), { bootId: "test", pid: process.pid, startTicks: 0 });
  const plain = randomBytes(40 * chunk + 12_345);
  await using file = await spool.create();
  await using forms = new EncryptedForms({ archive: file, spool, age, isPermanent: false });
  const form = forms.for([key.recipient], {});
  await file.append(plain.subarray(0, 30 * chunk));
  await eventually(async () => {
    const [small = 0] = (await spooled(dir)).toSorted((a, b) => a - b);
    assert.ok(small > 16 * chunk, `${small}`);
  }, 60_000);
  t.false(file.isComplete);
  await file.append(plain.subarray(30 * chunk));
  await file.end();
  const { path } = await form;
  const opened = execFileSync("age", ["-d", "-i", key.file, path], { maxBuffer: 1 << 30 });
  t.true(opened.equals(plain));
});

ageTest(`an abandoned encryption leaves nothing${needsAge}`, async (t) => {
  const { age, dir, key } = await setUp(t);
  const spool = new Spool(join(dir, "spool"), { bootId: "test", pid: process.pid, startTicks: 0 });
  {
    await using file = await spool.create();
    await using forms = new EncryptedForms({ archive: file, spool, age, isPermanent: false });
    void forms.for([key.recipient], {});
    await file.append(randomBytes(10 * chunk));
    await eventually(async () => assert.equal((await spooled(dir)).length, 2), 60_000);
  }
  t.deepEqual(await spooled(dir), []);
});

ageTest(`reading a part of an encrypted file reads only its chunks${needsAge}`, async (t) => {
  const bench = await setUp(t);
  const plain = randomBytes(20 * chunk + 12_345);
  const stored = storedFile(await encrypt(bench, plain, [bench.key.recipient]));
  await using file = await openEncrypted(stored, { identity: bench.key.identity, uid: 0 }, bench.age);
  t.is(file.sizeBytes, plain.length);
  for (const [start, end, chunks] of [
    [0, 1, 1],
    [chunk - 1, chunk + 1, 2],
    [5 * chunk, 6 * chunk, 1],
    [3 * chunk + 7, 15 * chunk + 9, 13],
    [plain.length - 100, plain.length, 1],
    [0, plain.length, 21],
    [17, 17, 0],
  ] as const) {
    stored.readBytes = 0;
    const part = Buffer.concat(await Array.fromAsync(file.read(start, end)));
    t.true(part.equals(plain.subarray(start, end)), `${start} to ${end}`);
    t.true(stored.readBytes <= chunks * (chunk + 16), `${start} to ${end} read ${stored.readBytes}`);
  }
});

ageTest(`slow headers do not delay payloads${needsAge}`, async (t) => {
  const { age, key, other } = await setUp(t);
  const payload = age.stream();
  const chunks = () => ({ first: 0, isEnd: true, bytes: new Uint8Array(chunk) });
  await payload.encrypt(randomBytes(32), chunks());
  // As many as fit in a header, and each identity is tried with all of them.
  const { head } = await age.seal(Array.from({ length: 70 }, () => other.recipient));
  const identity = `${key.secret}\n`.repeat(16);
  let ended = 0;
  const headers = [1, 2, 3].map(() => age.open(head, { identity, uid: 1 }).catch(() => ended++));
  await payload.encrypt(randomBytes(32), chunks());
  t.is(ended, 0);
  await Promise.all(headers);
  t.is(ended, 3);
});

ageTest(`each changed and each missing byte is detected${needsAge}`, async (t) => {
  const bench = await setUp(t);
  const { age, key } = bench;
  const sealed = await encrypt(bench, randomBytes(2 * chunk + 300), [key.recipient]);
  const failureOf = async (bytes: Buffer): Promise<unknown> => {
    const file = storedFile(bytes);
    try {
      await using opened = await openEncrypted(file, { identity: key.identity, uid: 0 }, age);
      await Array.fromAsync(opened.read(0, opened.sizeBytes));
      return undefined;
    } catch (error) {
      t.true(file.isClosed);
      return error instanceof SvcError ? error.reason : error;
    }
  };
  t.is(await failureOf(sealed), undefined);
  // All of the header, of the nonce, of the last chunk, and some in between.
  const stanzasBytes = sealed.indexOf("\n--- ") + 1;
  const headerBytes = sealed.indexOf("\n", stanzasBytes) + 1;
  const places = Array.from({ length: sealed.length }, (_, at) => at).filter(
    (at) => at < headerBytes + 40 || at >= sealed.length - 340 || at % 4001 === 0,
  );
  for (const at of places) {
    const broken = Buffer.from(sealed);
    broken[at] = (broken[at] ?? 0) ^ 1;
    const reason = await failureOf(broken);
    // A changed stanza belongs to another recipient.
    const isRight = reason === "archive_damaged" || (at < stanzasBytes && reason === "invalid_request");
    t.true(isRight, `byte ${at}: ${String(reason)}`);
  }
  const ends = [0, 10, headerBytes, headerBytes + 16, headerBytes + 32, headerBytes + 16 + chunk + 16];
  for (const length of [...ends, headerBytes + 16 + 2 * (chunk + 16), sealed.length - 1])
    t.is(await failureOf(sealed.subarray(0, length)), "archive_damaged", `${length} bytes`);
  t.is(await failureOf(Buffer.concat([sealed, Buffer.alloc(1)])), "archive_damaged", "one more");
  const [first, second] = [headerBytes + 16, headerBytes + 16 + chunk + 16];
  const swapped = Buffer.concat([
    sealed.subarray(0, first),
    sealed.subarray(second, second + chunk + 16),
    sealed.subarray(first, second),
    sealed.subarray(second + chunk + 16),
  ]);
  t.is(await failureOf(swapped), "archive_damaged", "chunks in another order");
});

ageTest(`an identity that does not open an archive is reported without quoting it${needsAge}`, async (t) => {
  const bench = await setUp(t);
  const { age, key, other } = bench;
  const sealed = await encrypt(bench, randomBytes(100), [key.recipient]);
  const mistyped = key.secret.replace(/.$/, (last) => (last === "Q" ? "P" : "Q"));
  for (const [identity, says] of [
    ["", "is needed"],
    ["# created: never\n\n", "is needed"],
    [other.identity, "is not a recipient of the archive"],
    [mistyped, "is not a valid age identity"],
    [key.recipient, "is not an AGE-SECRET-KEY-1"],
    [`${key.secret} x`, "is not an AGE-SECRET-KEY-1"],
    [`${key.secret}\n`.repeat(17), "at most 16"],
  ] as const) {
    const error = await t.throwsAsync(openEncrypted(storedFile(sealed), { identity, uid: 0 }, age), {
      instanceOf: SvcError,
    });
    t.is(error.reason, "invalid_request");
    t.true(error.message.includes(says), error.message);
    const shown = `${error.stack} ${JSON.stringify(error)} ${String(error.cause)}`;
    t.notRegex(shown, /SECRET-KEY-1[02-9A-Z]/);
  }
});

ageTest(`a public key with a wrong character is rejected${needsAge}`, async (t) => {
  const { age, key } = await setUp(t);
  await t.notThrowsAsync(age.requireRecipients([key.recipient]));
  const wrong = key.recipient.replace(/.$/, (last) => (last === "q" ? "p" : "q"));
  const error = await t.throwsAsync(age.requireRecipients([key.recipient, wrong]), { instanceOf: SvcError });
  t.is(error.reason, "invalid_request");
  t.regex(error.message, /recipients\[1\]/);
});

test("a file that is not age's is rejected", async (t) => {
  const age = new Age(programs.ageThread);
  t.teardown(() => age[Symbol.dispose]());
  for (const bytes of [Buffer.alloc(0), Buffer.from("age-encryption.org/v1\n"), randomBytes(40_000)]) {
    const error = await t.throwsAsync(openEncrypted(storedFile(bytes), { identity: "", uid: 0 }, age), {
      instanceOf: SvcError,
    });
    t.is(error.reason, "archive_damaged");
  }
});

// The end of an untrusted archive: one above the limits is damaged and is not parsed (docs/threat-model.md).

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
  ["app.origin.commit", "../../../../srv/project/", damagedFooter],
  ["app.origin.commit", "main", damagedFooter],
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
