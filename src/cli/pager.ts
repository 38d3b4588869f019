/** Long text at a terminal goes through `$PAGER`, `less` where it is not set; an empty one wants none. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { isInteractive } from "./prompt.ts";
import type { CliHost } from "./host.ts";

/** What `less` does where `LESS` says nothing: colours, whole what fits, and the text stays on the screen. */
const lessOptions = "FRX";

/** @param text without anything of others that a terminal would obey */
export async function page(host: CliHost, text: string): Promise<void> {
  const { env, stdout } = host;
  if (env["PAGER"] === "" || !isLong(text, stdout) || !isInteractive(host) || !(await hasPaged(env, text)))
    stdout.write(text);
}

/** A terminal that does not know its size says 0. */
function isLong(text: string, { rows = 0 }: Pick<CliHost["stdout"], "rows">): boolean {
  return rows > 0 && text.length > rows && text.split("\n").length > rows;
}

/** @returns false where there is no such program */
async function hasPaged(env: CliHost["env"], text: string): Promise<boolean> {
  const { PAGER: command } = env;
  // A line for the shell, as git and man take it.
  const hasOwn = command !== undefined;
  // Ctrl-C is for the pager, which stays; a second one would end svc and leave it the terminal. At no time does nobody listen: the
  // kernel would end svc.
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
    // The shell has found no such program, or none that can be run (POSIX, 2.8.2).
    return exitCode !== 127 && exitCode !== 126;
  } catch {
    return false;
  } finally {
    for (const listener of listeners) process.on("SIGINT", listener);
    process.off("SIGINT", ignore);
  }
}

function ignore(): void {
  // Nothing is to be done.
}
