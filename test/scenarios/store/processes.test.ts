import { randomInt } from "node:crypto";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import test from "ava";
import { startFixture } from "../../store/support/processes.ts";
import {
  keys,
  openStore,
  put,
  temporaryDir,
  temporaryStore,
  until,
} from "../../store/support/temporary-store.ts";

/** More with SVC_LONG=1. */
const kills = process.env["SVC_LONG"] === undefined ? 20 : 200;

// First, because these processes exit normally, which stores their compile cache for those that are killed.
test.serial("four processes create and write one store at the same time", async (t) => {
  await using dir = await temporaryDir();
  const prefixes = ["a", "b", "c", "d"];
  const count = 100;
  await using stack = new AsyncDisposableStack();
  const writers = prefixes.map((prefix) =>
    stack.use(startFixture("append", [dir.path, prefix, String(count)])),
  );
  t.deepEqual(await Promise.all(writers.map(({ exited }) => exited)), [0, 0, 0, 0]);
  await using store = await openStore({ dir: dir.path });
  t.is(keys(store).length, prefixes.length * count * 2);
});

test.serial(
  `${kills} kills (-9) in the middle of writes lose no acknowledged write and leave no partial write`,
  async (t) => {
    t.timeout(kills * 10_000);
    await using dir = await temporaryDir();
    await (await openStore({ dir: dir.path }))[Symbol.asyncDispose]();
    let acknowledged = 0;
    const killed = async (prefix: string): Promise<void> => {
      await using writer = startFixture("append", [dir.path, prefix]);
      await until(() => writer.lines().length > 0, 60_000);
      await sleep(randomInt(0, 60));
      writer.child.kill("SIGKILL");
      t.is(await writer.exited, "SIGKILL");

      await using store = await openStore({ dir: dir.path });
      t.is(store.restoration, undefined);
      const found = new Set(
        store
          .all<{ key: string }>("SELECT key FROM meta WHERE key GLOB ?", `${prefix}*`)
          .map(({ key }) => key),
      );
      for (const n of writer.lines()) {
        acknowledged++;
        if (!found.has(`${prefix}${n}`)) t.fail(`${prefix}${n} was acknowledged and is gone`);
      }
      for (const key of found) {
        const twin = key.endsWith("-twin") ? key.slice(0, -"-twin".length) : `${key}-twin`;
        if (!found.has(twin)) t.fail(`${key} is there without ${twin}`);
      }
    };
    // Two at a time, so that a killed process's log is also recovered while another process uses it.
    for (let n = 0; n < kills; n += 2) await Promise.all([killed(`a${n}-`), killed(`b${n}-`)]);
    t.log(`${acknowledged} acknowledged writes, all there`);
  },
);

test.serial("kills (-9) while a store is created leave a store that opens", async (t) => {
  for (let n = 0; n < 12; n++) {
    await using dir = await temporaryDir();
    await using maker = startFixture("append", [dir.path, "a", "1"]);
    await sleep(60 + n * 30);
    maker.child.kill("SIGKILL");
    await maker.exited;
    await using store = await openStore({ dir: dir.path });
    for (const line of maker.lines()) t.true(keys(store).includes(`a${line}`));
    await store.write([put("after")]);
    t.is(store.restoration, undefined);
  }
});

test.serial("the event loop runs while another process holds the write lock for 2 s", async (t) => {
  await using temporary = await temporaryStore();
  const { store, dir } = temporary;
  await store.write([put("warm")]);
  await using holder = startFixture("hold", [`${dir}/svc.db`]);
  await until(() => holder.lines().includes("held"));
  const delay = monitorEventLoopDelay({ resolution: 5 });
  delay.enable();
  const waiting = Array.from({ length: 20 }, (_, n) => store.write([put(`n${n}`)]));
  const begun = performance.now();
  let reads = 0;
  while (performance.now() - begun < 2_000) {
    t.deepEqual(keys(store), ["warm"]);
    reads++;
    await sleep(10);
  }
  delay.disable();
  holder.child.stdin.end();
  await Promise.all(waiting);
  const maxMs = delay.max / 1e6;
  t.log(`${reads} reads, longest event-loop delay ${maxMs.toFixed(1)} ms`);
  // Waiting for the lock would take 2 s; a busy host has delays, too.
  t.true(maxMs < 1_500, `${maxMs} ms`);
  t.is(keys(store).length, 22);
});

test.serial(
  "a listener is notified of another process's commit within a second, and of its own at once",
  async (t) => {
    await using temporary = await temporaryStore();
    const { store, dir } = temporary;
    let heard = 0;
    using _listener = store.onChange(() => heard++);
    await store.write([put("own")]);
    t.is(heard, 1);
    await sleep(600);
    t.is(heard, 1, "an own commit is reported once");

    await using holder = startFixture("hold", [`${dir}/svc.db`]);
    await until(() => holder.lines().includes("held"));
    holder.child.stdin.end();
    await holder.exited;
    t.deepEqual(keys(store), ["held", "own"]);
    await until(() => heard === 2, 1_000);
  },
);

test.serial(
  "a listener is notified once of a commit that a poll notices before the writer reports it",
  async (t) => {
    await using temporary = await temporaryStore();
    const { store } = temporary;
    await store.write([put("warm")]);
    let heard = 0;
    using _listener = store.onChange(() => heard++);
    const writing = store.write([put("own")]);
    await new Promise(setImmediate);
    // Meanwhile the writer commits. Timers, and with them the poll, run before the writer's report is received.
    const begun = performance.now();
    while (performance.now() - begun < 600);
    await writing;
    t.is(heard, 1);
    await sleep(300);
    t.is(heard, 1);
  },
);

test.serial(
  "a disposed listener is not notified, and a listener that throws does not stop the others",
  async (t) => {
    const warnings: string[] = [];
    await using temporary = await temporaryStore({ log: { warn: (_, message) => warnings.push(message) } });
    const { store } = temporary;
    let heard = 0;
    const ended = store.onChange(() => t.fail("it has finished"));
    using _bad = store.onChange(() => {
      throw new Error("a bad listener");
    });
    using _good = store.onChange(() => heard++);
    ended[Symbol.dispose]();
    await store.write([put("a")]);
    t.is(heard, 1);
    t.deepEqual(warnings, ["a listener to the store failed"]);
  },
);
