/** The states of access, primary, console and session tokens, case by case with a fake clock. */
import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import test from "ava";
import { maxAccessTokens } from "../../../src/access/tokens/access-tokens.ts";
import { ConsoleTokens, type ConsoleIssuer } from "../../../src/access/tokens/console-tokens.ts";
import { maxCodesPerUid, maxSessionsPerUid } from "../../../src/access/tokens/session-tokens.ts";
import { isToken, mintToken, tokenDigest, shortDigest } from "../../../src/access/tokens/token-digest.ts";
import { SvcError } from "../../../src/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { createTokenWorld, type TokenWorld } from "./support/world.ts";

// The states of access, primary and console tokens, case by case with a fake clock.

const denied = { instanceOf: SvcError, code: "permission_denied", message: /was replaced by a rotation/ };
const tooMany = { instanceOf: SvcError, code: "resource_exhausted" };
const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test("only exact tokens are recognized", async (t) => {
  await using world = await createTokenWorld();
  const primary = await world.fileToken();
  const access = world.tokens.issueAccess(600, "", undefined).token;
  t.true(isToken("primary", primary) && isToken("access", access));
  t.is(world.kindOf(primary), "primary");
  t.is(world.kindOf(access), "access");
  t.regex(world.nameOf(primary), /^[0-9a-f]{12}$/);
  for (const token of [primary, access]) {
    for (const wrong of ["", token.slice(0, -1), `${token} `, token.toUpperCase(), token.slice(5)]) {
      t.is(world.kindOf(wrong), undefined);
    }
  }
  for (const wrong of [mintToken("primary"), mintToken("access"), "x".repeat(1e6)])
    t.is(world.kindOf(wrong), undefined);
});

test("access: none → live when issued, for the requested time", async (t) => {
  await using world = await createTokenWorld();
  const { token, expiresAtMs } = world.tokens.issueAccess(600, "a script", undefined);
  t.is(world.kindOf(token), "access");
  t.is(expiresAtMs, world.clock.nowMs() + 600_000);
  t.is(world.tokens.status().accessTokens, 1);
  t.like(world.lines.at(-1), {
    details: { label: "a script", ttlSecs: 600, tokenDigest: world.nameOf(token) },
  });
});

test("access: live → gone when its lifetime has elapsed, and its calls end", async (t) => {
  await using world = await createTokenWorld();
  const short = world.tokens.issueAccess(1, "", undefined).token;
  const long = world.tokens.issueAccess(86_400, "", undefined).token;
  const ended = world.tokens.authenticate(short)?.ended;
  world.clock.pass(999);
  t.is(world.kindOf(short), "access");
  t.false(ended?.aborted);
  world.clock.pass(1);
  t.is(world.kindOf(short), undefined);
  world.clock.pass(250);
  t.true(ended?.aborted, "its calls end within a second");
  t.like(ended?.reason, { code: "unauthenticated", message: "the access token has expired; issue another" });
  t.is(world.tokens.status().accessTokens, 1);
  world.clock.pass(86_398_749);
  t.is(world.kindOf(long), "access");
  world.clock.pass(1);
  t.is(world.kindOf(long), undefined);
  world.clock.pass(250);
  t.true(world.clock.isIdle, "no timer runs when nothing can expire");
});

test("access: a wall clock that is set back extends no lifetime; one set forward may end it", async (t) => {
  await using world = await createTokenWorld();
  const token = world.tokens.issueAccess(600, "", undefined).token;
  world.clock.step(-3_600_000);
  world.clock.pass(600_000);
  t.is(world.kindOf(token), undefined);
  const other = world.tokens.issueAccess(600, "", undefined).token;
  world.clock.step(3_600_000);
  t.is(world.kindOf(other), undefined);
});

test("access: live → gone when revoked, with their number", async (t) => {
  await using world = await createTokenWorld();
  const issued = Array.from({ length: 3 }, () => world.tokens.issueAccess(600, "", undefined).token);
  const expired = world.tokens.issueAccess(1, "", undefined).token;
  world.clock.pass(1_000);
  const signals = issued.map((token) => world.tokens.authenticate(token)?.ended);
  t.is(world.tokens.revokeAccess(), 3, "an expired one does not count");
  for (const token of [...issued, expired]) t.is(world.kindOf(token), undefined);
  t.true(signals.every((signal) => signal?.aborted === true));
  t.is(world.tokens.revokeAccess(), 0);
  t.is(world.kindOf(await world.fileToken()), "primary");
});

