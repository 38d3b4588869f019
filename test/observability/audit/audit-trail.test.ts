/** The audit log: its records, their integrity, and calls without an effect. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { fileURLToPath } from "node:url";
import test from "ava";
import { SvcError } from "../../../src/errors.ts";
import { AuditReader } from "../../../src/observability/audit/audit-reader.ts";
import {
  auditContentOf,
  hashOf,
  namedContent,
  type AuditRow,
} from "../../../src/observability/audit/audit-record.ts";
import {
  AuditTrail,
  recordsLostMethod,
  type AuditTrailOptions,
} from "../../../src/observability/audit/audit-trail.ts";
import { rejectedCallsMethod } from "../../../src/observability/audit/ineffective-calls.ts";
import type { Store } from "../../../src/store/store.ts";
import { openStore, temporaryDir, temporaryStore } from "../../store/support/temporary-store.ts";
import { fixtureEnvironment } from "../../support/fixture-environment.ts";
import { auditedCall } from "./support/calls.ts";

// The audit log stores records in one chain that reveals every later change, for all processes of a store.

const now = () => 1_750_000_000_123;
const userName = (uid: number) => Promise.resolve(uid === 0 ? "root" : `user${uid}`);

function recorder() {
  const errors: object[] = [];
  return { errors, log: { error: (details: object) => void errors.push(details) } };
}

async function openTrail(options: Partial<AuditTrailOptions> = {}) {
  const { dir, store, ...rest } = await temporaryStore();
  const { errors, log } = recorder();
  const trail = new AuditTrail({ store, log, now, userName, ...options });
  return { dir, store, trail, errors, reader: new AuditReader(store), ...rest };
}

test("records are read back as written, newest first, page by page", async (t) => {
  await using open = await openTrail();
  const { trail, reader } = open;
  for (let n = 1; n <= 150; n++) trail.append(auditedCall(n));
  await trail.flush();
  const first = reader.list({}, 100, "");
  t.deepEqual(first.records[0], {
    seq: 150,
    time: now(),
    request_id: "r-150",
    method: "svc.v1.AppService/StartApp",
    protocol: "rest",
    uid: 0,
    user: "root",
    kind: "peer",
    owner_uid: null,
    peer_uid: 0,
    token_digest: null,
    target: "app-150",
    result: "ok",
    reason: null,
    duration_ms: 150,
    address: null,
    attempts: null,
    hash: first.records[0]!.hash,
  });
  const second = reader.list({}, 100, first.nextPageToken);
  t.deepEqual(
    [...first.records, ...second.records].map(({ seq }) => seq),
    Array.from({ length: 150 }, (_, n) => 150 - n),
  );
  t.is(second.nextPageToken, "");
  t.throws(() => reader.list({}, 1, "nonsense"), { instanceOf: SvcError, message: /next_page_token/ });
  t.like(await reader.verify(), { problem: undefined, records: 150, head: { seq: 150 } });
});

test("names are looked up after the calls, without delaying them", async (t) => {
  let answer = (_name: string): void => undefined;
  const asked = new Promise<string>((resolve) => (answer = resolve));
  await using open = await openTrail({ userName: () => asked });
  const { trail, reader } = open;
  trail.append(auditedCall(1));
  trail.append(auditedCall(2, { user: { uid: 2 ** 32 - 1, kind: "anonymous", ownerUid: 2 ** 32 - 1 } }));
  answer("ann");
  await trail.flush();
  t.deepEqual(
    reader.list({}, 10, "").records.map(({ user }) => user),
    ["", "ann"],
  );
});

test("filters must all match", async (t) => {
  await using open = await openTrail();
  const { trail, reader } = open;
  const ann = { uid: 1000, kind: "peer", ownerUid: 1000, peerUid: 1000 };
  trail.append(auditedCall(1));
  trail.append(auditedCall(2, { user: ann }));
  trail.append(auditedCall(3, { user: ann, method: "svc.v1.AppService/StopApp", target: "web" }));
  trail.append(auditedCall(4, { method: "svc.v1.AppService/StopApp", target: "web" }));
  await trail.flush();
  const seqs = (filter: Parameters<AuditReader["list"]>[0]) =>
    reader.list(filter, 10, "").records.map(({ seq }) => seq);
  t.deepEqual(seqs({ uid: 1000 }), [3, 2]);
  t.deepEqual(seqs({ method: "svc.v1.AppService/StopApp" }), [4, 3]);
  t.deepEqual(seqs({ target: "web", uid: 0 }), [4]);
  t.deepEqual(seqs({ afterSeq: 2 }), [4, 3]);
  t.deepEqual(seqs({ uid: 7 }), []);
});

test("unusual texts keep the chain intact", async (t) => {
  await using open = await openTrail();
  const { trail, reader } = open;
  const odd = ["a\0b", "\ud800", "x\udfff", "🙂\u202e", '"\\\n', "\u{fffd}", ""];
  for (const target of odd) trail.append(auditedCall(1, { target }));
  await trail.flush();
  t.deepEqual(
    reader.list({}, 10, "").records.map(({ target }) => target),
    ["a\u{fffd}b", "\u{fffd}", "x\u{fffd}", "🙂\u202e", '"\\\n', "\u{fffd}", ""].toReversed(),
  );
  t.is((await reader.verify()).problem, undefined);
});

const tampering: [what: string, sql: string, problem: RegExp][] = [
  ["a changed target", "UPDATE audit SET target = 'other' WHERE seq = 5", /record 5 is not what was written/],
  ["a changed caller", "UPDATE audit SET uid = 1 WHERE seq = 5", /record 5 is not/],
  ["a changed result", "UPDATE audit SET result = 'ok ' WHERE seq = 5", /record 5 is not/],
  ["a changed time", "UPDATE audit SET time = time - 1 WHERE seq = 5", /record 5 is not/],
  ["a null filled in", "UPDATE audit SET owner_uid = 1000 WHERE seq = 5", /record 5 is not/],
  ["a changed hash", "UPDATE audit SET hash = zeroblob(32) WHERE seq = 5", /record 5 is not/],
  ["a record taken out", "DELETE FROM audit WHERE seq = 5", /record 5 is missing/],
  ["the newest taken out", "DELETE FROM audit WHERE seq = 10", /record 10 is missing/],
  ["the oldest taken out", "DELETE FROM audit WHERE seq = 1", /record 1 is missing/],
  ["all taken out", "DELETE FROM audit", /record 1 is missing/],
  [
    "two exchanged",
    "UPDATE audit SET seq = 99 WHERE seq = 5; UPDATE audit SET seq = 5 WHERE seq = 6; UPDATE audit SET seq = 6 WHERE seq = 99",
    /record 5 is not/,
  ],
  ["another head", "UPDATE audit_chain SET head_hash = zeroblob(32)", /record 10 is not the one/],
  ["another anchor", "UPDATE audit_chain SET anchor_hash = randomblob(32)", /record 1 is not/],
];

for (const [what, sql, problem] of tampering) {
  test(`${what} is detected`, async (t) => {
    await using open = await openTrail();
    const { dir, trail, reader } = open;
    for (let n = 1; n <= 10; n++) trail.append(auditedCall(n));
    await trail.flush();
    t.is((await reader.verify()).problem, undefined);
    const database = new DatabaseSync(join(dir, "svc.db"));
    database.exec(sql);
    database.close();
    t.regex((await reader.verify()).problem ?? "", problem);
  });
}

test("old records are pruned, and the chain is verified from the last pruned one on", async (t) => {
  await using open = await openTrail({ limit: 100 });
  const { store, trail, reader } = open;
  for (let n = 1; n <= 1_000; n++) trail.append(auditedCall(n));
  await trail.flush();
  t.deepEqual(
    { ...store.get<object>("SELECT count(*) AS n, min(seq) AS first, max(seq) AS last FROM audit") },
    { n: 100, first: 901, last: 1_000 },
  );
  t.like(await reader.verify(), {
    problem: undefined,
    records: 100,
    anchor: { seq: 900 },
    head: { seq: 1_000 },
  });
});

function callOf(uid: number, n: number) {
  return auditedCall(n, { user: { uid, kind: "peer", ownerUid: uid, peerUid: uid } });
}

/** How many records each user has, by uid. */
function shares(store: Store): Record<string, number> {
  const rows = store.all<{ uid: number; n: number }>("SELECT uid, count(*) AS n FROM audit GROUP BY uid");
  return Object.fromEntries(rows.map(({ uid, n }) => [uid, n]));
}

