/** Questions to a person at a terminal. They go to stderr, so that stdout stays what the command prints. */
import { SvcError } from "../errors.ts";
import { UsageError } from "./failure.ts";
import type { CliHost } from "./host.ts";
import { escapeControls } from "./render/escape.ts";
import { canceled } from "./transport/http.ts";

/** Whether there is somebody to ask. */
export function isInteractive(host: Pick<CliHost, "stdin" | "stderr">): boolean {
  return host.stdin.isTTY && host.stderr.isTTY === true;
}

/** One line from the terminal. Control characters of the question are escaped. @throws SvcError `canceled` at Ctrl-C and at the end of input. */
export async function ask(host: CliHost, question: string): Promise<string> {
  const { createInterface } = await import("node:readline/promises");
  const prompt = createInterface({ input: host.stdin, output: host.stderr, terminal: false });
  // The end of input closes the interface and would leave the question open for ever.
  const ended = new AbortController();
  prompt.once("close", () => ended.abort());
  try {
    const signal = AbortSignal.any([host.interrupted, ended.signal]);
    return (await prompt.question(escapeControls(question), { signal })).trim();
  } catch (error) {
    throw error instanceof SvcError ? error : canceled();
  } finally {
    prompt.close();
  }
}

/** One line from the terminal that is not shown while it is typed. @throws SvcError `canceled` as {@link ask} does */
export async function askSecret(host: CliHost, question: string): Promise<string> {
  const { stdin, stderr } = host;
  stdin.setRawMode?.(true);
  try {
    stderr.write(escapeControls(question));
    let typed = "";
    for await (const chunk of stdin.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
      for (const key of chunk.toString()) {
        if (key === "\r" || key === "\n") return typed;
        // Raw mode leaves Ctrl-C and Ctrl-D to whoever reads.
        if (key === "\u0003" || key === "\u0004") throw canceled();
        typed = key === "\u007f" || key === "\b" ? typed.slice(0, -1) : typed + key;
      }
    }
    throw canceled();
  } finally {
    stdin.setRawMode?.(false);
    stdin.pause();
    stderr.write("\n");
  }
}

/** A question that only `y` or `yes` answers with yes. */
export async function confirm(host: CliHost, question: string): Promise<boolean> {
  return /^y(es)?$/i.test(await ask(host, `${question} [y/N] `));
}

/** What goes with a removal. */
export interface Removal {
  readonly question: string;
  /** What is lost with it, as the beginning of a sentence. */
  readonly loss: string;
  /** Looks for it: what is not there is nothing to ask about. */
  readonly look?: () => Promise<unknown>;
}

/**
 * Asks before something is destroyed, unless the command line says `--yes`.
 * @throws what `look` does; UsageError when there is nobody to ask; SvcError `canceled` when the answer is no
 */
export async function confirmRemoval(
  { host, options }: { readonly host: CliHost; readonly options: { readonly yes?: boolean } },
  { question, loss, look }: Removal,
): Promise<void> {
  if (options.yes === true) return;
  await look?.();
  if (!isInteractive(host)) throw new UsageError(`${loss}: confirm with --yes`);
  if (!(await confirm(host, question))) throw nothingChanged();
}

export function nothingChanged(): SvcError {
  return new SvcError("not_possible", "nothing was changed");
}

/** A number from 1 to `count`; asks again until there is one. */
export async function choose(host: CliHost, count: number): Promise<number> {
  for (;;) {
    const answer = await ask(host, `Which one? [1-${count}] `);
    const number = Number(answer);
    if (/^\d+$/.test(answer) && number >= 1 && number <= count) return number;
  }
}
