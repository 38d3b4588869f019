/** The order of waiting installs. */
import test from "ava";
import { InstallLimiter } from "../../src/apps/changes/install-limiter.ts";
import { SvcError } from "../../src/errors.ts";

const bounds = { maxInstallsPerUser: 2, maxInstalls: 3, maxWaitingInstallsPerUser: 2 };
const root = { uid: 0, root: true, ownerUid: 0 };
const user = (uid: number) => ({ uid, root: false, ownerUid: uid });
const [ann, ben, cat] = [user(1), user(2), user(3)];

/** Waits for slots and records who gets one, in order. */
class Log {
  readonly limiter: InstallLimiter;
  readonly begun: string[] = [];
  readonly said: string[] = [];

  constructor(sharedMs?: number) {
    this.limiter = new InstallLimiter(bounds, sharedMs);
  }

  take(name: string, caller: typeof ann, signal?: AbortSignal): Promise<Disposable> {
    const taken = this.limiter.take(caller, {
      onProgress: ({ message }) => this.said.push(`${name}: ${String(message)}`),
      ...(signal && { signal }),
    });
    taken.then(
      () => this.begun.push(name),
      () => undefined,
    );
    return taken;
  }
}

test("installs are limited per user and in total; the others wait, report it, and run user by user", async (t) => {
  const log = new Log();
  const first = await log.take("ann 1", ann);
  const second = await log.take("ann 2", ann);
  const third = log.take("ann 3", ann);
  const fourth = log.take("ann 4", ann);
  const bens = await log.take("ben 1", ben);
  const cats = log.take("cat 1", cat);
  t.deepEqual(log.begun, ["ann 1", "ann 2", "ben 1"]);
  t.deepEqual(
    log.said,
    ["ann 3", "ann 4", "cat 1"].map(
      (name) => `${name}: Waiting: at most 2 installs of a user and 3 of all users run at a time`,
    ),
  );
  bens[Symbol.dispose]();
  bens[Symbol.dispose]();
  const catsTurn = await cats;
  first[Symbol.dispose]();
  await third;
  catsTurn[Symbol.dispose]();
  second[Symbol.dispose]();
  await fourth;
  t.deepEqual(log.begun.slice(3), ["cat 1", "ann 3", "ann 4"]);
});

test("root's installs wait only for root's", async (t) => {
  const log = new Log();
  await Promise.all([log.take("ann 1", ann), log.take("ann 2", ann), log.take("ben 1", ben)]);
  const [first] = await Promise.all([log.take("root 1", root), log.take("root 2", root)]);
  const third = log.take("root 3", root);
  t.is(log.said.length, 1);
  first[Symbol.dispose]();
  await third;
  t.is(log.begun.at(-1), "root 3");
});

test("two users with slow installs do not keep a third one waiting", async (t) => {
  const log = new Log(1);
  await Promise.all([log.take("ann 1", ann), log.take("ann 2", ann), log.take("ben 1", ben)]);
  await log.take("cat 1", cat);
  const anns = log.take("ann 3", ann);
  await log.take("cat 2", cat);
  t.deepEqual(log.begun, ["ann 1", "ann 2", "ben 1", "cat 1", "cat 2"], "ann has two already");
  void anns;
});

test("a waiting install can be canceled, and too many of one user are rejected", async (t) => {
  const log = new Log();
  const turns = await Promise.all([log.take("1", ann), log.take("2", ann)]);
  const leaver = new AbortController();
  const left = log.take("3", ann, leaver.signal);
  const fourth = log.take("4", ann);
  const error = await t.throwsAsync(log.take("5", ann), { instanceOf: SvcError });
  t.like(error, { code: "resource_exhausted", reason: "too_many" });
  t.regex(error.message, /max_waiting_installs_per_user is 2/);
  leaver.abort();
  t.like(await t.throwsAsync(left, { instanceOf: SvcError }), { code: "canceled" });
  turns[0][Symbol.dispose]();
  await fourth;
  t.deepEqual(log.begun, ["1", "2", "4"]);
  const gone = new AbortController();
  gone.abort();
  t.like(await t.throwsAsync(log.take("6", ann, gone.signal), { instanceOf: SvcError }), {
    code: "canceled",
  });
});