test("a flood of one user's calls prunes only that user's own records", async (t) => {
  await using open = await openTrail({ limit: 100, rootUid: 0 });
  const { store, trail, reader } = open;
  for (let n = 0; n < 600; n++) {
    trail.append(callOf(1000, n));
    if (n % 60 === 0) trail.append(callOf(1001, n));
    if (n % 10 === 0) trail.append(callOf(0, n));
  }
  await trail.flush();
  t.deepEqual(shares(store), { 0: 60, 1000: 20, 1001: 10 });
  t.like(reader.list({ uid: 1000 }, 100, "").records.at(-1), { target: "app-580" });
  t.like(await reader.verify(), { problem: undefined, records: 90, anchor: { seq: 1 }, head: { seq: 670 } });
  const { gaps } = store.get<{ gaps: number }>("SELECT count(*) AS gaps FROM audit_gaps")!;
  t.true(gaps <= 90, `${gaps} gaps`);
});

test("users with many records make space for users with few", async (t) => {
  await using open = await openTrail({ limit: 100, rootUid: 0 });
  const { store, trail, reader } = open;
  for (let n = 0; n < 3; n++) trail.append(callOf(999, n));
  for (let n = 0; n < 100; n++) trail.append(callOf(0, n));
  for (let n = 0; n < 40; n++) for (let uid = 1000; uid < 1010; uid++) trail.append(callOf(uid, n));
  await trail.flush();
  const { 0: root, 999: few, ...many } = shares(store);
  t.is(root, 100);
  t.is(few, 3);
  const held = Object.values(many);
  t.is(held.length, 10);
  t.true(
    held.every((n) => n >= 4 && n <= 20),
    JSON.stringify(many),
  );
  t.true(held.reduce((sum, n) => sum + n) <= 97 + 64);
  t.like(await reader.verify(), { problem: undefined });
});

