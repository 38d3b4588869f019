/** Limits of the age, the number and the log sizes of finished operations. */
import assert from "node:assert/strict";
import test, { type ExecutionContext } from "ava";
import type { JsonObject } from "../../src/lib/json.ts";
import { noLog } from "../../src/lib/log.ts";
import { cutToBytes, maxLineBytes, maxLines, report } from "../../src/operations/operation-log.ts";
import type { OperationRecord } from "../../src/operations/operation-record.ts";
import { maxRetained, maxRetainedBytes, retentionMs } from "../../src/operations/operation-history.ts";
import { OperationRegistry } from "../../src/operations/operation-registry.ts";
import { eventually } from "../support/eventually.ts";
import { temporaryStore } from "../store/support/temporary-store.ts";
import type { Progress } from "../../src/work/progress.ts";
import { withStepNumbers } from "../../src/work/step-numbers.ts";

const everything = { appId: "", state: "", limit: 1000, pageToken: "" } as const;
const [root, ann] = [0, 1001];

async function startRegistry(t: ExecutionContext) {
  const temporary = await temporaryStore();
  t.teardown(() => temporary[Symbol.asyncDispose]());
  const clock = { nowMs: 1_000_000 };
  const shutdown = new AbortController();
  const registry = new OperationRegistry({
    ...{ store: temporary.store, log: noLog, now: () => clock.nowMs, isDaemon: true },
    ...{ maxRunningPerUser: 8, shutdownSignal: shutdown.signal },
    ...{ onStart: () => undefined, onFinish: () => undefined },
  });
  const start = (
    ownerUid: number,
    work = (): Promise<string> => Promise.resolve("done"),
    detail: JsonObject = {},
  ) =>
    registry.run(
      {
        ...{ kind: "verify", appId: "web", ownerUid, callerUid: ownerUid, share: undefined },
        ...{ detached: false, signal: new AbortController().signal },
      },
      work,
      { result: () => ({}), failure: () => ({ message: "failed", code: "internal", detail }) },
    );
  const count = (uid: number): number =>
    registry.list(everything, { uid, root: uid === root }).records.filter((each) => each.ownerUid === uid)
      .length;
  return { registry, clock, shutdown, start, count };
}

for (const [name, uid, most] of [
  ["a regular user", ann, maxRetained.user],
  ["root", root, maxRetained.root],
] as const) {
  test(`only the newest ${most} finished operations of ${name} are kept`, async (t) => {
    const { clock, start, count, registry } = await startRegistry(t);
    for (let at = 0; at < most + 5; at++) {
      clock.nowMs++;
      await start(uid).finished;
    }
    await eventually(() => assert.equal(count(uid), most));
    const [newest] = registry.list({ ...everything, limit: 1 }, { uid, root: uid === root }).records;
    t.is(newest?.startedAtMs, clock.nowMs);
  });
}

test("only the newest finished operations of a user with 4 MiB of errors and results are kept", async (t) => {
  const { clock, start, count, registry } = await startRegistry(t);
  const fail = async (ownerUid: number, sizeBytes: number): Promise<void> => {
    clock.nowMs++;
    const { finished } = start(ownerUid, () => Promise.reject(new Error("failed")), {
      text: "a".repeat(sizeBytes),
    });
    await t.throwsAsync(finished);
  };
  await fail(root, maxRetainedBytes / 2);
  for (let at = 0; at < 12; at++) await fail(ann, 1_000_000);
  await eventually(() => assert.equal(count(ann), 4));
  const [newest] = registry.list(everything, { uid: ann, root: false }).records;
  t.is(newest?.startedAtMs, clock.nowMs);
  t.is(count(root), 1);
});

test("a finished operation is kept for a day", async (t) => {
  const { registry, clock, start } = await startRegistry(t);
  const { id, finished } = start(ann);
  await finished;
  // The operation is stored when the registry is disposed of.
  await registry[Symbol.asyncDispose]();
  clock.nowMs += retentionMs - 1;
  t.is(registry.get(id, { uid: ann, root: false }).id, id);
  clock.nowMs += 1;
  t.throws(() => registry.get(id, { uid: ann, root: false }), { message: `no operation "${id}"` });
  t.deepEqual(registry.list(everything, { uid: ann, root: false }).records, []);
});

test("work that fails while the daemon stops says that the daemon was stopped", async (t) => {
  const { registry, shutdown, start } = await startRegistry(t);
  const { id, finished } = start(ann, async () => {
    await new Promise((resolve) => shutdown.signal.addEventListener("abort", resolve));
    throw new Error("fetching was canceled");
  });
  shutdown.abort(new Error("the daemon is stopping"));
  await t.throwsAsync(finished);
  const { state, error } = registry.get(id, { uid: ann, root: false });
  t.is(state, "INTERRUPTED");
  t.like(error, { code: "unavailable", message: "the daemon was stopped before this finished: failed" });
});

test("a log keeps its last 200 lines of 1 KiB, and bytes that are counted add none", (t) => {
  const record = { lines: [], phase: "", message: "", service: "" } as unknown as OperationRecord;
  for (let at = 1; at <= maxLines + 10; at++) report(record, { step: "build", message: `line ${at}` }, at);
  t.is(record.lines.length, maxLines);
  t.like(record.lines.at(-1), { number: maxLines + 10, text: `line ${maxLines + 10}` });
  report(record, { step: "copy", message: "data", doneBytes: 1n }, 0);
  report(record, { step: "copy", message: "data", doneBytes: 2n }, 0);
  t.is(record.lines.at(-1)?.number, maxLines + 11);
  t.is(record.doneBytes, 2);
  const cut = cutToBytes("ä".repeat(2_000), maxLineBytes);
  t.true(Buffer.byteLength(cut) <= maxLineBytes && /^ä+…$/.test(cut));
});

const plan = [["resolve", "fetch"], ["export"], ["build", "pull"]];

function numbersOf(steps: readonly Progress[], isComplete: boolean): unknown[] {
  const seen: unknown[] = [];
  const work = withStepNumbers(
    { onProgress: ({ step, stepNumber, stepCount }: Progress) => seen.push([step, stepNumber, stepCount]) },
    plan,
    { isComplete },
  );
  for (const progress of steps) work.onProgress(progress);
  return seen;
}

test("progress has the number of its step, and a warning has none", (t) => {
  const steps = ["resolve", "fetch", "warning", "pull"].map((step) => ({ step }));
  t.deepEqual(numbersOf(steps, true), [
    ["resolve", 1, 3],
    ["fetch", 1, 3],
    ["warning", undefined, undefined],
    ["pull", 3, 3],
  ]);
});

test("an incomplete plan has no number of steps, also for work that numbered its own", (t) => {
  t.deepEqual(numbersOf([{ step: "export", stepNumber: 1, stepCount: 9 }], false), [
    ["export", 2, undefined],
  ]);
});
