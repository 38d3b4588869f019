import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import test from "ava";
import { ConsoleInputSchema, type ConsoleInput } from "../../gen/svc/v1/app_pb.ts";
import { Consoles, type ConsolesOptions } from "../../src/console/consoles.ts";
import type { Terminal } from "../../src/lib/terminal.ts";
import { eventually } from "../support/eventually.ts";

test("a client that ends its input again and again has one end of input waiting", async (t) => {
  const exited = Promise.withResolvers<number>();
  let [ends, sent] = [0, 0];
  const terminal: Terminal = {
    output: {
      [Symbol.asyncIterator]: () => ({
        next: async () => {
          await exited.promise;
          return { done: true, value: undefined };
        },
      }),
    },
    exitCode: exited.promise,
    write: () => Promise.resolve(),
    // Its program reads nothing.
    endInput: () => {
      ends++;
      return exited.promise.then(() => undefined);
    },
    resize: () => undefined,
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
  const options = {
    finder: { find: () => Promise.resolve({ manifest: {} }), has: () => true },
    runtimes: { openTerminal: () => Promise.resolve(terminal) },
    maxPerUser: 1,
  };
  const consoles = new Consoles(options as unknown as ConsolesOptions);
  async function* inputs(): AsyncGenerator<ConsoleInput> {
    yield create(ConsoleInputSchema, { appId: "web", session: "shell" });
    for (; sent < 1_000; sent++) yield create(ConsoleInputSchema, { endOfInput: true });
    await exited.promise;
  }
  const said: unknown[] = [];
  const over = (async () => {
    for await (const { output } of consoles.attach(
      inputs(),
      { uid: 1000, ownerUid: 1000, root: false },
      AbortSignal.timeout(60_000),
    ))
      said.push(output?.case);
  })();
  await eventually(() => assert.equal(sent, 1_000));
  t.is(ends, 1);
  exited.resolve(0);
  await over;
  t.deepEqual(said, ["opened", "exit"]);
});
