/** Encryption of archives, compared with the real age. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtemp, readdir, readFile, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { Age } from "../../src/backups/encryption/age.ts";
import { openEncrypted } from "../../src/backups/encryption/encrypted-file.ts";
import { EncryptedForms } from "../../src/backups/encryption/encrypted-forms.ts";
import { Spool } from "../../src/backups/archives/spool.ts";
import type { StoredFile } from "../../src/backups/storages/storage.ts";
import { SvcError } from "../../src/errors.ts";
import { hasAge, needsAge, newAgeKey, type AgeKey } from "../support/age.ts";
import { eventually } from "../support/eventually.ts";
import { programs } from "../support/programs.ts";

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
  t.false(file.isWhole);
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
