/** The terminal of an app: many clients watch it, none of them blocks it, and it survives the daemon. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, readFile, symlink } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import test from "ava";
import fc from "fast-check";
import type { Terminal, TerminalSize } from "../../src/lib/terminal.ts";
import { AppTerminal, Watcher } from "../../src/runtimes/process/app-terminal.mjs";
import { RecentOutput } from "../../src/runtimes/process/recent-output.mjs";
import type { RunnableApp } from "../../src/runtimes/runnable-app.ts";
import { eventually, nextEvent } from "../support/eventually.ts";
import type { Fixture } from "./support/fixture.ts";
import { sharedFixtures } from "./support/shared-fixture.ts";

const createFixture = sharedFixtures();

const patienceMs = 30_000;

/** A watching client and its received output. */
class Seat implements AsyncDisposable {
  readonly terminal: Terminal;
  text = "";
  missedBytes = 0;
  #isReading = false;

  constructor(terminal: Terminal) {
    this.terminal = terminal;
  }

  read(): this {
    if (!this.#isReading) void this.#read();
    this.#isReading = true;
    return this;
  }

  async #read(): Promise<void> {
    for await (const piece of this.terminal.output) {
      if ("data" in piece) this.text += piece.data.toString("latin1");
      else this.missedBytes += piece.missedBytes;
    }
  }

  type(text: string): Promise<void> {
    return this.terminal.write(Buffer.from(text));
  }

  async sees(pattern: RegExp): Promise<void> {
    await eventually(() => assert.match(this.text.slice(-10_000), pattern), patienceMs);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.terminal[Symbol.asyncDispose]();
  }
}

async function sit(fixture: Fixture, app: RunnableApp, size?: TerminalSize): Promise<Seat> {
  const request = { session: "attach", command: [], service: "", ...(size && { size }) } as const;
  return new Seat(await fixture.runtime.openTerminal(app, request));
}

test("all clients see the same output, in the smallest of their windows, and receive the exit code", async (t) => {
  await using fixture = await createFixture();
  const script =
    "while read -r line; do case $line in size) stty size;; end) exit 7;; esac; echo got $line; done";
  const app = await fixture.shell(script, { console: {} });
  await fixture.runtime.start(app);
  await using first = (await sit(fixture, app, { columns: 100, rows: 30 })).read();
  await using second = (await sit(fixture, app, { columns: 90, rows: 40 })).read();
  await using third = (await sit(fixture, app)).read();
  await first.type("one\n");
  await first.sees(/got one/);
  await second.type("size\n");
  for (const seat of [first, second, third]) await seat.sees(/one\r\ngot one\r\n[^]*30 90\r\ngot size/);
  first.terminal.resize({ columns: 50, rows: 20 });
  await third.type("size\n");
  await third.sees(/20 50/);
  await first[Symbol.asyncDispose]();
  await eventually(async () => {
    await second.type("size\n");
    assert.match(second.text, /40 90/);
  }, patienceMs);
  await second.terminal.endInput();
  await third.type("end\n");
  t.deepEqual(await Promise.all([second.terminal.exitCode, third.terminal.exitCode]), [7, 7]);

  const log = await fixture.output(app);
  t.true(log.includes("got one"), "its output is logged");
  t.is(
    log.find((line) => line.includes("\r")),
    undefined,
  );
  // Its supervisor may be about to exit.
  await eventually(() => assert.rejects(sit(fixture, app), { message: /does not run/ }), patienceMs);
});

test("sizes of a window that a supervisor does not take are not queued", async (t) => {
  await using fixture = await createFixture();
  const app = await fixture.shell("sleep 1000", { console: {} }, process.getuid?.() ?? 0);
  await mkdir(app.runDir, { recursive: true });
  const sizes: TerminalSize[] = [];
  let answerFirst: (() => void) | undefined;
  // Replies to the first size only when the test asks for it.
  const server = createServer((socket) => {
    const say = (message: object): void => void socket.write(`${JSON.stringify(message)}\n`);
    socket.on("error", () => undefined);
    say({ type: "hello", protocol: { min: 1, max: 1 } });
    createInterface({ input: socket }).on("line", (line) => {
      const { id, cmd, size } = JSON.parse(line) as { id: number; cmd: string; size?: TerminalSize };
      const reply = (): void => say({ type: "reply", id, ok: true });
      if (cmd === "resize" && size !== undefined) sizes.push(size);
      if (cmd === "resize" && sizes.length === 1) answerFirst = reply;
      else reply();
    });
  });
  t.teardown(() => server.close());
  await once(server.listen(join(app.runDir, "supervisor.sock")), "listening");
  await using seat = (await sit(fixture, app)).read();
  const last = { columns: 50, rows: 20 };
  for (let columns = 1; columns <= 1_000; columns++) seat.terminal.resize({ columns, rows: 24 });
  seat.terminal.resize(last);
  await eventually(() => assert.ok(answerFirst), patienceMs);
  answerFirst?.();
  await eventually(() => assert.deepEqual(sizes.at(-1), last), patienceMs);
  t.deepEqual(sizes, [{ columns: 1, rows: 24 }, last]);
});

