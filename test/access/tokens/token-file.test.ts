/** The primary token's file: its creation, its mode, and rotations that are interrupted or fail. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  chmod,
  chown,
  link,
  mkdir,
  mkdtemp,
  readFile,
  readdir,
  rename,
  rm,
  rmdir,
  stat,
  symlink,
  utimes,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { isToken, mintToken, tokenDigest } from "../../../src/access/tokens/token-digest.ts";
import { openTokenFile, removeStagedTokens, stageTokenFile } from "../../../src/access/tokens/token-file.ts";
import { SvcError } from "../../../src/errors.ts";
import type { Store } from "../../../src/store/store.ts";
import { eventually } from "../../support/eventually.ts";
import { createTokenWorld } from "./support/world.ts";

// The primary token's file: created once, replaced atomically, never through a link, readable only for its owner.

const selfUid = process.getuid?.() ?? 0;
const rootTest = selfUid === 0 ? test : test.skip;

async function tokenPath(t: ExecutionContext): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "svc-token-"));
  t.teardown(() => rm(directory, { recursive: true, force: true }));
  return join(directory, "api.token");
}

test.serial(
  "the first start creates the token file, readable only for its owner with any umask, and leaves nothing else",
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

test("later starts keep the token file", async (t) => {
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

// A rotation that is interrupted at any step, or fails, leaves one consistent state; its window survives a restart.

const never = new Promise<never>(() => undefined);

/** A store whose process dies at its `at`th write: before it is durable, or after. `reached` resolves then. */
function dyingStore(
  store: Store,
  at: number,
  moment: "before" | "after",
): { store: Store; reached: Promise<void> } {
  const { promise, resolve } = Promise.withResolvers<undefined>();
  let count = 0;
  const dying: Pick<Store, keyof Store> = {
    restoration: store.restoration,
    get: (sql, ...params) => store.get(sql, ...params),
    all: (sql, ...params) => store.all(sql, ...params),
    onChange: (listener) => store.onChange(listener),
    housekeep: () => store.housekeep(),
    async write(statements, options) {
      if (++count < at) return store.write(statements, options);
      if (moment === "after") await store.write(statements, options);
      resolve(undefined);
      return never;
    },
    [Symbol.asyncDispose]: () => store[Symbol.asyncDispose](),
  };
  return { store: dying as Store, reached: promise };
}

for (const inWindow of [false, true]) {
  for (const { step, at, moment, isRotated } of [
    { step: "before its window is recorded", at: 1, moment: "before", isRotated: false },
    { step: "between the record and the token file", at: 1, moment: "after", isRotated: false },
    { step: "between the token file and its answer", at: 2, moment: "before", isRotated: true },
  ] as const) {
    // The second write removes the record of an earlier window. Without an earlier window there is only one write.
    const where = inWindow ? ", inside a window" : "";
    if (!inWindow && at === 2) continue;
    test(`killed ${step}${where}: the token is ${isRotated ? "rotated" : "unchanged"}`, async (t) => {
      await using world = await createTokenWorld();
      const oldest = await world.fileToken();
      const old = inWindow ? (await world.tokens.rotate(undefined, 300)).token : oldest;
      const before = world.tokens.status();
      let reached = Promise.resolve();
      await world.restart((store) => {
        const dying = dyingStore(store, at, moment);
        reached = dying.reached;
        return dying.store;
      });
      void world.tokens.rotate(undefined, 600);
      await reached;
      await world.restart();
      const inFile = await world.fileToken();
      t.is(inFile !== old, isRotated);
      t.is(world.kindOf(inFile), "primary");
      if (isRotated) {
        t.is(world.kindOf(old), "replaced");
        t.is(world.kindOf(oldest), undefined);
        t.is(world.tokens.status().graceUntilMs, world.clock.nowMs() + 600_000);
      } else {
        t.deepEqual(world.tokens.status(), before);
        if (inWindow) t.is(world.kindOf(oldest), "replaced");
      }
      t.truthy(await world.tokens.rotate(world.nameOf(inFile), 300), "the next rotation works");
      world.clock.pass(Date.now() - world.clock.nowMs() + 120_000);
      await world.restart();
      t.deepEqual(
        (await readdir(world.dir)).toSorted(),
        ["api.token", "store"],
        "a token that was never put in place is gone",
      );
    });
  }
}

for (const [moment, isOpen] of [
  ["before", true],
  ["after", false],
] as const) {
  test(`killed in a commit, ${moment} it is durable: ${isOpen ? "the window is open" : "it is closed"}`, async (t) => {
    await using world = await createTokenWorld();
    const old = await world.fileToken();
    await world.tokens.rotate(undefined, 300);
    let reached = Promise.resolve();
    await world.restart((store) => {
      const dying = dyingStore(store, 1, moment);
      reached = dying.reached;
      return dying.store;
    });
    void world.tokens.commit(undefined);
    await reached;
    t.is(world.kindOf(old), "replaced", "a write that is not durable does not count");
    await world.restart();
    t.is(world.kindOf(old), isOpen ? "replaced" : undefined);
  });
}

