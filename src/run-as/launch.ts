/**
 * Starts a process as a user. libuv's own `uid` option keeps root's groups and its capability bounding set, so `setpriv` is used: uid,
 * gid, all groups by initgroups(3), no capabilities, `no_new_privs`. Before that, `prlimit` limits the number of the user's processes.
 * If a step fails, the program is never executed.
 *
 * Only the helper and parents of jobs and consoles are launched like this. They apply a user's settings (environment, directory,
 * program) later, without privileges: otherwise `setpriv` would load the user's `LD_PRELOAD` while it is still root.
 */
import { SvcError } from "../errors.ts";
import { readMaxHostProcesses } from "../sys/user-processes.ts";
import { findProgram } from "./find-program.ts";
import type { User } from "./user.ts";

/** The directories of the system's programs. */
export const systemDirs: readonly string[] = [
  "/usr/local/sbin",
  "/usr/local/bin",
  "/usr/sbin",
  "/usr/bin",
  "/sbin",
  "/bin",
];

/**
 * Node option for processes of users: SIGUSR1 does not start the inspector. The inspector listens on a TCP port without
 * authentication, so that other users could run code in the process.
 */
export const noInspector = "--disable-sigusr1";

export interface LaunchOptions {
  /** The program as an absolute path, and its arguments. */
  argv: readonly string[];
  /** The value of PATH. */
  searchPath: string;
  /** Whether the user differs from the daemon's. */
  drop: boolean;
  /** The groups that it gets: all of the user, or only the primary one. Default: all. */
  groups?: "user" | "primary";
  /** Directories to search for `setpriv`. */
  setprivDirs: readonly string[];
}

/** Arguments for `child_process.spawn`, with `cwd: "/"`. */
export interface Launch {
  command: string;
  args: string[];
  env: Record<string, string>;
}

/** @throws SvcError `not_possible` if `setpriv` or `prlimit` is needed and not installed */
export async function launchAs(user: User, options: LaunchOptions): Promise<Launch> {
  const env = baseEnvironment(user, options.searchPath);
  if (!options.drop) {
    const [command = "", ...args] = options.argv;
    return { command, args, env };
  }
  const installed = async (name: string, dirs: readonly string[]): Promise<string> => {
    const program = await findProgram(name, dirs);
    if (program !== undefined) return program;
    const why = `${name} is not installed; install util-linux 2.33 or newer`;
    throw new SvcError("not_possible", `cannot act as user "${user.name}": ${why}`);
  };
  const setpriv = await installed("setpriv", options.setprivDirs);
  const command = await installed("prlimit", systemDirs);
  const args = [
    ...[`--nproc=${await readMaxHostProcesses()}`, "--", setpriv],
    `--reuid=${user.uid}`,
    `--regid=${user.gid}`,
    options.groups === "primary" ? `--groups=${user.gid}` : "--init-groups",
    "--no-new-privs",
    "--inh-caps=-all",
    "--ambient-caps=-all",
    "--bounding-set=-all",
    "--",
    ...options.argv,
  ];
  return { command, args, env };
}

/** The whole initial environment of a user's processes; contains nothing from the daemon's environment. */
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
