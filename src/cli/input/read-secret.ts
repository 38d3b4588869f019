/** Secrets that commands read: from a file, or typed. */
import type { CommandContext } from "../context.ts";
import { UsageError } from "../output/failure.ts";
import { askSecret, isInteractive } from "./prompt.ts";
import { readInput } from "./local-file.ts";

interface SecretQuestion {
  /** Its kind, for errors: `password`. */
  readonly what: string;
  readonly prompt: string;
  /** The option that names a file with the secret. */
  readonly option: string;
}

/**
 * Reads a secret from the terminal or stdin: other users on the host can read arguments.
 * @throws UsageError if nobody can type it, or it is empty
 */
export async function readSecret(
  { host }: Pick<CommandContext, "host">,
  file: string | undefined,
  { what, prompt, option }: SecretQuestion,
): Promise<string> {
  if (file === undefined && !isInteractive(host)) {
    throw new UsageError(`no terminal to type the ${what}: pass ${option}, - for stdin`);
  }
  const text =
    file === undefined ? await askSecret(host, prompt) : (await readInput(host, file)).replace(/\r?\n$/, "");
  if (text === "") throw new UsageError(`the ${what} is empty`);
  return text;
}
