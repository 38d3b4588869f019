import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import test from "ava";
import { eventually, nextEvent } from "./eventually.ts";
import { hideLog, showLog } from "./live-logs.ts";

test("a wait that fails reports its duration, its caller, its last error, and the logs of the daemons", async (t) => {
  showLog("daemon one", () => "first\n".repeat(100) + "last\n");
  const error = await t
    .throwsAsync(eventually(() => assert.equal("STOPPED", "RUNNING"), 50))
    .finally(() => hideLog("daemon one"));
  t.true(error instanceof assert.AssertionError);
  t.regex(error.message, /^not within 0\.05 s \(test\/support\/eventually\.test\.ts:\d+:\d+\): /);
  t.regex(error.message, /STOPPED[^]*RUNNING[^]*last log lines of daemon one:\n(first\n){14}last$/);
});

test("an attempt that does not return fails with the error of the previous attempt", async (t) => {
  let attempts = 0;
  const attempt = (): Promise<void> => {
    if (attempts++ === 0) throw new Error("busy");
    return new Promise(() => undefined);
  };
  await t.throwsAsync(eventually(attempt, 50, 250, 100), {
    message: /^not within 0\.05 s .*: the last attempt did not return; the attempt before it failed: busy$/,
  });
});

test("an event that is not emitted fails with its name", async (t) => {
  await t.throwsAsync(nextEvent(new EventEmitter(), "ready", 50), {
    message: /^not within 0\.05 s \(test\/support\/eventually\.test\.ts.*\): no "ready" of EventEmitter$/,
  });
});

test("an emitter's error fails the wait for another event", async (t) => {
  const emitter = new EventEmitter();
  setImmediate(() => emitter.emit("error", new Error("gone")));
  await t.throwsAsync(nextEvent(emitter, "ready"), { message: "gone" });
});
