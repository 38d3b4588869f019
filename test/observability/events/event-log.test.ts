/** The log of events, including those of this node. */
import assert from "node:assert/strict";
import test from "ava";
import { NodeEvents } from "../../../src/daemon/node-events.ts";
import type { EngineChange } from "../../../src/engine/engine-state.ts";
import { SvcError } from "../../../src/errors.ts";
import type { Alert } from "../../../src/observability/alerts/alert-store.ts";
import {
  EventLog,
  maxAgeMs,
  maxEvents,
  type EventStart,
  type NodeEvent,
  maySee,
} from "../../../src/observability/events/event-log.ts";
import { eventually } from "../../support/eventually.ts";
import { FakeClock } from "../../support/fake-clock.ts";

function world() {
  const clock = new FakeClock();
  const errors: unknown[] = [];
  const log = new EventLog({ now: () => clock.nowMs(), onError: (error) => errors.push(error) });
  /** Appends events whose subjects are the numbers from `first` to `last`. */
  const append = (first: number, last = first): void => {
    for (let at = first; at <= last; at++) log.append({ kind: "run.began", subject: String(at) });
  };
  const all = async (start: Partial<EventStart> = {}, matches = (_event: NodeEvent) => true) =>
    Array.fromAsync(
      log.follow({ after: "", past: start.after === undefined, untilNow: true, ...start }, matches, never),
    );
  const read = async (...args: Parameters<typeof all>) =>
    (await all(...args)).filter(({ kind }) => kind !== "begin");
  const subjects = async (start?: Partial<EventStart>) =>
    (await read(start)).map(({ kind, subject }) => subject ?? kind);
  return { clock, errors, log, append, all, read, subjects };
}

const never = new AbortController().signal;

