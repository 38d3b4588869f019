/** An app's log: records, rotation, the last output, and floods. */
import { execFile } from "node:child_process";
import {
  mkdtemp,
  readFile,
  readdir,
  rm,
  statfs,
  truncate,
  unlink,
  writeFile,
  appendFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import fc from "fast-check";
import { startApp } from "../../src/runtimes/process/app-process.mjs";
import { AppTerminal } from "../../src/runtimes/process/app-terminal.mjs";
import { parseRecords } from "../../src/runtimes/process/log-lines.ts";
import { LogReader, tailPosition } from "../../src/runtimes/process/log-reader.mjs";
import { LogWriter } from "../../src/runtimes/process/log-writer.mjs";
import type { SupervisorSpec, SupervisorState } from "../../src/runtimes/process/supervisor-types.ts";
import { loadPipeEnds } from "../../src/sys/pipe-ends.mjs";
import { isRoot, Fixture, eventually } from "./support/fixture.ts";

const rootTest = isRoot ? test : test.skip;
const run = promisify(execFile);

async function temporaryDirectory(t: ExecutionContext): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "svc-log-"));
  t.teardown(() => rm(directory, { recursive: true, force: true }));
  return directory;
}

async function wholeLog(directory: string): Promise<Buffer> {
  const names = (await readdir(directory)).sort();
  return Buffer.concat(await Promise.all(names.map((name) => readFile(join(directory, name)))));
}

async function readAll(
  directory: string,
  from: number,
  end: number,
): Promise<{ text: string; missed: number }> {
  const reader = new LogReader(directory, from);
  let text = "";
  let missed = 0;
  for (let part = await reader.next(end); part !== undefined; part = await reader.next(end)) {
    if (part.text === null) missed += part.to - part.from;
    else text += part.text;
  }
  await reader.close();
  return { text, missed };
}

test("a record has its time, its source and the bytes as they came", async (t) => {
  const directory = await temporaryDirectory(t);
  const log = new LogWriter({ directory, maxBytes: 1e6, maxFiles: 2 });
  await log.write("o", Buffer.from([0x66, 0x00, 0xff, 0x0d, 0x0a]));
  await log.write("e", Buffer.from("half"));
  await log.write("o", Buffer.from("other\n"));
  await log.write("e", Buffer.from(" line\n\n"));
  await log.note("remark");
  await log.write("o", Buffer.from("no newline"));
  await log.finishLine("o");
  await log.close();
  const text = (await wholeLog(directory)).toString("latin1");
  t.deepEqual(text.replaceAll(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/gm, "T").split("\n"), [
    "T o f\0\xff\r",
    "T o other",
    "T e half line",
    "T e ",
    "T s remark",
    "T o no newline",
    "",
  ]);
  t.is((await readdir(directory))[0], "000000000000000.log");
  t.deepEqual(log.lastLines.slice(1), ["other", "half line", "", "no newline"]);
});

test("the start of a line without a line feed is written, such as a prompt, and the rest of the line at its end", async (t) => {
  const directory = await temporaryDirectory(t);
  const options = { directory, maxBytes: 2 ** 20, maxFiles: 2, unfinishedMs: 20 };
  const writer = new LogWriter(options);
  const texts = async (): Promise<string[]> =>
    parseRecords((await wholeLog(directory)).toString()).map(({ text }) => text);
  await writer.write("o", Buffer.from("ready\nname? "));
  const hasLast = (text: string): Promise<boolean> =>
    eventually(`the line "${text}"`, async () => (await texts()).at(-1) === text);
  await hasLast("name? ");
  await writer.write("o", Buffer.from("\nhello\nDownloading "));
  await hasLast("Downloading ");
  for (const dot of [".", ".", "."]) {
    await writer.write("o", Buffer.from(dot));
    await wait(40);
  }
  await writer.write("o", Buffer.from(" done\n\nbye\n"));
  await writer.close();
  t.deepEqual(await texts(), ["ready", "name? ", "hello", "Downloading ", "... done", "", "bye"]);
});

test("long lines are split into marked pieces, for any chunk sizes", async (t) => {
  for (const size of [1, 1000, 65_536, 100_000]) {
    const directory = await temporaryDirectory(t);
    const log = new LogWriter({ directory, maxBytes: 1e7, maxFiles: 2 });
    const line = Buffer.alloc(150_000, "abcdefg");
    const input = Buffer.concat([line, Buffer.from("\nshort\n")]);
    for (let at = 0; at < input.length; at += Math.max(size, 500)) {
      await log.write("o", input.subarray(at, at + Math.max(size, 500)));
    }
    await log.close();
    const records = (await wholeLog(directory)).toString().trimEnd().split("\n");
    t.deepEqual(
      records.map((record) => record[25]),
      ["O", "O", "o", "o"],
      `chunks of ${size}`,
    );
    t.is(
      records
        .slice(0, 3)
        .map((record) => record.slice(27))
        .join(""),
      line.toString(),
    );
    t.deepEqual(
      records.map((record) => record.length - 27),
      [65_536, 65_536, 150_000 - 131_072, 5],
    );
  }
});