for (const [what, sql, problem] of [
  ["a record before a gap that is taken out", "DELETE FROM audit WHERE seq = 1", /record 1 is missing/],
  [
    "a record between gaps that is taken out",
    "DELETE FROM audit WHERE seq = (SELECT max(seq) FROM audit WHERE uid = 1001)",
    /record \d+ is missing/,
  ],
  ["a gap that is taken out", "DELETE FROM audit_gaps WHERE first_seq = 2", /record 2 is missing/],
  ["a gap with another hash", "UPDATE audit_gaps SET hash = zeroblob(32)", /is not what was written/],
] as const) {
  test(`${what} is detected`, async (t) => {
    await using open = await openTrail({ limit: 100, rootUid: 0 });
    const { dir, trail, reader } = open;
    for (let n = 0; n < 100; n++) {
      if (n % 10 === 0) trail.append(callOf(1001, n));
      trail.append(callOf(1000, n));
    }
    await trail.flush();
    t.like(await reader.verify(), { problem: undefined, records: 30 });
    const database = new DatabaseSync(join(dir, "svc.db"));
    database.exec(sql);
    database.close();
    t.regex((await reader.verify()).problem ?? "", problem);
  });
}

test("verification works while records are added and pruned", async (t) => {
  await using open = await openTrail({ limit: 1_500 });
  const { trail, reader } = open;
  for (let n = 0; n < 1_500; n++) trail.append(auditedCall(n));
  await trail.flush();
  const verified = new AbortController();
  const appending = (async () => {
    for (let n = 0; !verified.signal.aborted; n++) {
      for (let k = 0; k < 64; k++) trail.append(auditedCall(n));
      await trail.flush();
    }
  })();
  try {
    for (let round = 0; round < 10; round++) t.is((await reader.verify()).problem, undefined);
  } finally {
    verified.abort();
    await appending;
  }
  t.true((await reader.verify()).anchor.seq > 0, "records were pruned in between");
});

test("the hash of a record is the same in every version", (t) => {
  const recorded = { reason: "denied", address: "::1", attempts: 3, token_digest: "abc", owner_uid: 5 };
  const content = { ...namedContent(auditContentOf(auditedCall(7), now()), "root"), ...recorded };
  t.is(
    hashOf(Buffer.alloc(32), 7, content).toString("hex"),
    "ca71580e42dff2b66b901e2df9c014f9fe9f545696e9de853b8cde955e2e9be7",
  );
});