test("access: live → gone at a rotation, with their number", async (t) => {
  await using world = await createTokenWorld();
  const issued = [1, 2].map(() => world.tokens.issueAccess(600, "", undefined).token);
  const signal = world.tokens.authenticate(issued[0] ?? "")?.ended;
  t.is((await world.tokens.rotate(undefined, 300)).revoked, 2);
  for (const token of issued) t.is(world.kindOf(token), undefined);
  t.true(signal?.aborted);
});

test("access: at most 1,000 live ones; the next is issued when one has expired", async (t) => {
  await using world = await createTokenWorld();
  world.tokens.issueAccess(1, "", undefined);
  for (let count = 1; count < maxAccessTokens; count++) world.tokens.issueAccess(600, "", undefined);
  t.throws(() => world.tokens.issueAccess(600, "", undefined), {
    ...tooMany,
    message: /^1000 access tokens are live/,
  });
  world.clock.pass(1_000);
  t.notThrows(() => world.tokens.issueAccess(600, "", undefined));
  t.throws(() => world.tokens.issueAccess(600, "", undefined), tooMany);
});

test("access: ends with the primary token that issued it", async (t) => {
  await using world = await createTokenWorld();
  const old = await world.fileToken();
  const { token: fresh } = await world.tokens.rotate(undefined, 300);
  const byOld = world.tokens.issueAccess(600, "", world.nameOf(old)).token;
  const byNew = world.tokens.issueAccess(600, "", world.nameOf(fresh)).token;
  await world.tokens.commit(undefined);
  t.is(world.kindOf(byOld), undefined);
  t.is(world.kindOf(byNew), "access");
});

test("primary: current → replaced at a rotation; both authenticate while the window is open", async (t) => {
  await using world = await createTokenWorld();
  const old = await world.fileToken();
  const ended = world.tokens.authenticate(old)?.ended;
  const before = world.tokens.status();
  t.is(before.graceUntilMs, undefined);
  const { token: fresh, graceUntilMs } = await world.tokens.rotate(world.nameOf(old), 300);
  t.is(graceUntilMs, world.clock.nowMs() + 300_000);
  t.is(await world.fileToken(), fresh);
  t.is(world.kindOf(fresh), "primary");
  t.is(world.kindOf(old), "replaced");
  t.deepEqual(world.tokens.status(), {
    accessTokens: 0,
    sessions: 0,
    graceUntilMs,
    primaryDigest: world.nameOf(fresh),
  });
  t.not(world.tokens.status().primaryDigest, before.primaryDigest);
  t.false(ended?.aborted, "calls of the replaced token continue");
});

for (const [name, caller] of [
  ["the new primary", "token"],
  ["a root peer", "peer"],
] as const) {
  test(`primary: the window closes at a commit of ${name}`, async (t) => {
    await using world = await createTokenWorld();
    const old = await world.fileToken();
    const { token: fresh } = await world.tokens.rotate(undefined, 300);
    const ended = world.tokens.authenticate(old)?.ended;
    t.true(await world.tokens.commit(caller === "peer" ? undefined : world.nameOf(fresh)));
    t.is(world.kindOf(old), undefined);
    t.is(world.kindOf(fresh), "primary");
    t.true(ended?.aborted, "its calls end");
    t.is(world.tokens.status().graceUntilMs, undefined);
    t.false(await world.tokens.commit(undefined), "there is no window any more");
  });
}

test("primary: the replaced token can neither commit nor rotate, and changes nothing", async (t) => {
  await using world = await createTokenWorld();
  const old = await world.fileToken();
  const { token: fresh } = await world.tokens.rotate(undefined, 300);
  const status = world.tokens.status();
  await t.throwsAsync(world.tokens.commit(world.nameOf(old)), denied);
  await t.throwsAsync(world.tokens.rotate(world.nameOf(old), 300), denied);
  t.deepEqual(world.tokens.status(), status);
  t.is(await world.fileToken(), fresh);
  t.is(world.kindOf(old), "replaced");
});

