/** Long text at a terminal goes through `$PAGER`, or `less` if it is not set. An empty variable turns the pager off. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { isInteractive } from "../input/prompt.ts";
import type { CliHost } from "../host.ts";

/** Options of `less` if `LESS` is not set: keep colors, exit if the text fits, and leave the text on the screen. */
const lessOptions = "FRX";

/**
 * @param text without untrusted control characters
 * @param output receives the text if no pager shows it
 */
export async function page(host: CliHost, text: string, output = host.stdout): Promise<void> {
  const { env, stdout } = host;
  if (env["PAGER"] === "" || !isLong(text, stdout) || !isInteractive(host) || !(await hasPaged(env, text)))
    output.write(text);
}

/** A terminal that does not know its size reports 0. */
function isLong(text: string, { rows = 0 }: Pick<CliHost["stdout"], "rows">): boolean {
  return rows > 0 && text.length > rows && text.split("\n").length > rows;
}

/** @returns false if there is no such program */
async function hasPaged(env: CliHost["env"], text: string): Promise<boolean> {
  const { PAGER: command } = env;
  // `PAGER` is a command line for the shell, as in git and man.
  const hasOwn = command !== undefined;
  // Ctrl-C is for the pager, which keeps running. If svc ended, it would leave the terminal to both. Without
  // any listener the kernel would end svc.
  const listeners = process.listeners("SIGINT");
  process.on("SIGINT", ignore);
  for (const listener of listeners) process.off("SIGINT", listener);
  const child = spawn(hasOwn ? "sh" : "less", hasOwn ? ["-c", command] : [], {
    stdio: ["pipe", "inherit", "inherit"],
    env: { LESS: lessOptions, ...env },
  });
  child.stdin.on("error", ignore);
  child.stdin.end(text);
  try {
    const [exitCode] = (await once(child, "exit")) as [number | null];
    // The shell found no such program, or could not run it (POSIX, 2.8.2).
    return exitCode !== 127 && exitCode !== 126;
  } catch {
    return false;
  } finally {
    for (const listener of listeners) process.on("SIGINT", listener);
    process.off("SIGINT", ignore);
  }
}

function ignore(): void {
  // The pager's failure needs no handling.
}
