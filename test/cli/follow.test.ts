/** Following resumes after the daemon was unavailable: how long commands wait, and that no line is repeated. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { appendFile, readdir, readlink, realpath, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { ScheduleService } from "../../gen/svc/v1/schedule_pb.ts";
import { reconnectLimitMs, LostConnection } from "../../src/cli/logs/outage.ts";
import { CommandContext } from "../../src/cli/context.ts";
import { follow } from "../../src/cli/logs/follow.ts";
import type { CliHost } from "../../src/cli/host.ts";
import type { Client } from "../../src/cli/client/client.ts";
import { SvcError } from "../../src/errors.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { eventually, nextEvent } from "../support/eventually.ts";
import { writeFiles } from "../support/packages.ts";
import { main } from "../support/svc-main.ts";

const gone = new SvcError("unavailable", "the daemon is stopping; try again");

interface FakeContext {
  readonly context: CommandContext;
  readonly notes: string[];
  /** Total duration of the pauses so far: they advance the clock without waiting. */
  readonly clockMs: () => number;
}

/** @param streams the contents of each stream: app IDs, and the error that ends it */
function fakeContext(
  streams: readonly (readonly (string | Error)[])[] = [],
  client: Partial<Client> = {},
): FakeContext {
  const notes: string[] = [];
  let nowMs = 0;
  const host = {
    ...{ env: {}, interrupted: new AbortController().signal, now: () => 1_000_000 },
    ...{ stdout: {}, stderr: { write: (text: string) => notes.push(text) > 0 } },
  } as CliHost;
  const context = new CommandContext(host, { color: false }, () => Promise.reject(new Error("in-process")));
  const left = [...streams];
  context.client = () =>
    Promise.resolve({
      outlives: () => Promise.resolve(true),
      isAvailable: () => Promise.resolve(true),
      invoke: async function* () {
        await Promise.resolve();
        for (const collect of left.shift() ?? []) {
          if (collect instanceof Error) throw collect;
          yield { id: collect };
        }
      },
      ...client,
    } as Client);
  context.pause = (delayMs) => {
    nowMs += delayMs;
    return Promise.resolve();
  };
  return { context, notes, clockMs: () => nowMs };
}

const followed = async ({ context }: FakeContext): Promise<unknown[]> =>
  (await Array.fromAsync(follow(context, AppService.method.streamAppLogs, () => ({})))).map(
    (message) => (message as unknown as { id: string }).id,
  );

test("a stream resumes after each outage of the daemon, with one note per outage", async (t) => {
  const fake = fakeContext([["a", gone], [gone], ["b", gone], ["c"]]);
  t.deepEqual(await followed(fake), ["a", "b", "c"]);
  t.deepEqual(fake.notes, Array(2).fill("the daemon is stopping; waiting\n"));
});

test("an unreachable daemon or another error fails at once", async (t) => {
  const never = fakeContext([[gone], ["a"]]);
  await t.throwsAsync(followed(never), { is: gone });
  const refused = new SvcError("not_found", "no such app");
  await t.throwsAsync(followed(fakeContext([["a", refused], ["b"]])), { is: refused });
  t.deepEqual(never.notes, []);
  for (const client of [
    { outlives: () => Promise.resolve(false) },
    { isAvailable: () => Promise.resolve(false) },
  ]) {
    const fake = fakeContext([["a", gone], ["b"]], client);
    await t.throwsAsync(followed(fake), { is: gone });
    t.deepEqual(fake.notes, [], "does not wait");
  }
});

test("the wait for an unavailable daemon is limited", async (t) => {
  const { context, clockMs, notes } = fakeContext([], { isAvailable: () => Promise.resolve(false) });
  await t.throwsAsync(new LostConnection(context, clockMs).wait(gone), { is: gone });
  t.is(clockMs(), reconnectLimitMs);
  t.is(notes.length, 1);
  const back = fakeContext();
  const outage = new LostConnection(back.context, back.clockMs);
  for (let tries = 0; tries * 250 < reconnectLimitMs; tries++) await outage.wait(gone);
  await t.throwsAsync(outage.wait(gone), { is: gone }, "a daemon that accepts connections but keeps failing");
  outage.end();
  await t.notThrowsAsync(outage.wait(gone));
  t.is(await outage.retry(() => Promise.resolve("again")), "again");
});