test("primary: of concurrent rotations with one token, the first succeeds and the others are rejected", async (t) => {
  await using world = await createTokenWorld();
  const name = world.nameOf(await world.fileToken());
  const results = await Promise.allSettled([1, 2, 3].map(() => world.tokens.rotate(name, 300)));
  t.deepEqual(
    results.map(({ status }) => status),
    ["fulfilled", "rejected", "rejected"],
  );
});

test("primary: too many concurrent rotations are rejected", async (t) => {
  await using world = await createTokenWorld();
  const results = await Promise.allSettled(
    Array.from({ length: 20 }, () => world.tokens.rotate(undefined, 0)),
  );
  t.is(results.filter(({ status }) => status === "rejected").length, 4);
});

test("primary: the replaced token ends when the grace period has elapsed", async (t) => {
  await using world = await createTokenWorld();
  const old = await world.fileToken();
  const { token: fresh } = await world.tokens.rotate(undefined, 300);
  const ended = world.tokens.authenticate(old)?.ended;
  world.clock.pass(299_999);
  t.is(world.kindOf(old), "replaced");
  world.clock.pass(1);
  t.is(world.kindOf(old), undefined);
  t.is(world.tokens.status().graceUntilMs, undefined);
  world.clock.pass(250);
  t.true(ended?.aborted);
  t.is(world.kindOf(fresh), "primary");
  t.false(await world.tokens.commit(undefined));
  t.true(world.clock.isIdle);
});

test("primary: without a grace period the replaced token ends at once, after the response to its own call", async (t) => {
  await using world = await createTokenWorld();
  const old = await world.fileToken();
  const ended = world.tokens.authenticate(old)?.ended;
  const { token: fresh, graceUntilMs } = await world.tokens.rotate(world.nameOf(old), 0);
  t.is(graceUntilMs, world.clock.nowMs());
  t.is(world.kindOf(old), undefined);
  t.is(world.kindOf(fresh), "primary");
  t.false(ended?.aborted);
  await nextTurn();
  t.true(ended?.aborted);
});

test("primary: a rotation inside a window ends the oldest", async (t) => {
  await using world = await createTokenWorld();
  const first = await world.fileToken();
  const { token: second } = await world.tokens.rotate(undefined, 300);
  const ended = world.tokens.authenticate(first)?.ended;
  const { token: third } = await world.tokens.rotate(world.nameOf(second), 60);
  t.is(world.kindOf(first), undefined);
  t.true(ended?.aborted);
  t.is(world.kindOf(second), "replaced");
  t.is(world.kindOf(third), "primary");
  t.is(world.tokens.status().graceUntilMs, world.clock.nowMs() + 60_000);
});

test("primary: many calls may wait for the end of one token", async (t) => {
  await using world = await createTokenWorld();
  const ended = world.tokens.authenticate(await world.fileToken())?.ended;
  const warnings: Error[] = [];
  const onWarning = (warning: Error): void => void warnings.push(warning);
  process.on("warning", onWarning);
  for (let count = 0; count < 100; count++) ended?.addEventListener("abort", () => undefined);
  await nextTurn();
  process.off("warning", onWarning);
  t.deepEqual(warnings, []);
});

const scope = { appId: "web", session: "logs" } as const;
const issuer: ConsoleIssuer = { uid: 1000 };

test("console: none → issued → used once, by the first client", (t) => {
  const console = new ConsoleTokens<ConsoleIssuer>(new FakeClock());
  const { token } = console.issue(scope, issuer);
  t.true(isToken("console", token));
  const tries = Array.from({ length: 50 }, () => console.consume(token, scope));
  t.deepEqual(
    tries.filter((found) => found !== undefined),
    [issuer],
  );
});

test("console: issued → expired after 30 seconds", (t) => {
  const clock = new FakeClock();
  const console = new ConsoleTokens<ConsoleIssuer>(clock);
  const [early, late] = [console.issue(scope, issuer), console.issue(scope, issuer)];
  t.is(early.expiresAtMs, clock.nowMs() + 30_000);
  clock.pass(29_999);
  t.is(console.consume(early.token, scope), issuer);
  clock.pass(1);
  t.is(console.consume(late.token, scope), undefined);
});