test("events are read in order, from the oldest, after a cursor, or from now on", async (t) => {
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

test("a stream starts at once, after the seen events", async (t) => {
  const { log, append, all } = world();
  append(1, 3);
  const [begin, , second] = await all();
  t.is(begin?.kind, "begin");
  t.deepEqual(
    (await all({ after: begin?.cursor ?? "" })).map(({ kind, subject }) => subject ?? kind),
    ["begin", "1", "2", "3"],
  );
  const [again] = await all({ after: second?.cursor ?? "" });
  t.deepEqual(
    (await all({ after: again?.cursor ?? "" })).map(({ kind, subject }) => subject ?? kind),
    ["begin", "3"],
    "the cursor at the start of a stream is its position",
  );
  const events = log.follow({ after: "", past: false, untilNow: false }, () => false, never);
  t.like((await events.next()).value, { kind: "begin" }, "before anything has happened");
});

test("a follower receives each event at once, until it disconnects", async (t) => {
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

test("events older than an hour, or beyond ten thousand, are dropped; a follower that needs them gets a reset", async (t) => {
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
  t.deepEqual(await subjects({ after: reset?.cursor ?? "" }), ["99999"], "it continues after the reset");
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

test("a flood of one owner's events displaces only that owner's own", async (t) => {
  const { log, read, all } = world();
  const add = (owner: number | undefined, subject: string): void =>
    log.append({ kind: "run.began", subject, ...(owner !== undefined && { owner }) });
  const of = (owner: number) => [(event: NodeEvent) => event.owner === owner, never] as const;
  for (let n = 0; n < 100; n++) for (const owner of [undefined, 0, 1002]) add(owner, String(n));
  const cursor = (await read()).at(-1)?.cursor ?? "";
  const first = (await read())[0]?.cursor ?? "";
  const beganMs = performance.now();
  for (let n = 0; n < 5 * maxEvents; n++) add(1001, String(n));
  t.log(`${Math.round(performance.now() - beganMs)} ms for ${5 * maxEvents} events`);
  for (const owner of [undefined, 0, 1002])
    t.is((await read({}, (event) => event.owner === owner)).length, 100, String(owner));
  t.is((await read({}, of(1001)[0])).length, maxEvents - 100);

  const from = (after: string, mayHearOf: (owner: number | undefined) => boolean) =>
    Array.fromAsync(log.follow({ after, past: false, untilNow: true }, () => true, never, mayHearOf));
  const [begin] = await from(first, (owner) => owner === 1002 || owner === undefined);
  t.is(begin?.kind, "begin", "others have no gap");
  for (const mayHearOf of [(owner: number | undefined) => owner === 1001, () => true])
    t.is((await from(cursor, mayHearOf))[0]?.kind, "reset", "a follower with missed events is notified");
  t.is((await all())[0]?.kind, "begin");
});

test("a cursor of an earlier daemon gets a reset, and an invalid one is rejected", async (t) => {
  const { append, read, subjects } = world();
  append(1);
  t.deepEqual(await subjects({ after: "0123456789ab-1" }), ["reset"]);
  t.deepEqual(await subjects({ after: "f".repeat(32) }), ["reset"]);
  const other = world();
  other.append(1);
  const [event] = await other.read();
  t.deepEqual(await subjects({ after: event?.cursor ?? "" }), ["reset"]);
  t.is((await read()).length, 1);
  for (const after of ["1", "0123456789ab", "0123456789ab-", "0123456789ab-1 ", "f".repeat(31)]) {
    await t.throwsAsync(subjects({ after }), { instanceOf: SvcError, message: /after/ }, after);
  }
});

test("cursors do not reveal how many events of others lie between them", async (t) => {
  const { append, all, subjects } = world();
  const isOwn = ({ subject }: NodeEvent): boolean => subject === "1" || subject === "500";
  append(1, 500);
  const own = (await all({}, isOwn)).map(({ cursor }) => cursor);
  const quiet = [await all({ past: false }), await all({ past: false })].map(
    ([begin]) => begin?.cursor ?? "",
  );
  const cursors = [...own, ...quiet];
  t.is(
    new Set(cursors).size,
    5,
    "the cursors of one position differ, so that equal ones do not reveal that nothing happened",
  );
  for (const cursor of cursors) t.regex(cursor, /^[0-9a-f]{32}$/);
  const heads = cursors.map((cursor) => cursor.slice(0, 8));
  t.is(new Set(heads).size, 5, "no part of the number is readable");
  t.deepEqual(
    await subjects({ after: own[1] ?? "" }),
    Array.from({ length: 499 }, (_, at) => String(at + 2)),
  );
});

test("a listener that throws does not affect the others", (t) => {
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

const root = { uid: 0, root: true };
const owner = { uid: 7, root: false };
const other = { uid: 8, root: false };

/** Events of a host with the app `web` of uid 7. */
async function nodeWorld() {
  const listeners = new Set<(change: EngineChange) => void>();
  const events = new NodeEvents({
    now: Date.now,
    onError: assert.ifError,
    finder: { ownerOf: (id) => (id === "web" ? owner.uid : undefined) },
    changes: { listen: () => Promise.resolve({ [Symbol.dispose]: () => undefined }) },
    engine: {
      onChange: (listener) => {
        listeners.add(listener);
        return { [Symbol.dispose]: () => void listeners.delete(listener) };
      },
    },
  });
  events.start();
  await eventually(() => assert.equal(listeners.size, 1));
  const heard = async (user: { uid: number; root: boolean }): Promise<string[]> => {
    const start = { after: "", past: true, untilNow: true };
    const all = await Array.fromAsync(events.log.follow(start, (event) => maySee(event, user), never));
    return all
      .filter(({ kind }) => kind !== "begin")
      .map(({ kind, appId = "", subject = "" }) => `${kind} ${appId} ${subject}`);
  };
  const change = (ids: readonly string[]): void => {
    for (const listener of listeners) listener({ kind: "containers", ids: new Set(ids) });
  };
  return { events, heard, change, [Symbol.asyncDispose]: () => events[Symbol.asyncDispose]() };
}

test("container events reach only root, each once within a window, and a storm of them as one", async (t) => {
  await using w = await nodeWorld();
  w.change(["a"]);
  w.change(["a", "b"]);
  await eventually(async () =>
    assert.deepEqual(await w.heard(root), ["container.changed  a", "container.changed  b"]),
  );
  w.change(Array.from({ length: 21 }, (_, at) => String(at)));
  await eventually(async () => assert.equal((await w.heard(root)).at(-1), "container.changed  "));
  t.is((await w.heard(root)).length, 3);
  t.deepEqual(await w.heard(owner), []);
});

test("an app's alerts reach its owner, the host's reach everybody, and those of removed apps reach root", async (t) => {
  await using w = await nodeWorld();
  const alert = (subject: string): Alert => ({
    ...{ rule: "r", subject, message: "m", firedAtMs: 1, isReported: false },
    resolvedAtMs: undefined,
  });
  w.events.onAlert(alert("web"), false);
  w.events.onAlert(alert("gone"), false);
  w.events.onAlert({ ...alert("/srv"), resolvedAtMs: 2 }, true);
  const [ofApp, ofGone, ofHost] = ["alert.began web web", "alert.began gone gone", "alert.ended  /srv"];
  t.deepEqual(await w.heard(root), [ofApp, ofGone, ofHost]);
  t.deepEqual(await w.heard(owner), [ofApp, ofHost]);
  t.deepEqual(await w.heard(other), [ofHost]);
});
