/** Runs the compose of this host as the calling user, to read a package's compose file. */
import { execFile } from "node:child_process";
import type { CommandResult, RunCommandOptions } from "../run-as/user-helper-types.ts";
import { SvcError } from "../errors.ts";
import { ComposeCommand, type CommandRunner } from "../runtimes/compose/compose-command.ts";

export interface ComposeProgram {
  readonly command: ComposeCommand;
  readonly runner: CommandRunner;
}

/** @returns undefined if compose is not installed */
export async function findCompose(
  env: Readonly<Record<string, string | undefined>>,
): Promise<ComposeProgram | undefined> {
  const runner = commandRunner(env);
  const command = new ComposeCommand({ selfUid: 0, as: () => Promise.resolve(runner) });
  try {
    await command.fingerprint();
  } catch (error) {
    if (error instanceof SvcError && error.reason === "not_possible") return undefined;
    throw error;
  }
  return { command, runner };
}

/** Passes on only what finds programs: the daemon has none of the user's other variables, either. */
function commandRunner({
  PATH = "",
  HOME = "/",
}: Readonly<Record<string, string | undefined>>): CommandRunner {
  return {
    runCommand: (argv, options?: RunCommandOptions) => runProgram(argv, { PATH, HOME }, options ?? {}),
  };
}

function runProgram(
  [program = "", ...args]: readonly string[],
  base: Readonly<Record<string, string>>,
  { cwd, env, stdin, timeoutMs, maxOutputBytes }: RunCommandOptions,
): Promise<CommandResult> {
  const options = {
    ...{ cwd: typeof cwd === "string" ? cwd : "/", env: { ...base, ...env } },
    ...{ timeout: timeoutMs, maxBuffer: maxOutputBytes ?? 1024 * 1024 },
  };
  return new Promise((resolve, reject) => {
    const child = execFile(program, args, options, (error, stdout, stderr) => {
      const { code = 0, signal = null } = error ?? {};
      // A text for a program that does not exist, or that prints too much.
      if (typeof code === "string") reject(new Error(`${program} failed: ${code}`, { cause: error }));
      else resolve({ exitCode: signal === null ? code : null, signal, stdout, stderr, truncated: false });
    });
    // A program that does not read its input ends with its own error.
    child.stdin?.on("error", () => undefined);
    child.stdin?.end(stdin instanceof Uint8Array ? stdin : undefined);
  });
}
