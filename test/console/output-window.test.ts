/** How far output runs ahead of a client that says what it has shown. */
import { setImmediate as turn } from "node:timers/promises";
import test from "ava";
import { OutputWindow } from "../../src/console/output-window.ts";

const windowBytes = 128 * 1024;

/** Whether so many more bytes leave room for others. */
async function hasRoomAfter(window: OutputWindow, bytes: number): Promise<boolean> {
  let hasRoom = false;
  void window.sent(bytes).then(() => (hasRoom = true));
  await turn();
  return hasRoom;
}

test("who says what they have shown is sent so much more, and not what they claim besides", async (t) => {
  const silent = new OutputWindow();
  t.true(await hasRoomAfter(silent, 100 * windowBytes), "what carries the bytes holds them back");

  const window = new OutputWindow();
  await window.sent(10);
  // More than they can have seen.
  window.acknowledge(Number.MAX_SAFE_INTEGER);
  t.true(await hasRoomAfter(window, windowBytes - 1));
  const waiting = window.sent(1);
  let isOver = false;
  void waiting.then(() => (isOver = true));
  await turn();
  t.false(isOver);
  // What was said before is not taken back.
  window.acknowledge(1);
  await turn();
  t.false(isOver);
  window.acknowledge(11);
  await waiting;
  t.pass();
});

test("while a program takes nothing before it is read, all of it goes out", async (t) => {
  const window = new OutputWindow();
  window.acknowledge(1);
  t.false(await hasRoomAfter(window, windowBytes));
  const taken = Promise.withResolvers<undefined>();
  const typing = window.openFor(taken.promise);
  t.true(await hasRoomAfter(window, windowBytes));
  taken.resolve(undefined);
  await typing;
  t.false(await hasRoomAfter(window, 1));
});
