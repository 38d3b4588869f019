/** Secrets that commands take: from a file, or typed. */
import type { CommandContext } from "./context.ts";
import { UsageError } from "./failure.ts";
import { askSecret, isInteractive } from "./prompt.ts";
import { readInput } from "./read-input.ts";

interface SecretQuestion {
  /** What it is, for errors: `password`. */
  readonly what: string;
  readonly prompt: string;
  /** The option that names a file with it. */
  readonly option: string;
}

/**
 * Never from the command line, which everybody on the host can read.
 * @throws UsageError when nobody is there to type it, or it is empty
 */
export async function readSecret(
  { host }: Pick<CommandContext, "host">,
  file: string | undefined,
  { what, prompt, option }: SecretQuestion,
): Promise<string> {
  if (file === undefined && !isInteractive(host)) {
    throw new UsageError(`nobody is there to type the ${what}: pass ${option}, - for stdin`);
  }
  const text =
    file === undefined ? await askSecret(host, prompt) : (await readInput(host, file)).replace(/\r?\n$/, "");
  if (text === "") throw new UsageError(`the ${what} is empty`);
  return text;
}
