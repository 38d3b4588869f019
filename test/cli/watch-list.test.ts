/** A watched list, poll by poll: what ends it, and when notes are printed, on a terminal and elsewhere. */
import test from "ava";
import { CommandContext } from "../../src/cli/context.ts";
import type { CliHost } from "../../src/cli/host.ts";
import type { Client } from "../../src/cli/client/client.ts";
import { watch } from "../../src/cli/output/watch-list.ts";
import { SvcError } from "../../src/errors.ts";

type Look = (context: CommandContext) => void | Promise<void>;

interface Watched {
  /** What ended it: "interrupted" after the last poll. */
  readonly ended: string;
  readonly looks: number;
  readonly stdout: readonly string[];
  readonly stderr: readonly string[];
}

async function watched(looks: readonly Look[], { isTTY = false } = {}): Promise<Watched> {
  const written = { stdout: [] as string[], stderr: [] as string[] };
  const stream = (name: keyof typeof written) => ({
    ...{ isTTY, columns: 20 },
    write: (text: string) => written[name].push(text) > 0,
  });
  const host = {
    ...{ env: {}, interrupted: new AbortController().signal },
    ...{ stdout: stream("stdout"), stderr: stream("stderr") },
  } as CliHost;
  const context = new CommandContext(host, { color: false }, () => Promise.reject(new Error("in-process")));
  context.client = () => Promise.resolve({ isAvailable: () => Promise.resolve(true) } as Client);
  let looked = 0;
  context.pause = () =>
    looked < looks.length ? Promise.resolve() : Promise.reject(new SvcError("canceled", "interrupted"));
  const ended = await watch(context, async (once) => looks[looked++]?.(once)).then(
    () => "",
    (error: unknown) => (error as Error).message,
  );
  return { ended, looks: looked, ...written };
}

const list: Look = (context) => context.print("hello\n");
const unavailable: Look = () => {
  throw new SvcError("unavailable", "nobody is there");
};
const noted: Look = async (context) => {
  await context.print("hello\n");
  context.note("one of them is stopped since yesterday");
};

test("a daemon that never responded is an error at once", async (t) => {
  t.like(await watched([unavailable, list]), { ended: "nobody is there", looks: 1, stdout: [], stderr: [] });
});

test("any error other than an unavailable daemon ends the list", async (t) => {
  const refused: Look = () => {
    throw new SvcError("not_found", "no such app");
  };
  t.like(await watched([list, refused, list]), { ended: "no such app", looks: 2 });
});

test("without a terminal, notes and an unavailable daemon are reported once", async (t) => {
  const { ended, stdout, stderr } = await watched([
    noted,
    noted,
    unavailable,
    unavailable,
    noted,
    unavailable,
  ]);
  t.is(ended, "interrupted");
  t.deepEqual(stdout, ["hello\n\n", "hello\n\n", "hello\n\n"]);
  const lost = "nobody is there; waiting\n";
  t.deepEqual(stderr, ["one of them is stopped since yesterday\n", lost, lost]);
});

test("on a terminal, notes are below the list, one line each, and redrawn with it", async (t) => {
  const { ended, stdout, stderr } = await watched([noted, noted, unavailable, unavailable, list], {
    isTTY: true,
  });
  t.is(ended, "interrupted");
  t.deepEqual(stderr, []);
  const shown = "hello\none of them is stop…\n";
  const back = (lines: number): string => `\x1b[${lines}A\x1b[J`;
  t.deepEqual(stdout, [
    shown,
    back(2) + shown,
    `${back(2)}${shown}nobody is there; waiting\n`,
    `${back(3)}hello\n`,
  ]);
});
