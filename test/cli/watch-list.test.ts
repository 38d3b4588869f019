/** A watched list, look by look: what ends it, and what is said when, on a terminal and elsewhere. */
import test from "ava";
import { CommandContext } from "../../src/cli/context.ts";
import type { CliHost } from "../../src/cli/host.ts";
import type { Client } from "../../src/cli/transport/client.ts";
import { watch } from "../../src/cli/watch-list.ts";
import { SvcError } from "../../src/errors.ts";

type Look = (context: CommandContext) => void | Promise<void>;

interface Watched {
  /** What ended it: "interrupted" after the last look. */
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
  } as unknown as CliHost;
  const context = new CommandContext(host, { color: false }, () => Promise.reject(new Error("in-process")));
  context.client = () => Promise.resolve({ isThere: () => Promise.resolve(true) } as unknown as Client);
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
const away: Look = () => {
  throw new SvcError("unavailable", "nobody is there");
};
const noted: Look = async (context) => {
  await context.print("hello\n");
  context.note("one of them is stopped since yesterday");
};

test("a daemon that never answered is told at once", async (t) => {
  t.like(await watched([away, list]), { ended: "nobody is there", looks: 1, stdout: [], stderr: [] });
});

test("what is no daemon that is away ends it", async (t) => {
  const refused: Look = () => {
    throw new SvcError("not_found", "no such app");
  };
  t.like(await watched([list, refused, list]), { ended: "no such app", looks: 2 });
});

test("elsewhere a note beside the list is said once, and so is a daemon that is away", async (t) => {
  const { ended, stdout, stderr } = await watched([noted, noted, away, away, noted, away]);
  t.is(ended, "interrupted");
  t.deepEqual(stdout, ["hello\n\n", "hello\n\n", "hello\n\n"]);
  const lost = "nobody is there; waiting\n";
  t.deepEqual(stderr, ["one of them is stopped since yesterday\n", lost, lost]);
});

test("on a terminal what is said stands below the list, a line each, and goes with it", async (t) => {
  const { ended, stdout, stderr } = await watched([noted, noted, away, away, list], { isTTY: true });
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
