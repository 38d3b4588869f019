/** Runs a program in a PID namespace of its own: when it exits or is killed, the kernel kills all that it started. */
import { SvcError } from "../errors.ts";
import type { PosixSpawn } from "../sys/posix-spawn.ts";
import { findProgram } from "./find-program.ts";
import type { Launch } from "./launch.ts";

const options = ["--pid", "--fork", "--kill-child", "--"];

/**
 * Finds out whether this process can create PID namespaces; in most containers it cannot.
 * @param dirs to search for `unshare`
 * @returns changes a program to run in one; undefined if it cannot
 * @throws SvcError `not_possible` without `unshare`
 */
export async function findNamespaces(
  processes: PosixSpawn,
  dirs: readonly string[],
): Promise<((program: Launch) => Launch) | undefined> {
  const command = await findProgram("unshare", dirs);
  if (command === undefined) {
    const message =
      "compose files cannot be read: unshare is not installed; install util-linux 2.33 or newer";
    throw new SvcError("not_possible", message);
  }
  const args = [...options, "/bin/sh", "-c", ":"];
  if ((await processes.run({ command, args, env: {} })) !== 0) return undefined;
  return (program) => ({ command, args: [...options, program.command, ...program.args], env: program.env });
}
