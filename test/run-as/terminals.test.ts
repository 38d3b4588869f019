/** Programs of consoles: their output is complete, however slowly it is read. */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import test from "ava";
import { createUserHelpers } from "../../src/run-as/user-helpers.ts";
import { eventually } from "../support/eventually.ts";

const patienceMs = 30_000;

for (const hasTerminal of [true, false]) {
  const what = hasTerminal ? "a terminal" : "a pipe";
  test(`output of a program into ${what} is complete for a reader that starts after the program has exited`, async (t) => {
    await using userHelpers = createUserHelpers();
    // Less than the terminal buffers without a reader, so that the program can exit.
    const script = "echo $$; i=0; while [ $i -lt 30 ]; do echo line-$i-of-thirty; i=$((i+1)); done; exit 3";
    await using terminal = await userHelpers.openTerminal(userHelpers.selfUid, {
      argv: ["sh", "-c", script],
      cwd: "/",
      env: {},
      ...(hasTerminal && { size: { columns: 80, rows: 24 } }),
    });
    const pieces = terminal.output[Symbol.asyncIterator]();
    let text = "";
    const read = async (): Promise<boolean> => {
      const { done, value } = await pieces.next();
      if (done !== true && "data" in value) text += value.data.toString("latin1");
      return done !== true;
    };
    while (!/^\d+\r?\n/.test(text) && (await read()));
    const pid = Number(/^\d+/.exec(text)?.[0]);
    await eventually(async () => {
      const stat = await readFile(`/proc/${pid}/stat`, "latin1").catch(() => undefined);
      assert.equal(stat, undefined, "it has ended, and was reaped");
    }, patienceMs);
    // Longer than the wait for late output.
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    while (await read());
    t.is([...text.matchAll(/line-\d+-of-thirty/g)].length, 30);
    t.is(await terminal.exitCode, 3);
  });
}