test("a link in place of a supervisor's socket is not followed", async (t) => {
  await using fixture = await createFixture();
  const app = await fixture.shell("sleep 1000", { console: {} }, process.getuid?.() ?? 0);
  await mkdir(app.runDir, { recursive: true });
  const elsewhere = join(fixture.store, "elsewhere.sock");
  let connections = 0;
  const server = createServer((socket) => {
    connections++;
    socket.destroy();
  });
  t.teardown(() => server.close());
  await once(server.listen(elsewhere), "listening");
  await symlink(elsewhere, join(app.runDir, "supervisor.sock"));
  await t.throwsAsync(sit(fixture, app), { message: /does not run|is not running/ });
  t.is(connections, 0);
});

test("the terminal survives the daemon, and a later client sees its last screen", async (t) => {
  await using fixture = await createFixture();
  const app = await fixture.shell(
    "i=0; while [ $i -lt 200 ]; do i=$((i+1)); echo row-$i-; done; read x; echo read $x; sleep 1000",
    { console: {} },
  );
  const daemon = spawn(process.execPath, [join(import.meta.dirname, "support/daemon.ts"), fixture.store], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  daemon.stdin.write(`${JSON.stringify({ start: [app] })}\n`);
  await nextEvent(daemon.stdout, "data");
  daemon.kill("SIGKILL");
  await nextEvent(daemon, "exit");
  t.is(await fixture.runtime.reattach(app), "running");
  await eventually(async () => assert.equal((await fixture.output(app)).at(-1), "row-200-"), patienceMs);
  await using seat = (await sit(fixture, app, { columns: 80, rows: 10 })).read();
  await seat.sees(/row-200-/);
  t.deepEqual(
    seat.text.split("\r\n").filter((line) => line !== ""),
    Array.from({ length: 10 }, (_, index) => `row-${191 + index}-`),
  );
  await seat.type("this\n");
  await seat.sees(/read this/);
});

test("a client that does not read blocks neither the app nor the others, and resumes with the latest screen", async (t) => {
  await using fixture = await createFixture();
  const app = await fixture.shell(
    "read x; head -c 20000000 /dev/zero | tr '\\0' x | fold -w 99; echo; echo the-$((40+2)); sleep 1000",
    { console: {} },
  );
  await fixture.runtime.start(app);
  await using stalled = await sit(fixture, app, { columns: 120, rows: 20 });
  await using other = (await sit(fixture, app)).read();
  await other.type("go\n");
  await other.sees(/the-42/);
  stalled.read();
  await stalled.sees(/the-42/);
  t.true(stalled.missedBytes > 10_000_000, `${stalled.missedBytes} bytes`);
  t.true(stalled.text.length + stalled.missedBytes >= 20_000_000, "it receives the number of skipped bytes");
  const state = JSON.parse(await readFile(join(app.runDir, "state.json"), "utf8")) as {
    supervisor: { pid: number };
  };
  const status = await readFile(`/proc/${state.supervisor.pid}/status`, "utf8");
  t.true(Number(/^VmRSS:\s+(\d+)/m.exec(status)?.[1]) < 200 * 1024, status);
});

test("a pasted megabyte arrives completely, and an app that does not read does not block others' input", async (t) => {
  await using fixture = await createFixture();
  const app = await fixture.shell(
    "stty raw -echo; echo ready; head -c 1000000 | cksum; sleep 1; echo deaf; sleep 1000",
    { console: {} },
  );
  await fixture.runtime.start(app);
  await using seat = (await sit(fixture, app)).read();
  await seat.sees(/ready/);
  const pasted = Buffer.from("grüße €😀 ".repeat(70_000)).subarray(0, 1_000_000);
  assert.equal(pasted.length, 1_000_000);
  await seat.terminal.write(pasted);
  await seat.sees(/deaf/);
  const child = spawn("cksum", { stdio: ["pipe", "pipe", "inherit"] });
  child.stdin.end(pasted);
  const [sum] = (await nextEvent(child.stdout, "data")) as [Buffer];
  t.true(seat.text.includes(sum.toString().trim()), seat.text);
  const flood = seat.terminal.write(Buffer.alloc(2 ** 20, "x"));
  // A flooding client is not waited for.
  await (await sit(fixture, app))[Symbol.asyncDispose]();
  await seat[Symbol.asyncDispose]();
  await flood;
});

test("pending input of one client is limited, and others can still type", async (t) => {
  const log = { write: () => Promise.resolve(), finishLine: () => Promise.resolve() };
  const app = new AppTerminal(log as never);
  // The app does not read.
  const { ended, hangUp } = app.open();
  const [one, other] = [0, 1].map(() => app.watch(undefined, () => undefined));
  assert.ok(one && other);
  const typed = [app.type(one, Buffer.alloc(256 * 1024, "x"))];
  t.throws(() => app.type(one, Buffer.from("x")), { message: /does not read its input/ });
  t.notThrows(() => typed.push(app.type(other, Buffer.from("x"))));
  for (const watcher of [one, other]) watcher.leave();
  hangUp();
  await Promise.all([...typed, ended]);
});

test("an app without a terminal has none", async (t) => {
  await using fixture = await createFixture();
  const app = await fixture.shell("exec sleep 1000");
  await fixture.runtime.start(app);
  await t.throwsAsync(sit(fixture, app), { message: /the package sets no `console`/ });
  const later = { ...app, manifest: { ...app.manifest, console: {} } };
  await t.throwsAsync(sit(fixture, later), { message: /the app has no terminal/ });
});

// The retained output of a terminal for its clients.

const capacityBytes = 256 * 1024;

test("a client that reads in time misses nothing, in any chunk sizes", (t) => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 1, max: 100_000 }), { maxLength: 20 }), (lengths) => {
      const recent = new RecentOutput();
      const watcher = new Watcher(recent, 0, () => undefined);
      let counter = 0;
      for (const length of lengths) {
        const chunk = Buffer.from(Array.from({ length }, () => counter++ % 251));
        recent.push(chunk);
        const seen: Buffer[] = [];
        for (let next = watcher.next(); next !== undefined; next = watcher.next()) {
          if (!("data" in next)) return false;
          seen.push(next.data);
        }
        if (!Buffer.concat(seen).equals(chunk)) return false;
      }
      return true;
    }),
    { numRuns: 50 },
  );
  t.pass();
});