test("a read of the trail ends at its head, however many records are added", async (t) => {
  const content = auditContentOf(auditedCall(1), now());
  const hashes: Buffer[] = [Buffer.alloc(32)];
  const ends = { anchor_seq: 0, anchor_hash: hashes[0], head_seq: 250 };
  for (let seq = 1; seq <= ends.head_seq; seq++) hashes.push(hashOf(hashes[seq - 1]!, seq, content));
  const [head_hash] = hashes.slice(-1);
  // Each page that is read is full.
  const all = (_sql: string, from: number, limit: number): AuditRow[] =>
    Array.from({ length: limit }, (_, at) => {
      const seq = from + at + 1;
      const hash = (hashes[seq] ??= hashOf(hashes[seq - 1]!, seq, content));
      return { ...content, seq, hash };
    });
  const store = { get: () => ({ ...ends, head_hash }), all } as Pick<Store, "all" | "get">;
  const verified = await new AuditReader(store).verify(AbortSignal.timeout(10_000));
  t.like(verified, { problem: undefined, records: 300, head: { seq: ends.head_seq } });
});

test("unwritten records are logged, and the trail states how many are missing", async (t) => {
  await using open = await openTrail();
  const { store, reader } = open;
  const { errors, log } = recorder();
  let isBroken = true;
  const flaky: AuditTrailOptions["store"] = {
    write: (statements, options) =>
      isBroken ? Promise.reject(new SvcError("unavailable", "busy")) : store.write(statements, options),
  };
  const trail = new AuditTrail({ store: flaky, log, now, userName, maxPending: 3 });
  for (let n = 1; n <= 5; n++) trail.append(auditedCall(n));
  await trail.flush();
  t.is(trail.lost, 5, "two that did not fit, three that the store rejected");
  t.is(errors.length, 3);
  t.regex(JSON.stringify(errors), /app-5/, "the log has the lost records");
  isBroken = false;
  trail.append(auditedCall(6));
  await trail.flush();
  t.deepEqual(
    reader.list({}, 10, "").records.map(({ method, target }) => [method, target]),
    [
      ["svc.v1.AppService/StartApp", "app-6"],
      [recordsLostMethod, "5"],
    ],
  );
  t.is((await reader.verify()).problem, undefined);
});

test("on a full disk, successful changes are recorded as essential, and rejected ones are not", async (t) => {
  await using open = await openTrail();
  const { store, reader } = open;
  const { errors, log } = recorder();
  const fullDisk: AuditTrailOptions["store"] = {
    write: (statements, options) =>
      options?.essential === true
        ? store.write(statements, options)
        : Promise.reject(new SvcError("disk_full", "the disk is full")),
  };
  const trail = new AuditTrail({ store: fullDisk, log, now, userName });
  trail.append(auditedCall(1, { method: "svc.v1.AppService/StopApp" }));
  trail.append(auditedCall(2, { result: "permission_denied", reason: "root_required" }));
  await trail.flush();
  t.deepEqual(
    reader.list({}, 10, "").records.map(({ request_id, method, target }) => [request_id, method, target]),
    [
      ["r-1", "svc.v1.AppService/StopApp", "app-1"],
      ["", recordsLostMethod, "1"],
    ],
  );
  t.is(errors.length, 1);
});

function appendIn(dir: string, count: number) {
  const path = fileURLToPath(new URL("./support/append.ts", import.meta.url));
  const child = spawn(process.execPath, [path, dir, String(count)], {
    stdio: ["ignore", "pipe", "inherit"],
    env: fixtureEnvironment,
  });
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (chunk: string) => (output += chunk));
  const exited = once(child, "close");
  return { child, exited, acknowledged: () => Number(output.split("\n").at(-2) ?? 0) };
}

test("several processes append to one chain", async (t) => {
  t.timeout(120_000);
  await using dir = await temporaryDir();
  await (await openStore({ dir: dir.path }))[Symbol.asyncDispose]();
  const writers = Array.from({ length: 3 }, () => appendIn(dir.path, 200));
  for (const { exited } of writers) t.deepEqual(await exited, [0, null]);
  await using store = await openStore({ dir: dir.path });
  t.like(await new AuditReader(store).verify(), { problem: undefined, records: 600, head: { seq: 600 } });
});

