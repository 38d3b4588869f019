import test from "ava";
import { SvcError } from "../../src/errors.ts";
import {
  EventLog,
  maxAgeMs,
  maxEvents,
  type EventStart,
  type NodeEvent,
} from "../../src/events/event-log.ts";
import { FakeClock } from "../support/fake-clock.ts";

function world() {
  const clock = new FakeClock();
  const errors: unknown[] = [];
  const log = new EventLog({ now: () => clock.nowMs(), onError: (error) => errors.push(error) });
  /** Appends events whose subjects are the numbers from `first` to `last`. */
  const append = (first: number, last = first): void => {
    for (let at = first; at <= last; at++) log.append({ kind: "run.began", subject: String(at) });
  };
  const all = async (start: Partial<EventStart> = {}, isWanted = (_event: NodeEvent) => true) =>
    Array.fromAsync(
      log.follow({ after: "", past: start.after === undefined, untilNow: true, ...start }, isWanted, never),
    );
  const read = async (...args: Parameters<typeof all>) =>
    (await all(...args)).filter(({ kind }) => kind !== "begin");
  const subjects = async (start?: Partial<EventStart>) =>
    (await read(start)).map(({ kind, subject }) => subject ?? kind);
  return { clock, errors, log, append, all, read, subjects };
}

const never = new AbortController().signal;

test("events come in order, from the oldest, from behind a cursor, or from now on", async (t) => {
  const { append, read, subjects } = world();
  append(1, 5);
  t.deepEqual(await subjects(), ["1", "2", "3", "4", "5"]);
  const cursor = (await read())[2]?.cursor ?? "";
  t.deepEqual(await subjects({ after: cursor }), ["4", "5"]);
  t.deepEqual(await subjects({ past: false }), []);
  append(6);
  t.deepEqual(await subjects({ after: cursor }), ["4", "5", "6"]);
  t.deepEqual(
    (await read({}, ({ subject }) => subject === "3")).map(({ subject }) => subject),
    ["3"],
  );
});

test("a stream begins at once, behind what was seen", async (t) => {
  const { log, append, all } = world();
  append(1, 3);
  const [begin, , second] = await all();
  t.is(begin?.kind, "begin");
  t.deepEqual(
    (await all({ after: begin?.cursor ?? "" })).map(({ kind, subject }) => subject ?? kind),
    ["begin", "1", "2", "3"],
  );
  t.is((await all({ after: second?.cursor ?? "" }))[0]?.cursor, second?.cursor);
  const events = log.follow({ after: "", past: false, untilNow: false }, () => false, never);
  t.like((await events.next()).value, { kind: "begin" }, "before anything has happened");
});

test("who follows hears of each at once, until it leaves", async (t) => {
  const { log, append } = world();
  const leave = new AbortController();
  const events = log.follow({ after: "", past: false, untilNow: false }, () => true, leave.signal);
  await events.next();
  const next = async () => (await events.next()).value?.subject;
  const first = next();
  append(1, 2);
  t.is(await first, "1");
  t.is(await next(), "2");
  const third = events.next();
  leave.abort(new SvcError("canceled", "left"));
  await t.throwsAsync(third, { message: "left" });
});

test("what is older than an hour, or beyond ten thousand, is not held; who comes for it is told so", async (t) => {
  const { clock, append, read, subjects } = world();
  append(1, 3);
  const [first] = await read();
  clock.pass(maxAgeMs);
  t.deepEqual(await subjects(), []);
  t.deepEqual(await subjects({ after: first?.cursor ?? "" }), ["reset"]);
  append(4, 3 + maxEvents + 10);
  const held = await subjects();
  t.is(held.length, maxEvents);
  t.is(held[0], "14");
  const [reset] = await read({ after: first?.cursor ?? "" });
  t.is(reset?.kind, "reset");
  append(99_999);
  t.deepEqual(await subjects({ after: reset?.cursor ?? "" }), ["99999"], "it goes on behind the reset");
});

test("a reader that is too slow starts over, and nothing waits for it", async (t) => {
  const { log, append } = world();
  const leave = new AbortController();
  const events = log.follow({ after: "", past: false, untilNow: false }, () => true, leave.signal);
  await events.next();
  const next = async () => (await events.next()).value;
  const first = next();
  append(1);
  t.is((await first)?.subject, "1");
  append(2, maxEvents + 5);
  t.is((await next())?.kind, "reset");
  const news = next();
  append(0);
  t.is((await news)?.subject, "0");
});

test("a cursor of an earlier daemon asks for a new look, one that is none is refused", async (t) => {
  const { append, read, subjects } = world();
  append(1);
  t.deepEqual(await subjects({ after: "0123456789ab-1" }), ["reset"]);
  const ahead = ((await read())[0]?.cursor ?? "").replace(/\d+$/, "2");
  t.deepEqual(await subjects({ after: ahead }), ["reset"], "nor has it told of what comes");
  for (const after of ["1", "0123456789ab", "0123456789ab-", "0123456789ab-1 "]) {
    await t.throwsAsync(subjects({ after }), { instanceOf: SvcError, message: /after/ }, after);
  }
});

test("a listener that throws takes nothing from the others", (t) => {
  const { log, errors, append } = world();
  const heard: string[] = [];
  log.listen(() => {
    throw new Error("no");
  });
  const listening = log.listen(({ subject = "" }) => heard.push(subject));
  append(1);
  listening[Symbol.dispose]();
  append(2);
  t.deepEqual(heard, ["1"]);
  t.is(errors.length, 2);
});
