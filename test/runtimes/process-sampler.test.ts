import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import { parseStat, type ProcessEntry } from "../../src/sys/process-table.mjs";
import { runIdVariable } from "../../src/sys/run-cookie.mjs";
import { ProcReader } from "../../src/sys/proc-reader.ts";
import { ProcessSampler } from "../../src/runtimes/process/process-sampler.ts";
import { membersOf, type SampledRun } from "../../src/sys/run-membership.ts";
import { eventually } from "../support/eventually.ts";

const hourMs = 3_600_000;
const uid = process.getuid?.() ?? 0;

/** Counts how often the process table is read. */
class CountingReader extends ProcReader {
  tables = 0;
  atOnce = 0;
  mostAtOnce = 0;

  override async readTable(signal: AbortSignal): Promise<ProcessEntry[]> {
    this.tables++;
    this.mostAtOnce = Math.max(this.mostAtOnce, ++this.atOnce);
    try {
      return await super.readTable(signal);
    } finally {
      this.atOnce--;
    }
  }
}

/** A run with one process in its own session. */
async function startRun(t: ExecutionContext, appId: string): Promise<Required<SampledRun>> {
  const runId = `run-of-${appId}`;
  const env = { ...process.env, [runIdVariable]: runId };
  const child = spawn("sleep", ["1000"], { detached: true, stdio: "ignore", env });
  await once(child, "spawn");
  // The next test's run has the same name.
  const gone = once(child, "exit");
  t.teardown(() => {
    child.kill("SIGKILL");
    return gone;
  });
  return { appId, ownerUid: uid, runId, pid: child.pid ?? 0 };
}

test("an app whose owner claims another user's session does not see its usage", async (t) => {
  const honest = await startRun(t, "honest");
  const thief = { ...honest, appId: "thief", ownerUid: uid + 1, runId: "b" };
  // A later caller must not get it either.
  for (const asked of [
    [honest, thief],
    [thief, honest],
  ]) {
    const usage = await new ProcessSampler({ windowMs: 10 }).sample(asked);
    t.is(usage.get("honest")?.processes, 1);
    t.is(usage.get("thief"), undefined);
  }
});

test("an app whose owner claims another user's run does not see it while the other user does", async (t) => {
  const sampler = new ProcessSampler({ windowMs: 10 });
  const honest = await startRun(t, "honest");
  const { pid: _, ...rest } = honest;
  const thief = { ...rest, appId: "thief", ownerUid: uid + 1 };
  const [shown, stolen] = await Promise.all([sampler.sample([honest]), sampler.sample([thief])]);
  t.is(shown.get("honest")?.processes, 1);
  t.is(stolen.size, 0);
  t.is((await sampler.sample([thief])).size, 0, "and also not later, when the cookie is known");
});

test("a process with the cookie of another owner's run counts for neither owner", async (t) => {
  const entry = parseStat(await readFile("/proc/self/stat", "latin1"));
  const runs = [1, 2].map((ownerUid) => ({ appId: `of-${ownerUid}`, ownerUid, runId: `run-${ownerUid}` }));
  const members = (runId: string) => membersOf(runs, [entry], new Map([[entry.pid, { uid: 1, runId }]]));
  t.deepEqual([...members("run-1").keys()], ["of-1"]);
  t.deepEqual([...members("run-2").keys()], []);
});

test("without runs nothing is read", async (t) => {
  const reader = new CountingReader();
  t.is((await new ProcessSampler({ reader, windowMs: hourMs }).sample([])).size, 0);
  t.is(reader.tables, 0);
});

test("a hundred concurrent callers share the samples, and each sees only its own runs", async (t) => {
  const reader = new CountingReader();
  const sampler = new ProcessSampler({ reader, windowMs: 10 });
  const runs = [await startRun(t, "a"), await startRun(t, "b"), await startRun(t, "c")];
  const asked = Array.from({ length: 50 }, (_, n) => runs.filter((_, bit) => ((n % 7) + 1) & (1 << bit)));
  const first = asked.map((some) => sampler.sample(some));
  await turn();
  t.is(reader.atOnce, 1, "the first sample is in progress");
  const second = asked.map((some) => sampler.sample(some));
  const shown = await Promise.all([...first, ...second]);
  for (const [n, usage] of shown.entries()) {
    const wanted = asked[n % asked.length] ?? [];
    t.deepEqual(
      [...usage].map(([id, { processes }]) => [id, processes]).sort(),
      wanted.map(({ appId }) => [appId, 1]),
    );
  }
  t.is(reader.tables, 2);
  t.is(reader.mostAtOnce, 1);
});

test("a caller that disconnects returns at once, and a sample without callers makes place for the next", async (t) => {
  const reader = new CountingReader();
  const sampler = new ProcessSampler({ reader, windowMs: hourMs });
  const run = await startRun(t, "a");
  for (const round of [1, 2, 3]) {
    const leaver = new AbortController();
    const samples = Array.from({ length: 10 }, () => sampler.sample([run], leaver.signal));
    const left = Promise.allSettled(samples);
    await eventually(() => assert.equal(reader.tables, round));
    // In the second round while the table is read, otherwise in the window.
    if (round !== 2) await eventually(() => assert.equal(reader.atOnce, 0));
    const reason = new Error("left");
    leaver.abort(reason);
    for (const result of await left) t.like(result, { status: "rejected", reason });
  }
  t.is(reader.mostAtOnce, 1);
});

test("the event loop is not blocked while many processes are read, and none is read after the signal aborts", async (t) => {
  const procDir = await mkdtemp(join(tmpdir(), "svc-proc-"));
  t.teardown(() => rm(procDir, { recursive: true }));
  const line = await readFile("/proc/self/stat", "latin1");
  const entries = Array.from({ length: 100 }, (_, index) => ({ ...parseStat(line), pid: 1000 + index }));
  for (const { pid } of entries) {
    await mkdir(join(procDir, String(pid)));
    await writeFile(join(procDir, String(pid), "stat"), line);
  }
  const reader = new ProcReader(procDir);
  t.is((await reader.readAgain(entries, new AbortController().signal)).size, 100);
  const aborter = new AbortController();
  const reading = reader.readAgain(entries, aborter.signal);
  aborter.abort();
  const { size } = await reading;
  t.true(size > 0 && size < 50, `${size} were read at once`);
});