test("kill -9 leaves an intact chain with all durable records", async (t) => {
  t.timeout(180_000);
  await using dir = await temporaryDir();
  let durable = 0;
  for (let round = 0; round < 5; round++) {
    const { child, exited, acknowledged } = appendIn(dir.path, 0);
    while (acknowledged() < 10) await new Promise((resolve) => setTimeout(resolve, 5));
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 40));
    child.kill("SIGKILL");
    await exited;
    durable += acknowledged();
    await using store = await openStore({ dir: dir.path });
    const { problem, records } = await new AuditReader(store).verify();
    t.is(problem, undefined);
    t.true(records >= durable, `${records} of at least ${durable} records`);
    durable = records;
  }
});

// Calls without effect are recorded, and a flood of them does not displace other records.

const minuteMs = 60_000;

/** A trail with a fake clock. */
async function openQuietTrail() {
  const { store, ...rest } = await temporaryStore();
  let nowMs = 1_750_000_000_000;
  const timers = new Set<{ action: () => void }>();
  const trail = new AuditTrail({
    store,
    log: { error: () => undefined },
    userName: () => Promise.resolve(""),
    now: () => nowMs,
    every: (_intervalMs, action) => {
      const timer = { action };
      timers.add(timer);
      return { [Symbol.dispose]: () => void timers.delete(timer) };
    },
  });
  const reader = new AuditReader(store);
  return {
    ...rest,
    trail,
    reader,
    timers,
    pass(ms: number) {
      nowMs += ms;
      for (const { action } of [...timers]) action();
    },
    /** Oldest first: caller, call, and count. */
    async recorded() {
      await trail.flush();
      return reader
        .list({}, 1000, "")
        .records.toReversed()
        .map(({ address, method, result, attempts }) => [
          address,
          method.split("/")[1],
          result,
          attempts ?? 1,
        ]);
    },
  };
}

const nobody = { uid: 2 ** 32 - 1, kind: "anonymous", ownerUid: 2 ** 32 - 1 };

function stranger(n: number, address = "127.0.0.1", target = "") {
  const refused = { result: "unauthenticated", reason: "unauthenticated", target };
  return auditedCall(n, { user: { ...nobody, address }, ...refused });
}

test("the first denial is a record at once, and its repeats are one record at the end of the window", async (t) => {
  await using open = await openQuietTrail();
  const { trail, timers } = open;
  for (let n = 0; n < 1000; n++) trail.append(stranger(n));
  trail.append(stranger(1000, "10.0.0.7"));
  const first = ["127.0.0.1", "StartApp", "unauthenticated", 1];
  const other = ["10.0.0.7", "StartApp", "unauthenticated", 1];
  t.deepEqual(await open.recorded(), [first, other]);
  open.pass(9 * minuteMs);
  t.is((await open.recorded()).length, 2);
  open.pass(minuteMs);
  const repeats = ["127.0.0.1", "StartApp", "unauthenticated", 999];
  t.deepEqual(await open.recorded(), [first, other, repeats]);
  t.is(timers.size, 0, "no timer runs when nothing is counted");

  trail.append(stranger(1001));
  t.deepEqual((await open.recorded()).at(-1), first);
  t.like(await open.reader.verify(), { problem: undefined, records: 4 });
});

test("attempts of unknown callers are counted together, whatever their error is", async (t) => {
  await using open = await openQuietTrail();
  const { trail } = open;
  for (const result of ["unauthenticated", "permission_denied", "resource_exhausted", "unavailable"]) {
    for (let n = 0; n < 100; n++) {
      trail.append(auditedCall(n, { user: { ...nobody, address: "127.0.0.1" }, target: "", result }));
    }
  }
  t.is((await open.recorded()).length, 4);
  await trail[Symbol.asyncDispose]();
  t.deepEqual(
    (await open.recorded()).slice(4).map(([, , , attempts]) => attempts),
    [99, 99, 99, 99],
  );
});

test("each call that had an effect is a separate record", async (t) => {
  await using open = await openQuietTrail();
  for (let n = 0; n < 200; n++) open.trail.append(auditedCall(1));
  for (let n = 0; n < 200; n++)
    open.trail.append(auditedCall(1, { result: "failed_precondition", reason: "start_failed" }));
  t.is((await open.recorded()).length, 400);
});