test("console: another app or session is not opened, and the token remains valid for its own", (t) => {
  const console = new ConsoleTokens<ConsoleIssuer>(new FakeClock());
  const { token } = console.issue(scope, issuer);
  for (const [presented, wrong] of [
    [token, { ...scope, appId: "web-2" }],
    [token, { ...scope, session: "attach" }],
    [mintToken("console"), scope],
    [mintToken("access"), scope],
    ["", scope],
    ["x".repeat(1e6), scope],
  ] as const) {
    t.is(console.consume(presented, wrong), undefined);
  }
  t.is(console.consume(token, scope), issuer);
});

test("console: ends with the token of its requester", (t) => {
  const console = new ConsoleTokens<ConsoleIssuer>(new FakeClock());
  const ending = new AbortController();
  const { token } = console.issue(scope, { uid: 0, ended: ending.signal });
  ending.abort();
  t.is(console.consume(token, scope), undefined);
});

test("console: one user's unused tokens are limited, and do not count against others", (t) => {
  const clock = new FakeClock();
  const console = new ConsoleTokens<ConsoleIssuer>(clock);
  for (let count = 0; count < 100; count++) console.issue(scope, issuer);
  t.throws(() => console.issue(scope, issuer), { ...tooMany, message: /100 console tokens wait/ });
  t.notThrows(() => console.issue(scope, { uid: 1001 }));
  clock.pass(30_000);
  t.notThrows(() => console.issue(scope, issuer));
});

test("no token appears in the log", async (t) => {
  await using world = await createTokenWorld();
  const old = await world.fileToken();
  const access = world.tokens.issueAccess(600, "label", undefined).token;
  const { token: fresh } = await world.tokens.rotate(undefined, 300);
  world.tokens.revokeAccess();
  await world.tokens.commit(undefined);
  const logged = JSON.stringify(world.lines);
  t.true(world.lines.length >= 3);
  for (const token of [old, access, fresh]) t.false(logged.includes(token.slice(5)));
  await eventually(() => assert.ok(logged.includes(world.nameOf(fresh))));
});

// Page sessions, case by case with a fake clock.

const ann = { uid: 1000, root: false, ownerUid: 1000 };
const ben = { uid: 1001, root: false, ownerUid: 1001 };

/** As on the page: what it presents is known by its name. */
function open(world: TokenWorld, code: string) {
  return world.tokens.openSession(shortDigest(tokenDigest(code)));
}

test("a code opens one session with the identity of the requesting user", async (t) => {
  await using world = await createTokenWorld();
  const code = world.tokens.issueSessionCode(ann, 600).token;
  t.regex(code, /^svco_[\w-]{43}$/);
  t.like(world.tokens.authenticate(code), { kind: "code", user: ann, ended: undefined });
  const { token, expiresAtMs } = open(world, code);
  t.regex(token, /^svcs_[\w-]{43}$/);
  t.is(expiresAtMs, world.clock.nowMs() + 600_000);
  t.like(world.tokens.authenticate(token), { kind: "session", user: ann });
  t.is(world.tokens.authenticate(code), null, "it is used up");
  t.throws(() => open(world, code), { instanceOf: SvcError, code: "unauthenticated" });
  t.is(world.tokens.status().sessions, 1);
  t.is(world.tokens.status().accessTokens, 0);
});

test("a code is valid for 30 seconds, a session for its lifetime, and its calls end with it", async (t) => {
  await using world = await createTokenWorld();
  const token = open(world, world.tokens.issueSessionCode(ann, 600).token).token;
  const ended = world.tokens.authenticate(token)?.ended;
  // Expired ones are removed at intervals; they are invalid before that.
  world.clock.pass(100);
  const late = world.tokens.issueSessionCode(ann, 600).token;
  world.clock.pass(29_999);
  t.is(world.kindOf(late), "code");
  world.clock.pass(1);
  t.throws(() => open(world, late), { code: "unauthenticated" });
  world.clock.pass(100);
  const unswept = world.tokens.issueSessionCode(ann, 600).token;
  world.clock.pass(30_000);
  t.is(world.kindOf(unswept), undefined);
  world.clock.pass(539_799);
  t.is(world.kindOf(token), "session");
  t.false(ended?.aborted);
  world.clock.pass(1);
  t.is(world.kindOf(token), undefined);
  world.clock.pass(250);
  t.true(ended?.aborted, "within a second");
  t.true(world.clock.isIdle, "no timer runs when nothing can expire");
});

