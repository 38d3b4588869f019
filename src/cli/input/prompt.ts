/** Questions to a person at a terminal. They go to stderr, so that stdout has only the command's output. */
import { SvcError } from "../../errors.ts";
import { DeclinedError, UsageError } from "../output/failure.ts";
import type { CliHost } from "../host.ts";
import { escapeControls } from "../output/escape.ts";
import { canceled } from "../client/http.ts";
import { chooseNode, type NodeOptions } from "../nodes/choose-node.ts";

/** Whether a person is at the terminal. */
export function isInteractive(host: Pick<CliHost, "stdin" | "stderr">): boolean {
  return host.stdin.isTTY && host.stderr.isTTY === true;
}

/**
 * Reads one line from the terminal. Control characters in the question are escaped.
 * @throws SvcError `canceled` at Ctrl-C and at the end of input
 */
export async function ask(host: CliHost, question: string): Promise<string> {
  const { createInterface } = await import("node:readline/promises");
  const prompt = createInterface({ input: host.stdin, output: host.stderr, terminal: false });
  // The end of input closes the interface, which would leave the question open forever.
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

/** Reads one line from the terminal without showing it. @throws SvcError `canceled` as {@link ask} does */
export async function askSecret(host: CliHost, question: string): Promise<string> {
  const { stdin, stderr } = host;
  stdin.setRawMode?.(true);
  try {
    stderr.write(escapeControls(question));
    let typed = "";
    for await (const chunk of stdin.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
      for (const key of chunk.toString()) {
        if (key === "\r" || key === "\n") return typed;
        // In raw mode, the reader must handle Ctrl-C and Ctrl-D.
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

/** Asks a question; only `y` or `yes` confirms. */
export async function confirm(host: CliHost, question: string): Promise<boolean> {
  return /^y(es)?$/i.test(await ask(host, `${question} [y/N] `));
}

/** A removal to confirm. */
export interface Removal {
  readonly question: string;
  /** Names what is lost. Starts a sentence. */
  readonly loss: string;
  /** Checks that the target exists, before asking. */
  readonly checkTarget?: () => Promise<unknown>;
}

/**
 * Asks before something is destroyed, unless `--yes` is set. Names the node if it is another one.
 * @throws errors of `checkTarget`; UsageError without a terminal; SvcError `not_possible` if the user declines
 */
export async function confirmRemoval(
  { host, options }: { readonly host: CliHost; readonly options: { readonly yes?: boolean } & NodeOptions },
  { question, loss, checkTarget }: Removal,
): Promise<void> {
  if (options.yes === true) return;
  await checkTarget?.();
  const node = chooseNode(host, options);
  const where = node === undefined ? "" : `on ${node.name}: `;
  if (!isInteractive(host)) throw new UsageError(`${where}${loss}; pass --yes to confirm`);
  if (!(await confirm(host, `${where}${question}`))) throw nothingChanged();
}

export function nothingChanged(): SvcError {
  return new DeclinedError();
}

/** Asks for a number from 1 to `count` until the input is valid. */
export async function choose(host: CliHost, count: number): Promise<number> {
  for (;;) {
    const answer = await ask(host, `Which one? [1-${count}] `);
    const number = Number(answer);
    if (/^\d+$/.test(answer) && number >= 1 && number <= count) return number;
  }
}
