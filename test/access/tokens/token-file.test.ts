/** The primary token's file: created once, replaced atomically, never through a link, readable only for its owner. */
import {
  chmod,
  chown,
  link,
  mkdtemp,
  readFile,
  readdir,
  rm,
  stat,
  symlink,
  utimes,
  writeFile,
} from "node:fs/promises";
import { execFileSync } from "node:child_process";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { isToken, mintToken } from "../../../src/access/tokens/token-digest.ts";
import { openTokenFile, removeStagedTokens, stageTokenFile } from "../../../src/access/tokens/token-file.ts";

const selfUid = process.getuid?.() ?? 0;
const rootTest = selfUid === 0 ? test : test.skip;

async function tokenPath(t: ExecutionContext): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "svc-token-"));
  t.teardown(() => rm(directory, { recursive: true, force: true }));
  return join(directory, "api.token");
}

test.serial(
  "the first start creates it, readable only for its owner with any umask, and leaves nothing else",
  async (t) => {
    const file = await tokenPath(t);
    const umask = process.umask(0);
    t.teardown(() => process.umask(umask));
    const token = await openTokenFile(file, selfUid);
    process.umask(umask);
    t.regex(token, /^svcp_[A-Za-z0-9_-]{43}$/);
    t.is((await stat(file)).mode & 0o7777, 0o600);
    t.is(await readFile(file, "utf8"), `${token}\n`);
    t.deepEqual(await readdir(join(file, "..")), ["api.token"]);
  },
);

test("later starts keep it", async (t) => {
  const file = await tokenPath(t);
  t.is(await openTokenFile(file, selfUid), await openTokenFile(file, selfUid));
});

test("concurrent starts agree on one token", async (t) => {
  const file = await tokenPath(t);
  const tokens = await Promise.all(Array.from({ length: 20 }, () => openTokenFile(file, selfUid)));
  t.is(new Set(tokens).size, 1);
  t.deepEqual(await readdir(join(file, "..")), ["api.token"]);
});

test("a planted link is rejected, and its target is unchanged", async (t) => {
  const file = await tokenPath(t);
  const victim = `${file}.victim`;
  await writeFile(victim, "precious", { mode: 0o600 });
  await symlink(victim, file);
  await t.throwsAsync(openTokenFile(file, selfUid), { message: /is a symbolic link; remove it/ });
  t.is(await readFile(victim, "utf8"), "precious");
  await rm(file);
  await symlink(`${file}.nothing`, file);
  await t.throwsAsync(openTokenFile(file, selfUid), { message: /is a symbolic link/ });
});

for (const mode of [0o644, 0o640, 0o604, 0o660, 0o601]) {
  test(`mode 0${mode.toString(8)} is rejected`, async (t) => {
    const file = await tokenPath(t);
    await openTokenFile(file, selfUid);
    await chmod(file, mode);
    await t.throwsAsync(openTokenFile(file, selfUid), {
      message: new RegExp(`has mode 0${mode.toString(8)}`),
    });
  });
}

for (const [name, content] of [
  ["nothing", ""],
  ["another thing", "hunter2\n"],
  ["a short token", "svcp_abc\n"],
  ["too much", "x".repeat(10_000)],
] as const) {
  test(`a file that contains ${name} is rejected`, async (t) => {
    const file = await tokenPath(t);
    await writeFile(file, content, { mode: 0o600 });
    const error = await t.throwsAsync(openTokenFile(file, selfUid), { message: /api\.token / });
    t.false(content.length > 5 && error.message.includes(content.trim()));
  });
}

test("a pipe does not block the start", async (t) => {
  const file = await tokenPath(t);
  execFileSync("mkfifo", ["-m", "600", file]);
  await t.throwsAsync(openTokenFile(file, selfUid), { message: /is not a regular file/ });
});

rootTest("a file of another user is rejected (skipped without root)", async (t) => {
  const file = await tokenPath(t);
  await openTokenFile(file, selfUid);
  await chown(file, 65534, 65534);
  await t.throwsAsync(openTokenFile(file, 0), { message: /belongs to uid 65534/ });
});

test("an existing token is never replaced by a link race", async (t) => {
  const file = await tokenPath(t);
  const token = await openTokenFile(file, selfUid);
  await link(file, `${file}.copy`);
  t.is(await openTokenFile(file, selfUid), token);
});

test("a token is 256 bits and never the same", (t) => {
  const tokens = Array.from({ length: 1000 }, () => mintToken("primary"));
  t.is(new Set(tokens).size, 1000);
  t.true(tokens.every((token) => isToken("primary", token)));
  const secrets = tokens.map((token) => Buffer.from(token.slice(5), "base64url"));
  for (let at = 0; at < 32; at++) {
    t.true(new Set(secrets.map((secret) => secret[at])).size > 200, `byte ${at} has nearly all values`);
  }
  t.is(secrets[0]?.length, 32);
});

test.serial(
  "a staged token replaces the file atomically, readable only for its owner with any umask",
  async (t) => {
    const file = await tokenPath(t);
    const old = await openTokenFile(file, selfUid);
    const umask = process.umask(0);
    t.teardown(() => process.umask(umask));
    const staged = await stageTokenFile(file);
    t.is(await openTokenFile(file, selfUid), old, "until it is put in place, nothing has changed");
    await staged.replace();
    process.umask(umask);
    t.not(staged.token, old);
    t.is(await openTokenFile(file, selfUid), staged.token);
    t.is((await stat(file)).mode & 0o7777, 0o600);
    t.deepEqual(await readdir(join(file, "..")), ["api.token"]);
  },
);

test("a staged token that is discarded leaves nothing", async (t) => {
  const file = await tokenPath(t);
  const old = await openTokenFile(file, selfUid);
  await (await stageTokenFile(file)).discard();
  t.is(await openTokenFile(file, selfUid), old);
  t.deepEqual(await readdir(join(file, "..")), ["api.token"]);
});

test("a link planted in place of the file is replaced, and its target is unchanged", async (t) => {
  const file = await tokenPath(t);
  const victim = `${file}.victim`;
  await writeFile(victim, "precious", { mode: 0o600 });
  const staged = await stageTokenFile(file);
  await symlink(victim, file);
  await staged.replace();
  t.is(await readFile(victim, "utf8"), "precious");
  t.is(await openTokenFile(file, selfUid), staged.token);
});

test("files left by killed processes are removed, and no others", async (t) => {
  const file = await tokenPath(t);
  await openTokenFile(file, selfUid);
  const old = new Date(Date.now() - 3_600_000);
  for (const name of ["api.token.0123456789ab.new", "api.token.backup", "api.token.xyz.new"]) {
    await writeFile(join(file, "..", name), "");
    await utimes(join(file, "..", name), old, old);
  }
  await writeFile(join(file, "..", "api.token.ba9876543210.new"), "another start is at work on it");
  await removeStagedTokens(file, Date.now());
  t.deepEqual((await readdir(join(file, ".."))).toSorted(), [
    "api.token",
    "api.token.ba9876543210.new",
    "api.token.backup",
    "api.token.xyz.new",
  ]);
});
