/**
 * The longest lists of jobs and runs, read by 12 clients at once: the daemon's memory and event loop stay within limits
 * far above the usual usage and far below that of one complete response (1,000 jobs: 3.4 s and 2.6 GB).
 */
import { readFile } from "node:fs/promises";
import { Agent, request, type IncomingMessage } from "node:http";
import test from "ava";
import { documentOf, writeJobs } from "../../src/scheduler/jobs/job-row.ts";
import { closeRun, insertRun } from "../../src/scheduler/runs/run-row.ts";
import { openStore } from "../store/support/temporary-store.ts";
import { spec } from "../scheduler/support/world.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { eventually, nextEvent } from "../support/eventually.ts";

const readers = 12;
const jobs = 1_000;
const commandLength = 65_500;
const runs = 50;
const outputLength = 65_536;
/** On an idle CPU. A page takes a few milliseconds, and all jobs at once a second for each reader. */
const maxBlockMs = 2_000;
const maxGrownMiB = 800;
/** A page's 256 KiB and one run more, each line break and escape as up to six characters. */
const maxAnswerLength = 3 << 20;
const idOf = (index: number): string => `long-${String(index).padStart(4, "0")}`;

/** As pushes and runs would leave them. */
async function fill({ storeDir }: TestDaemon): Promise<void> {
  await using store = await openStore({ dir: storeDir });
  const command = "x".repeat(commandLength);
  for (let from = 0; from < jobs; from += 100) {
    const some = Array.from({ length: 100 }, (_, index) => ({
      id: idOf(from + index),
      document: documentOf(spec({ action: { type: "shell", command } })),
    }));
    await store.write(
      writeJobs({ ownerUid: 0, managedBy: "platform", added: some, changed: [] }, Date.now()),
    );
  }
  const output = "a line\n\x1b[m".repeat(outputLength / 10);
  const executor = { bootId: "gone", pid: 1, startTicks: 1 };
  for (let index = 0; index < runs; index += 1) {
    const key = { ownerUid: 0, id: idOf(0) };
    const [opened] = await store.write([insertRun(key, { trigger: "manual", attempt: 1 }, executor, 1)]);
    const outcome = { status: "FAILED", output, error: output, truncated: false } as const;
    await store.write(closeRun({ id: Number(opened?.rows?.[0]?.["id"]), ownerUid: 0 }, executor, outcome, 2));
  }
}

async function get(agent: Agent, socketPath: string, path: string): Promise<string> {
  const sent = request({ socketPath, path, agent }).end();
  const [response] = (await nextEvent(sent, "response")) as [IncomingMessage];
  let text = "";
  for await (const chunk of response.setEncoding("utf8")) text += String(chunk);
  if (response.statusCode !== 200)
    throw new Error(`GET ${path}: ${response.statusCode} ${text.slice(0, 500)}`);
  return text;
}

/** The daemon's current and maximum resident memory, in MiB. */
async function memoryOf({ pid }: TestDaemon): Promise<{ nowMiB: number; mostMiB: number }> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  const kib = (name: string): number => Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, "m").exec(status)?.[1]);
  return { nowMiB: kib("VmRSS") / 1024, mostMiB: kib("VmHWM") / 1024 };
}

/** The longest event-loop delay since the last call, in ms. */
async function longestBlockMs({ socketPath }: TestDaemon): Promise<number> {
  using agent = new Closing();
  const text = await get(agent, socketPath, "/metrics");
  return Number(/^svc_event_loop_delay_max_seconds (\S+)$/m.exec(text)?.[1] ?? 0) * 1_000;
}

/** Its CPU time in ms. */
async function processorMs({ pid }: TestDaemon): Promise<number> {
  const text = await readFile(`/proc/${pid}/stat`, "utf8");
  const [user, system] = text
    .slice(text.lastIndexOf(")") + 2)
    .split(" ")
    .slice(11);
  const tickMs = 10;
  return (Number(user) + Number(system)) * tickMs;
}

class Closing extends Agent implements Disposable {
  constructor() {
    super({ keepAlive: true, maxSockets: 1 });
  }

  [Symbol.dispose](): void {
    this.destroy();
  }
}

/** All pages; returns the number of jobs on them. */
async function readAllJobs({ socketPath }: TestDaemon): Promise<number> {
  using agent = new Closing();
  let count = 0;
  for (let token = ""; ;) {
    const text = await get(agent, socketPath, `/v1/schedules?page_token=${token}`);
    if (text.length > maxAnswerLength) throw new Error(`a response of ${text.length} characters`);
    const page = JSON.parse(text) as { schedules: unknown[]; next_page_token: string };
    count += page.schedules.length;
    token = page.next_page_token;
    if (token === "") return count;
  }
}

async function readAllRuns({ socketPath }: TestDaemon): Promise<number> {
  using agent = new Closing();
  const ids = new Set<string>();
  for (let token = ""; ;) {
    const text = await get(agent, socketPath, `/v1/schedules/${idOf(0)}/runs?page_token=${token}`);
    if (text.length > maxAnswerLength) throw new Error(`a response of ${text.length} characters`);
    const page = JSON.parse(text) as { runs: { id: string }[]; next_page_token: string };
    for (const { id } of page.runs) ids.add(id);
    token = page.next_page_token;
    if (token === "") return ids.size;
  }
}

for (const [what, read, count] of [
  ["jobs", readAllJobs, jobs],
  ["runs", readAllRuns, runs],
] as const) {
  test.serial(`${readers} readers of the longest ${what} at once`, async (t) => {
    t.timeout(600_000);
    await using daemon = await startDaemon();
    await fill(daemon);
    await eventually(async () => {
      const found = await read(daemon);
      if (found !== count) throw new Error(`${found} of ${count}`);
    }, 60_000);
    const before = await memoryOf(daemon);
    await longestBlockMs(daemon);
    const [startMs, startProcessorMs] = [performance.now(), await processorMs(daemon)];
    const counts = await Promise.all(Array.from({ length: readers }, () => read(daemon)));
    const tookMs = performance.now() - startMs;
    // They wait for the daemon: time beyond its CPU time was used by other processes.
    const stretched = Math.max(1, tookMs / ((await processorMs(daemon)) - startProcessorMs));
    const blockMs = await longestBlockMs(daemon);
    const after = await memoryOf(daemon);
    t.deepEqual(new Set(counts), new Set([count]));
    const grownMiB = after.mostMiB - before.nowMiB;
    t.log(
      `${Math.round(tookMs)} ms, longest block ${Math.round(blockMs)} ms, stretched ${stretched.toFixed(1)} times, from ${Math.round(before.nowMiB)} MiB by ${Math.round(grownMiB)} MiB`,
    );
    t.true(blockMs < maxBlockMs * stretched, `${blockMs} ms, stretched ${stretched} times`);
    t.true(grownMiB < maxGrownMiB, `${grownMiB} MiB`);
  });
}
