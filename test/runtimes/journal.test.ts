/** journalctl's output is complete, or an error. */
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import test from "ava";
import { readJournal } from "../../src/runtimes/systemd/journal.ts";
import { eventually } from "../support/eventually.ts";
import { signal } from "../support/processes.ts";

const question = { unit: "svc-none.service", uid: undefined, sinceMs: 0, from: { fromMs: 0 } } as const;

const journalTest = existsSync("/usr/bin/journalctl") ? test.serial : test.serial.skip;

async function journalctls(): Promise<number[]> {
  const pids = (await readFile(`/proc/self/task/${process.pid}/children`, "latin1"))
    .trim()
    .split(" ")
    .map(Number);
  const names = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/comm`, "latin1").catch(() => "")));
  return pids.filter((_, at) => names[at] === "journalctl\n");
}

journalTest("a journal that was not read to its end is an error", async (t) => {
  const next = readJournal({ ...question, follow: true, signal: undefined }).next();
  next.catch(() => undefined);
  await eventually(async () => assert.equal((await journalctls()).length, 1));
  for (const pid of await journalctls()) signal(pid, "SIGKILL");
  await t.throwsAsync(next, { message: "the journal cannot be read: journalctl failed (SIGKILL)" });
});

journalTest("an aborted one, and one without lines, are not failures", async (t) => {
  const left = new AbortController();
  const next = readJournal({ ...question, follow: true, signal: left.signal }).next();
  await eventually(async () => assert.equal((await journalctls()).length, 1));
  left.abort();
  t.true((await next).done);
  t.deepEqual(await Array.fromAsync(readJournal({ ...question, follow: false, signal: undefined })), []);
});
