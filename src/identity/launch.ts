/**
 * How a process gets a user's identity. libuv's own `uid` option keeps root's groups and capabilities bounding set, so
 * `setpriv` does it: uid, gid, all groups by initgroups(3), no capabilities, `no_new_privs`; any failure there means that
 * the program is never executed.
 *
 * Only the helper is launched so. What a user's settings choose (environment, directory, program) is applied by
 * the helper, after the drop: an `LD_PRELOAD` of theirs would otherwise be loaded by `setpriv` while it is still root.
 */
import { SvcError } from "../errors.ts";
import { findProgram } from "./find-program.ts";
import type { User } from "./user.ts";

/** The directories of the system's own programs. */
export const systemDirs: readonly string[] = [
  "/usr/local/sbin",
  "/usr/local/bin",
  "/usr/sbin",
  "/usr/bin",
  "/sbin",
  "/bin",
];

export interface LaunchOptions {
  /** The program and its arguments; the program as an absolute path. */
  argv: readonly string[];
  /** The value of PATH. */
  searchPath: string;
  /** Whether the identity differs from the daemon's own. */
  drop: boolean;
  /** Where `setpriv` is looked for. */
  setprivDirs: readonly string[];
}

/** What to hand to `child_process.spawn`, with `cwd: "/"`. */
export interface Launch {
  command: string;
  args: string[];
  env: Record<string, string>;
}

/** @throws SvcError `failed_precondition` when `setpriv` is needed and not installed. */
export async function launchAs(user: User, options: LaunchOptions): Promise<Launch> {
  const env = baseEnvironment(user, options.searchPath);
  if (!options.drop) {
    const [command = "", ...args] = options.argv;
    return { command, args, env };
  }
  const setpriv = await findProgram("setpriv", options.setprivDirs);
  if (setpriv === undefined) {
    throw new SvcError(
      "not_possible",
      `cannot act as user "${user.name}": setpriv is not installed; install util-linux 2.33 or newer`,
    );
  }
  const args = [
    `--reuid=${user.uid}`,
    `--regid=${user.gid}`,
    "--init-groups",
    "--no-new-privs",
    "--inh-caps=-all",
    "--ambient-caps=-all",
    "--bounding-set=-all",
    "--",
    ...options.argv,
  ];
  return { command: setpriv, args, env };
}

/** The whole environment that a user's processes start from; nothing of the daemon's own. */
export function baseEnvironment(user: User, searchPath: string): Record<string, string> {
  return {
    PATH: searchPath,
    HOME: user.home,
    USER: user.name,
    LOGNAME: user.name,
    SHELL: user.shell,
    LANG: "C.UTF-8",
    TMPDIR: "/tmp",
  };
}