test("an expired session is invalid at once, before it is removed", async (t) => {
  await using world = await createTokenWorld();
  const { token: code } = world.tokens.issueSessionCode(ann, 600);
  // Between two cleanups.
  world.clock.pass(100);
  const { token } = open(world, code);
  const ended = world.tokens.authenticate(token)?.ended;
  world.clock.pass(599_999);
  t.is(world.kindOf(token), "session");
  world.clock.pass(1);
  t.false(ended?.aborted, "it is not removed yet");
  t.is(world.kindOf(token), undefined);
});

test("a rotation ends all sessions and codes, a revocation of access tokens none", async (t) => {
  await using world = await createTokenWorld();
  const code = world.tokens.issueSessionCode(ben, 600).token;
  const token = open(world, world.tokens.issueSessionCode(ann, 600).token).token;
  const ended = world.tokens.authenticate(token)?.ended;
  world.tokens.revokeAccess();
  t.is(world.kindOf(token), "session");
  await world.tokens.rotate(undefined, 300);
  t.deepEqual([world.kindOf(token), world.kindOf(code), ended?.aborted], [undefined, undefined, true]);
  t.is(world.tokens.status().sessions, 0);
});

test("one session or all of a user's are ended, and nobody else's", async (t) => {
  await using world = await createTokenWorld();
  const sessionOf = (user: typeof ann) => open(world, world.tokens.issueSessionCode(user, 600).token).token;
  const [first, second, third, others] = [sessionOf(ann), sessionOf(ann), sessionOf(ann), sessionOf(ben)];
  const waiting = world.tokens.issueSessionCode(ann, 600).token;
  t.is(world.tokens.endSessions({ uid: ann.uid, name: world.nameOf(first) }), 1);
  t.is(world.tokens.endSessions({ uid: ann.uid, name: "000000000000" }), 0);
  t.deepEqual([first, second, third].map(world.kindOf), [undefined, "session", "session"]);
  t.is(world.tokens.endSessions({ uid: ann.uid }), 2);
  t.deepEqual([second, third, waiting].map(world.kindOf), [undefined, undefined, undefined]);
  t.is(world.kindOf(others), "session");
});

test("one user's codes and sessions are limited, and do not count against others", async (t) => {
  await using world = await createTokenWorld();
  for (let n = 0; n < maxSessionsPerUid; n++) open(world, world.tokens.issueSessionCode(ann, 600).token);
  const code = world.tokens.issueSessionCode(ann, 600).token;
  t.throws(() => open(world, code), tooMany);
  t.is(world.kindOf(code), "code", "it is not used");
  for (let n = 1; n < maxCodesPerUid; n++) world.tokens.issueSessionCode(ann, 600);
  t.throws(() => world.tokens.issueSessionCode(ann, 600), tooMany);
  t.is(world.kindOf(open(world, world.tokens.issueSessionCode(ben, 600).token).token), "session");
  world.clock.pass(600_000);
  t.is(world.tokens.status().sessions, 0);
  t.notThrows(() => open(world, world.tokens.issueSessionCode(ann, 600).token));
});

test("no session survives its daemon", async (t) => {
  await using world = await createTokenWorld();
  const token = open(world, world.tokens.issueSessionCode(ann, 600).token).token;
  await world.restart();
  t.is(world.kindOf(token), undefined);
});

// Digests of tokens are always compared in constant time, which no measurement would show reliably.

const dir = new URL("../../../src/access/tokens/", import.meta.url);

test("digests are compared only with timingSafeEqual", async (t) => {
  for (const name of await readdir(dir)) {
    const source = await readFile(new URL(name, dir), "utf8");
    t.notRegex(source, /\.equals\(|\.compare\(|[dD]igest\)? *[=!]==? *(?!undefined|null)/, name);
  }
  const { isSameDigest } = await import("../../../src/access/tokens/token-digest.ts");
  t.regex(isSameDigest.toString(), /\{\s*return timingSafeEqual\(one, other\);\s*\}$/);
});
