/** Long text at a terminal goes through `$PAGER`, `less` where it is not set; an empty one wants none. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { isInteractive } from "./prompt.ts";
import type { CliHost } from "./host.ts";

const usual = "less";
/** What `less` does where `LESS` says nothing: colours, whole what fits, and the text stays on the screen. */
const lessOptions = "FRX";

/** @param text without anything of others that a terminal would obey */
export async function page(host: CliHost, text: string): Promise<void> {
  const { env, stdout } = host;
  const command = env["PAGER"] ?? usual;
  if (
    command === "" ||
    !isLong(text, stdout) ||
    !isInteractive(host) ||
    !(await hasPaged(command, env, text))
  )
    stdout.write(text);
}

/** A terminal that does not know its size says 0. */
function isLong(text: string, { rows = 0 }: Pick<CliHost["stdout"], "rows">): boolean {
  return rows > 0 && text.length > rows && text.split("\n").length > rows;
}

/** @returns false where there is no such program */
async function hasPaged(command: string, env: CliHost["env"], text: string): Promise<boolean> {
  // A line for the shell, as git and man take it.
  const child = spawn("sh", ["-c", command], {
    stdio: ["pipe", "inherit", "inherit"],
    env: { LESS: lessOptions, ...env },
  });
  child.stdin.on("error", () => undefined);
  child.stdin.end(text);
  const [exitCode] = (await once(child, "exit")) as [number | null];
  // The shell has found no such program (POSIX, 2.8.2).
  return exitCode !== 127;
}
