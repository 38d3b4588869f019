/** The terminal of an app's own: many watch it, none of them holds it up, and it outlives the daemon. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import type { Terminal, TerminalSize } from "../../src/lib/terminal.ts";
import { AppTerminal } from "../../src/runtimes/process/app-terminal.mjs";
import type { RunnableApp } from "../../src/runtimes/runtime.ts";
import { eventually } from "../support/eventually.ts";
import type { Fixture } from "./support/fixture.ts";
import { sharedFixtures } from "./support/shared-fixture.ts";

const createFixture = sharedFixtures();

const patienceMs = 30_000;

/** Somebody who watches, and what they have seen. */
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

test("all who watch see the same, in the smallest of their windows, and hear the exit code", async (t) => {
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
  t.true(log.includes("got one"), "what it shows is the log");
  t.is(
    log.find((line) => line.includes("\r")),
    undefined,
  );
  // Its supervisor may be about to go.
  await eventually(() => assert.rejects(sit(fixture, app), { message: /does not run/ }), patienceMs);
});

test("it outlives the daemon, and who comes later sees its last screen", async (t) => {
  await using fixture = await createFixture();
  const app = await fixture.shell(
    "i=0; while [ $i -lt 200 ]; do i=$((i+1)); echo row-$i-; done; read x; echo read $x; sleep 1000",
    { console: {} },
  );
  const daemon = spawn(process.execPath, [join(import.meta.dirname, "support/daemon.ts"), fixture.store], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  daemon.stdin.write(`${JSON.stringify({ start: [app] })}\n`);
  await once(daemon.stdout, "data");
  daemon.kill("SIGKILL");
  await once(daemon, "exit");
  t.is(await fixture.runtime.adopt(app), "running");
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

test("who does not look holds up neither the app nor the others, and goes on with the latest screen", async (t) => {
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
  t.true(stalled.text.length + stalled.missedBytes >= 20_000_000, "it knows how much it has not seen");
  const state = JSON.parse(await readFile(join(app.runDir, "state.json"), "utf8")) as {
    supervisor: { pid: number };
  };
  const status = await readFile(`/proc/${state.supervisor.pid}/status`, "utf8");
  t.true(Number(/^VmRSS:\s+(\d+)/m.exec(status)?.[1]) < 200 * 1024, status);
});

test("a megabyte that is pasted comes whole, and an app that does not read keeps no other from typing", async (t) => {
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
  const [sum] = (await once(child.stdout, "data")) as [Buffer];
  t.true(seat.text.includes(sum.toString().trim()), seat.text);
  const flood = seat.terminal.write(Buffer.alloc(2 ** 20, "x"));
  // Who floods is not waited for.
  await (await sit(fixture, app))[Symbol.asyncDispose]();
  await seat[Symbol.asyncDispose]();
  await flood;
});

test("of one watcher no more waits to be typed than there is room for, and others type on", async (t) => {
  const log = { write: () => Promise.resolve(), finishLine: () => Promise.resolve() };
  const app = new AppTerminal(log as never);
  // Nobody reads at the far end.
  const { ended, hangUp } = app.open();
  const [one, other] = [0, 1].map(() => app.watch(undefined, () => undefined));
  assert.ok(one && other);
  const typed = [app.type(one, Buffer.alloc(256 * 1024, "x"))];
  t.throws(() => app.type(one, Buffer.from("x")), { message: /more than the app takes/ });
  t.notThrows(() => typed.push(app.type(other, Buffer.from("x"))));
  for (const watcher of [one, other]) watcher.leave();
  hangUp();
  await Promise.all([...typed, ended]);
});

test("an app that was started without one has none", async (t) => {
  await using fixture = await createFixture();
  const app = await fixture.shell("exec sleep 1000");
  await fixture.runtime.start(app);
  await t.throwsAsync(sit(fixture, app), { message: /its package says no `console`/ });
  const later = { ...app, manifest: { ...app.manifest, console: {} } };
  await t.throwsAsync(sit(fixture, later), { message: /the app has no terminal/ });
});