test("a later client starts with a complete character, and with a repainted screen if there is one", (t) => {
  const text = new RecentOutput();
  // Their size does not divide the ring's.
  for (let count = 0; count < 200_000; count++) text.push(Buffer.from("€"));
  const begin = text.screenStart(24);
  t.true(begin > text.start && begin - text.start < 4);
  t.is(text.read(begin).toString("utf8", 0, 3), "€");

  const editor = new RecentOutput();
  editor.push(Buffer.from("line\n".repeat(100)));
  const painted = editor.end;
  editor.push(Buffer.from(`\x1b[?1049h${"row\n".repeat(100)}`));
  t.is(editor.screenStart(5), painted);
  editor.push(Buffer.from("\x1b[?1049l"));
  t.true(editor.screenStart(5) > painted);
});

test("a slow client gets the number of skipped bytes, and resumes with the latest screen", (t) => {
  const recent = new RecentOutput();
  const watcher = new Watcher(recent, 0, () => undefined);
  watcher.size = { columns: 80, rows: 5 };
  const line = (number: number): string => `line ${String(number).padStart(6, "0")}\r\n`;
  const lines = 50_000;
  for (let number = 0; number < lines; number++) recent.push(Buffer.from(line(number)));
  const all = lines * line(0).length;
  t.is(recent.end, all);
  t.is(recent.start, all - capacityBytes, "no more than the buffer's size is retained");
  const missed = watcher.next();
  const screen = [45, 46, 47, 48, 49].map((number) => line(lines - 50 + number)).join("");
  t.deepEqual(missed, { missedBytes: all - screen.length });
  t.deepEqual(watcher.next(), { data: Buffer.from(screen) });
  t.is(watcher.next(), undefined);
});
