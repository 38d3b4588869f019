/** Page sessions, case by case with a fake clock. */
import test from "ava";
import { SvcError } from "../../../src/errors.ts";
import { maxCodesPerUid, maxSessionsPerUid } from "../../../src/access/tokens/session-tokens.ts";
import { tokenDigest, shortDigest } from "../../../src/access/tokens/token-digest.ts";
import { createTokenWorld, type TokenWorld } from "./support/world.ts";

const ann = { uid: 1000, root: false, ownerUid: 1000 };
const ben = { uid: 1001, root: false, ownerUid: 1001 };
const tooMany = { instanceOf: SvcError, code: "resource_exhausted" };

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
