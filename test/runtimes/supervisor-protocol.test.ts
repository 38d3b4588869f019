import { execFile } from "node:child_process";
import { connect } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import test from "ava";
import type { RunnableApp } from "../../src/runtimes/runnable-app.ts";
import { programs } from "../support/programs.ts";
import { Fixture } from "./support/fixture.ts";

type Message = Record<string, unknown>;

/** Sends messages to a supervisor directly. */
function dial(app: RunnableApp) {
  const socket = connect(join(app.runDir, "supervisor.sock"));
  const lines = createInterface({ input: socket })[Symbol.asyncIterator]();
  const read = async (): Promise<Message> => JSON.parse((await lines.next()).value ?? "null") as Message;
  const ask = async (request: unknown): Promise<Message> => {
    socket.write(`${typeof request === "string" ? request : JSON.stringify(request)}\n`);
    return read();
  };
  return { read, ask, [Symbol.dispose]: () => void socket.destroy() };
}

test("a supervisor identifies itself, handles known requests and rejects others", async (t) => {
  await using fixture = await Fixture.create();
  const app = await fixture.shell("exec sleep 1000");
  await fixture.runtime.start(app);
  using supervisor = dial(app);
  t.like(await supervisor.read(), {
    type: "hello",
    protocol: { min: 1, max: 1 },
    svcVersion: "0.0.0-test",
    appId: app.id,
  });
  for (const [request, answer] of [
    [
      { id: 1, protocol: 1, cmd: "resize", unknown: true },
      { id: 1, ok: true },
    ],
    [
      { id: 2, protocol: 1, cmd: "dance" },
      { id: 2, ok: false, error: "unknown command" },
    ],
    [
      { id: 3, protocol: 9, cmd: "resize" },
      { id: 3, ok: false, error: "protocol 9 is not supported" },
    ],
    ["no json", { id: 0, ok: false }],
    ["null", { id: 0, ok: false }],
    [
      { id: 4, protocol: 1, cmd: "resize" },
      { id: 4, ok: true },
    ],
  ] as const) {
    t.like(await supervisor.ask(request), { type: "reply", ...answer }, JSON.stringify(request));
  }
});

test("an endless request is cut off, and the app keeps running", async (t) => {
  await using fixture = await Fixture.create();
  const app = await fixture.shell("exec sleep 1000");
  await fixture.runtime.start(app);
  const socket = connect(join(app.runDir, "supervisor.sock"));
  socket.on("error", () => undefined).resume();
  const closed = new Promise((resolve) => socket.once("close", resolve));
  socket.write("x".repeat(1_000_000));
  await closed;
  t.is(fixture.runtime.status(app.id)?.state, "RUNNING");
});

test("a second supervisor leaves the app to the existing one", async (t) => {
  await using fixture = await Fixture.create();
  const app = await fixture.shell("exec sleep 1000");
  await fixture.runtime.start(app);
  const [before] = fixture.runtime.runs();
  // It exits by itself, because it waits for nothing.
  await promisify(execFile)(process.execPath, [programs.supervisor], { cwd: app.runDir, timeout: 60_000 });
  using supervisor = dial(app);
  t.like(await supervisor.read(), { type: "hello", pid: before?.supervisorPid });
  t.like(fixture.runtime.status(app.id), { state: "RUNNING", restarts: 0 });
});