test("Ctrl-C ends the wait", async (t) => {
  const { context } = fakeContext();
  const interrupted = new SvcError("canceled", "interrupted");
  context.pause = () => Promise.reject(interrupted);
  await t.throwsAsync(new LostConnection(context).wait(gone), { is: interrupted });
});

/** A daemon with a running app that counts, ten lines each tenth of a second. */
async function withCounter(): Promise<TestDaemon> {
  const daemon = await startDaemon();
  const dir = join(daemon.dir, "counter");
  await writeFiles(dir, {
    "svc.yaml": `id: counter
name: Counter
version: 1.0.0
summary: Counts.
process:
  exec: [node, count.mjs]
`,
    "count.mjs":
      'let n = 0;\nsetInterval(() => { for (let i = 0; i < 10; i++) console.log("line " + n++); }, 100);\n',
  });
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: dir });
  await apps.startApp({ id: "counter" });
  return daemon;
}

function svc(t: ExecutionContext, daemon: TestDaemon, ...args: string[]) {
  const child = spawn(process.execPath, [main, "--socket", daemon.socketPath, ...args], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  t.teardown(() => child.kill("SIGKILL"));
  const shown = { out: "", err: "" };
  child.stdout.on("data", (text: Buffer) => (shown.out += text.toString()));
  child.stderr.on("data", (text: Buffer) => (shown.err += text.toString()));
  const shows = (count: number): Promise<void> =>
    eventually(() => assert.ok(shown.out.split("\n").length > count, shown.err));
  return { child, shown, shows, end: () => child.kill("SIGINT") };
}

/** The lines that do not follow the one before. */
function jumpsOf(out: string): readonly number[] {
  const numbers = out.match(/(?<=^line )\d+$/gm)?.map(Number) ?? [];
  return numbers.filter((number, at) => at > 0 && number !== (numbers[at - 1] ?? 0) + 1);
}

test("logs, events and lists resume after the daemon is stopped or killed", async (t) => {
  t.timeout(120_000);
  await using daemon = await withCounter();
  const logs = svc(t, daemon, "logs", "-f", "counter", "--tail", "5");
  const events = svc(t, daemon, "events", "--follow", "--json");
  const others = [
    ["stats", "--watch"],
    ["ls", "--watch"],
    ["top", "--watch", "--all"],
  ].map((args) => svc(t, daemon, ...args));
  const all = [logs, events, ...others];
  await Promise.all(all.map(({ shows }) => shows(1)));
  // A package upgrade checks for this before it deletes files that a process may still load.
  if (!main.endsWith(".ts"))
    for (const { child } of all) {
      const open = await readdir(`/proc/${child.pid ?? 0}/fd`);
      const places = await Promise.all(
        open.map((fd) => readlink(`/proc/${child.pid ?? 0}/fd/${fd}`).catch(() => "")),
      );
      t.true(places.includes(await realpath(dirname(main))), places.join(" "));
    }
  let begun = 0;
  for (const end of [() => daemon.stop(), () => daemon.kill()]) {
    await end();
    await eventually(() => {
      for (const { shown, child } of all)
        assert.match(`${String(child.exitCode)} ${shown.err}`, /^null .*; waiting\n/);
    });
    for (const { shown } of all) shown.err = "";
    // Continue only after a lot has already happened.
    for (const { child } of [logs, events]) child.kill("SIGSTOP");
    await daemon.restart();
    const lines = all.map(({ shown }) => shown.out.split("\n").length);
    await daemon.client(AppService).restartApp({ id: "counter" });
    for (const { child } of [logs, events]) child.kill("SIGCONT");
    await Promise.all(all.map(({ shows }, at) => shows((lines[at] ?? 0) + 1)));
    begun++;
    await eventually(() => assert.equal(jumpsOf(logs.shown.out).length, begun));
    // The events may arrive after the log.
    await eventually(() => assert.equal(events.shown.out.match(/"kind":"app\.starting"/g)?.length, begun));
  }
  for (const { end } of all) end();
  for (const { child, shown } of all)
    t.is(child.exitCode ?? ((await nextEvent(child, "exit")) as [number])[0], 130, shown.err);
  // The program was restarted twice, and counts from zero each time.
  t.deepEqual(jumpsOf(logs.shown.out), [0, 0]);
  const cursors = events.shown.out
    .trim()
    .split("\n")
    .map((text) => JSON.parse(text) as { kind: string; cursor: string })
    .filter(({ kind }) => kind !== "begin" && kind !== "reset");
  t.is(new Set(cursors.map(({ cursor }) => cursor)).size, cursors.length, "none twice");
  const kinds = cursors.map(({ kind }) => kind);
  t.is(kinds.filter((kind) => kind === "app.starting").length, 2, kinds.join(" "));
});

test("runs that started and finished during an outage are reported once each", async (t) => {
  t.timeout(60_000);
  await using daemon = await startDaemon();
  const schedules = daemon.client(ScheduleService);
  await schedules.upsertSchedule({
    ...{ id: "echo", trigger: "0 0 1 1 *" },
    action: { type: "shell", command: "echo hi" },
  });
  const runOnce = async (): Promise<void> => {
    const { run } = await schedules.runSchedule({ id: "echo" });
    await eventually(async () => {
      const { runs } = await schedules.listScheduleRuns({ id: "echo", limit: 1 });
      assert.partialDeepStrictEqual(runs, [{ id: run?.id, status: "SUCCEEDED" }]);
    });
  };
  await runOnce();
  const { child, shown, shows, end } = svc(t, daemon, "schedule", "runs", "--follow", "--json");
  // No output before the first run that it receives.
  await eventually(async () => {
    await runOnce();
    assert.match(shown.out, /SUCCEEDED/);
  });
  const before = shown.out.split("\n").length;
  await daemon.stop();
  await eventually(() => assert.match(shown.err, /; waiting\n/));
  child.kill("SIGSTOP");
  await daemon.restart();
  await runOnce();
  await runOnce();
  child.kill("SIGCONT");
  await shows(before + 3);
  // Any repeated report would arrive before this new one.
  await runOnce();
  await shows(before + 5);
  end();
  await nextEvent(child, "exit");
  const lines = shown.out
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as { id: string; status: string })
    .map(({ id, status }) => `${id} ${status}`);
  // Following may have started in the middle of a run.
  if (lines[0]?.endsWith("SUCCEEDED") === true) lines.shift();
  const first = Number(lines[0]?.split(" ")[0]);
  t.true(first > 1, "earlier runs are not reported");
  t.deepEqual(
    lines,
    Array.from({ length: lines.length }, (_, at) =>
      at % 2 === 0 ? `${first + at / 2} RUNNING` : `${first + (at - 1) / 2} SUCCEEDED`,
    ),
  );
  t.is((await schedules.listScheduleRuns({ id: "echo", limit: 1 })).runs[0]?.id, lines.at(-1)?.split(" ")[0]);
});

test("following a file resumes with new lines after an outage, with a note", async (t) => {
  await using daemon = await startDaemon();
  const file = join(daemon.dir, "growing.log");
  await writeFile(file, "first\n");
  const tail = svc(t, daemon, "file", "tail", "-f", file);
  await tail.shows(1);
  await daemon.restart();
  await eventually(async () => {
    await appendFile(file, "later\n");
    assert.match(tail.shown.out, /^first\n(later\n)+$/, tail.shown.err);
  });
  t.regex(tail.shown.err, /; waiting\nContinuing with lines written from now on\.\n$/);
  tail.end();
  t.deepEqual(await nextEvent(tail.child, "exit"), [130, null]);
});