test("written records are read in order, across rotated files, from any record on", async (t) => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(
        fc.string({ maxLength: 300 }).map((line) => line.replaceAll(/[\n\r]/g, " ")),
        { minLength: 1, maxLength: 60 },
      ),
      fc.integer({ min: 100, max: 3000 }),
      fc.integer({ min: 1, max: 70 }),
      async (lines, maxBytes, count) => {
        const directory = await mkdtemp(join(tmpdir(), "svc-log-"));
        const log = new LogWriter({ directory, maxBytes, maxFiles: 1000 });
        for (const line of lines) await log.write("o", Buffer.from(`${line}\n`));
        const from = await tailPosition(directory, count, log.position);
        const { text } = await readAll(directory, from, log.position);
        await log.close();
        await rm(directory, { recursive: true });
        t.deepEqual(
          parseRecords(text).map((line) => line.text),
          lines.slice(-count),
        );
      },
    ),
    { numRuns: 50 },
  );
});

test("files rotate within their limits, and a slow reader gets the number of skipped bytes", async (t) => {
  const directory = await temporaryDirectory(t);
  const log = new LogWriter({ directory, maxBytes: 1000, maxFiles: 3 });
  for (let i = 0; i < 200; i++) await log.write("o", Buffer.from(`line ${i}\n`));
  const files = (await readdir(directory)).sort();
  t.is(files.length, 3);
  const kept = await wholeLog(directory);
  t.true(kept.length <= 3000);
  const { text, missed } = await readAll(directory, 0, log.position);
  await log.close();
  t.is(text, kept.toString());
  t.is(missed, log.position - kept.length);
  t.true(text.endsWith(" line 199\n"));
});

test("a writer continues where an earlier one stopped, and truncates a partial record", async (t) => {
  const directory = await temporaryDirectory(t);
  const first = new LogWriter({ directory, maxBytes: 1e6, maxFiles: 2 });
  await first.write("o", Buffer.from("one\n"));
  await first.close();
  await appendFile(join(directory, "000000000000000.log"), "2026-11-21T10:00:00.000Z o hal");
  const second = new LogWriter({ directory, maxBytes: 1e6, maxFiles: 2 });
  await second.open();
  t.is(second.position, first.position);
  await second.write("o", Buffer.from("two\n"));
  await second.close();
  t.deepEqual(
    parseRecords((await wholeLog(directory)).toString()).map(({ text }) => text),
    ["one", "two"],
  );
});

rootTest(
  "a full disk drops lines, counts them, and continues when there is space (root only: tmpfs)",
  async (t) => {
    const directory = await temporaryDirectory(t);
    await run("mount", ["-t", "tmpfs", "-o", "size=256k", "tmpfs", directory]);
    t.teardown(() => run("umount", [directory]));
    const log = new LogWriter({ directory: join(directory, "logs"), maxBytes: 1e6, maxFiles: 2 });
    await log.open();
    const ballast = join(directory, "ballast");
    await writeFile(ballast, Buffer.alloc(200 * 1024));
    const line = Buffer.from(`${"x".repeat(1000)}\n`);
    for (let i = 0; i < 100; i++) await log.write("o", line);
    t.true((await statfs(directory)).bfree < 2);
    await unlink(ballast);
    await log.write("o", Buffer.from("room again\n"));
    await log.close();
    const whole = await wholeLog(join(directory, "logs"));
    t.is(whole.length, log.position, "a partial record was left behind");
    const records = parseRecords(whole.toString());
    const dropped = Number(/^dropped (\d+) lines/.exec(records.at(-2)?.text ?? "")?.[1]);
    t.is(records.at(-2)?.stream, "svc");
    t.is(records.at(-1)?.text, "room again");
    t.is(records.filter(({ stream }) => stream === "svc").length, 1);
    t.is(records.length - 2 + dropped, 100);
    t.true(dropped > 30);
  },
);

test("a log that is emptied while open keeps working", async (t) => {
  const directory = await temporaryDirectory(t);
  const log = new LogWriter({ directory, maxBytes: 300, maxFiles: 2 });
  for (let i = 0; i < 5; i++) await log.write("o", Buffer.from(`line ${i}\n`));
  for (const name of await readdir(directory)) await truncate(join(directory, name));
  for (const name of await readdir(directory)) await unlink(join(directory, name));
  for (let i = 5; i < 40; i++) await log.write("o", Buffer.from(`line ${i}\n`));
  await log.close();
  t.is(parseRecords((await wholeLog(directory)).toString()).at(-1)?.text, "line 39");
});