test("repeated calls that changed nothing become one record with their number", async (t) => {
  await using open = await openQuietTrail();
  for (let n = 0; n < 200; n++) open.trail.append(auditedCall(1, { changedNothing: true }));
  for (let n = 0; n < 200; n++)
    open.trail.append(auditedCall(1, { result: "not_found", reason: "not_found" }));
  t.is((await open.recorded()).length, 2);
  open.pass(10 * minuteMs);
  t.deepEqual(
    (await open.recorded()).slice(2).map(([, , result, attempts]) => [result, attempts]),
    [
      ["ok", 199],
      ["not_found", 199],
    ],
  );
});

test("one user's failing calls of many kinds do not use up another user's budget", async (t) => {
  await using open = await openQuietTrail();
  const missing = { result: "not_found", reason: "not_found" };
  const [ann, bob] = [1000, 1001].map((uid) => ({ uid, kind: "peer", ownerUid: uid, peerUid: uid }));
  for (let n = 0; n < 1000; n++) open.trail.append(auditedCall(n, { ...missing, user: ann! }));
  for (let n = 0; n < 60; n++) open.trail.append(auditedCall(n, { ...missing, user: bob! }));
  await open.trail[Symbol.asyncDispose]();
  const { records } = open.reader.list({}, 1000, "");
  t.is(records.filter(({ uid }) => uid === 1001).length, 60);
  t.is(records.filter(({ uid }) => uid === 1000).length, 65, "64 kinds, and one record for the other calls");
  t.like(
    records.find(({ method }) => method === rejectedCallsMethod),
    { uid: 1000, attempts: 936 },
  );
});

test("a known caller who is denied is recorded by user, method and target", async (t) => {
  await using open = await openQuietTrail();
  const denied = { result: "permission_denied", reason: "root_required" };
  const ann = { uid: 1000, kind: "peer", ownerUid: 1000, peerUid: 1000 };
  const bob = { ...ann, uid: 1001, user: "bob", ownerUid: 1001, peerUid: 1001 };
  for (let n = 0; n < 10; n++) {
    for (const user of [ann, bob]) {
      for (const target of ["a", "b"]) open.trail.append(auditedCall(n, { ...denied, user, target }));
    }
  }
  t.is((await open.recorded()).length, 4);
  open.trail[Symbol.asyncDispose]().catch(() => undefined);
  t.deepEqual(
    (await open.recorded()).slice(4).map(([, , , attempts]) => attempts),
    [9, 9, 9, 9],
    "the counts are recorded when the daemon stops",
  );
});

test("a day's flood from changing addresses displaces nothing in the trail", async (t) => {
  await using open = await openQuietTrail();
  open.trail.append(auditedCall(1));
  const hours = 24;
  let sent = 0;
  for (let minute = 0; minute < hours * 60; minute++) {
    for (let n = 0; n < 20; n++) {
      open.trail.append(stranger(sent, `10.0.${Math.floor(sent / 256) % 256}.${sent % 256}`));
      sent++;
    }
    open.pass(minuteMs);
  }
  await open.trail[Symbol.asyncDispose]();
  const records = (await open.trail.flush(), open.reader.list({}, 10_000, "").records);
  t.true(records.length <= 128 + 60 * hours + 6 * hours + 1, `${records.length} records`);
  t.is(records.at(-1)?.seq, 1);
  const attempts = records.reduce((sum, record) => sum + (record.attempts ?? 1), 0);
  t.is(attempts, sent + 1, "every attempt is counted once");
  t.true(records.some(({ method }) => method === rejectedCallsMethod));
  t.like(await open.reader.verify(), { problem: undefined });
});

test("a clock that is set back ends no window early, and adds no budget", async (t) => {
  await using open = await openQuietTrail();
  for (let n = 0; n < 200; n++) open.trail.append(stranger(n, `10.0.0.${n}`));
  t.is((await open.recorded()).length, 64);
  open.pass(-2 * minuteMs);
  for (let n = 0; n < 64; n++) open.trail.append(stranger(n, `10.0.1.${n}`));
  t.is((await open.recorded()).length, 64);
});
