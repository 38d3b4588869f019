/** A rotation that is interrupted at any step, or fails, leaves one consistent state; its window survives a restart. */
import assert from "node:assert/strict";
import { mkdir, readdir, rename, rmdir, writeFile } from "node:fs/promises";
import test from "ava";
import { SvcError } from "../../../src/errors.ts";
import type { Store } from "../../../src/store/store.ts";
import { tokenDigest } from "../../../src/access/tokens/token-digest.ts";
import { eventually } from "../../support/eventually.ts";
import { createTokenWorld } from "./support/world.ts";

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
    // Without an earlier window there is nothing to clean up after the file, so there is no second write.
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