test("the window survives a restart, and ends on time", async (t) => {
  await using world = await createTokenWorld();
  const old = await world.fileToken();
  const { token: fresh, graceUntilMs } = await world.tokens.rotate(undefined, 300);
  const access = world.tokens.issueAccess(600, "", undefined).token;
  world.clock.pass(100_000);
  await world.restart();
  t.is(world.kindOf(fresh), "primary");
  t.is(world.kindOf(old), "replaced");
  t.is(world.kindOf(access), undefined, "access tokens exist only in memory");
  t.is(world.tokens.status().graceUntilMs, graceUntilMs);
  await t.throwsAsync(world.tokens.rotate(world.nameOf(old), 0), { instanceOf: SvcError });
  world.clock.pass(200_000);
  t.is(world.kindOf(old), undefined);
});

test("a window that ended while the daemon was down stays closed, also when the clock is set back later", async (t) => {
  await using world = await createTokenWorld();
  const old = await world.fileToken();
  await world.tokens.rotate(undefined, 300);
  world.clock.pass(300_000);
  await world.restart();
  t.is(world.kindOf(old), undefined);
  world.clock.step(-200_000);
  await world.restart();
  t.is(world.kindOf(old), undefined);
});

test("a window that ended in the daemon's time stays closed after the clock is set back and a restart", async (t) => {
  await using world = await createTokenWorld();
  const old = await world.fileToken();
  await world.tokens.rotate(undefined, 300);
  world.clock.pass(300_250);
  const recorded = (): unknown =>
    world.store.get<{ value: string }>("SELECT value FROM meta WHERE key = 'token_rotation'")?.value;
  await eventually(() => assert.equal(recorded(), "[]"));
  world.clock.step(-250_000);
  await world.restart();
  t.is(world.kindOf(old), undefined);
});

test("a clock that was set far back extends no window beyond the longest grace period", async (t) => {
  await using world = await createTokenWorld();
  const old = await world.fileToken();
  await world.tokens.rotate(undefined, 86_400);
  world.clock.step(-365 * 86_400_000);
  await world.restart();
  t.is(world.kindOf(old), "replaced");
  world.clock.pass(86_400_000);
  t.is(world.kindOf(old), undefined);
});

test("a token file that was replaced by hand is the primary token, and no window counts", async (t) => {
  await using world = await createTokenWorld();
  const old = await world.fileToken();
  const { token: fresh } = await world.tokens.rotate(undefined, 300);
  const byHand = fresh.replace(/.$/, fresh.endsWith("A") ? "B" : "A");
  await writeFile(world.file, `${byHand}\n`);
  await world.restart();
  t.is(world.kindOf(byHand), "primary");
  t.is(world.kindOf(fresh), undefined);
  t.is(world.kindOf(old), undefined);
});

test("a rotation that cannot write its file changes nothing", async (t) => {
  await using world = await createTokenWorld();
  const oldest = await world.fileToken();
  const { token: old } = await world.tokens.rotate(undefined, 300);
  const access = world.tokens.issueAccess(600, "", undefined).token;
  const before = world.tokens.status();
  // A directory in its place, because not even root can rename a file over one.
  await rename(world.file, `${world.file}.aside`);
  await mkdir(world.file);
  await t.throwsAsync(world.tokens.rotate(undefined, 300));
  await rmdir(world.file);
  await rename(`${world.file}.aside`, world.file);
  t.deepEqual(world.tokens.status(), before);
  t.is(world.kindOf(old), "primary");
  t.is(world.kindOf(access), "access");
  t.deepEqual((await readdir(world.dir)).toSorted(), ["api.token", "store"]);
  await world.restart();
  t.is(world.kindOf(old), "primary");
  t.is(world.kindOf(oldest), "replaced");
});

test("rotations and commits of another process are effective within a second", async (t) => {
  await using world = await createTokenWorld();
  const other = await world.beside();
  const old = await world.fileToken();
  const access = world.tokens.issueAccess(600, "", undefined).token;
  const { token: fresh } = await other.rotate(undefined, 300);
  await eventually(() => assert.equal(world.kindOf(fresh), "primary"), 1_000);
  t.is(world.kindOf(old), "replaced");
  t.is(world.kindOf(access), undefined);
  t.true(await other.commit(undefined));
  await eventually(() => assert.equal(world.kindOf(old), undefined), 1_000);
  t.truthy(await world.tokens.rotate(world.nameOf(fresh), 300));
});

test("the database contains only digests", async (t) => {
  await using world = await createTokenWorld();
  const old = await world.fileToken();
  const { token: fresh } = await world.tokens.rotate(undefined, 300);
  const kept = JSON.stringify(world.store.all("SELECT key, value FROM meta"));
  t.true(kept.includes(tokenDigest(old).toString("hex")));
  for (const token of [old, fresh]) t.false(kept.includes(token.slice(5)));
});