// An app's last output reaches its log, however slow the disk is, and whichever process keeps its pipes open.

const quietMs = 300;

/** In a run directory, which is the working directory of a supervisor. */
async function inRunDirectory(t: ExecutionContext): Promise<void> {
  const [before, directory] = [process.cwd(), await mkdtemp(join(tmpdir(), "svc-words-"))];
  process.chdir(directory);
  t.teardown(async () => {
    process.chdir(before);
    await rm(directory, { recursive: true });
  });
}

class SlowLog {
  readonly #writeMs: number;
  text = "";

  constructor(writeMs: number) {
    this.#writeMs = writeMs;
  }

  async write(_source: string, chunk: Buffer): Promise<void> {
    const text = chunk.toString();
    await wait(this.#writeMs);
    this.text += text;
  }

  async finishLine(): Promise<void> {
    await Promise.resolve();
  }
}

const specOf = (command: string): SupervisorSpec =>
  ({
    argv: ["/bin/sh", "-c", command],
    env: { PATH: process.env["PATH"] },
    cwd: "/",
    runId: "words",
    cgroup: null,
    limits: {},
  }) as unknown as SupervisorSpec;

for (const hasTerminal of [false, true]) {
  const where = hasTerminal ? "at a terminal" : "to pipes";

  test.serial(`the last output ${where} is not lost on a slow disk`, async (t) => {
    await inRunDirectory(t);
    const slow = new SlowLog(3 * quietMs);
    const log = slow as unknown as LogWriter;
    const terminal = hasTerminal ? new AppTerminal(log) : undefined;
    const app = startApp(specOf("seq 40000; echo the last words"), log, terminal ?? loadPipeEnds());
    t.like(await app.exited, { code: 0 });
    await app.drain(quietMs);
    terminal?.ended(0);
    const expected = [...Array.from({ length: 40_000 }, (_, at) => String(at + 1)), "the last words", ""];
    t.is(slow.text, expected.join("\n"));
  });

  for (const [how, printer] of [
    ["all the time", "exec yes"],
    ["now and then", "while echo x; do sleep 0.1; done"],
  ] as const) {
    test.serial(
      `a process that survives an app and prints ${how} ${where} does not delay the app's exit`,
      async (t) => {
        await inRunDirectory(t);
        const log = new SlowLog(0) as unknown as LogWriter;
        const terminal = hasTerminal ? new AppTerminal(log) : undefined;
        const command = `trap '' HUP; (${printer}) & (sleep 0.1; echo x) & sleep 0.2`;
        const app = startApp(specOf(command), log, terminal ?? loadPipeEnds());
        await app.exited;
        await app.drain(quietMs);
        terminal?.ended(0);
        t.pass();
      },
    );
  }
}

test("200 MB of output at once: bounded memory, bounded files, and a slow follower gets the number of skipped bytes", async (t) => {
  await using fixture = await Fixture.create();
  const line = "x".repeat(79);
  const app = await fixture.shell(`sleep 0.5; yes ${line} | head -c 200000000; echo done; exec sleep 1000`);
  await fixture.runtime.start(app);
  const state = JSON.parse(await readFile(join(app.runDir, "state.json"), "utf8")) as SupervisorState;

  const abort = new AbortController();
  let missedBytes = 0;
  let lines = 0;
  const following = (async () => {
    for await (const chunk of fixture.runtime.followLogs(app, { tail: 0, signal: abort.signal })) {
      missedBytes += chunk.missedBytes;
      lines += chunk.lines.length;
      if (chunk.lines.at(-1)?.text === "done") return;
      if (lines < 50_000) await wait(20);
    }
  })();

  const startedMs = performance.now();
  await eventually(
    "end of the flood",
    async () => (await fixture.output(app)).at(-1) === "done" || undefined,
    60_000,
  );
  const seconds = (performance.now() - startedMs) / 1000;
  await following;
  const status = await readFile(`/proc/${state.supervisor.pid}/status`, "utf8");
  const peakKib = Number(/^VmHWM:\s+(\d+)/m.exec(status)?.[1]);
  t.log(
    `200 MB in ${seconds.toFixed(1)} s, peak of the supervisor ${Math.round(peakKib / 1024)} MiB resident`,
  );
  t.true(peakKib < 110 * 1024);
  t.true((await readdir(join(app.runDir, "logs"))).length <= 5);
  t.true(missedBytes > 0, "the follower kept up, so nothing was tested");
  t.true(lines > 50_000);
  t.is(fixture.runtime.status(app.id)?.state, "RUNNING");
});
