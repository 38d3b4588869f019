/** The sockets that systemd passes to a service with a socket unit (sd_listen_fds(3)). */

/** The first descriptor that systemd passes. */
const firstFd = 3;

/**
 * Returns the descriptors, and removes their variables from `env` so that child processes do not inherit the
 * variables.
 */
export function takeListenFds(env: NodeJS.ProcessEnv, pid: number): number[] {
  const { LISTEN_PID: forPid, LISTEN_FDS: count = "" } = env;
  delete env["LISTEN_PID"];
  delete env["LISTEN_FDS"];
  delete env["LISTEN_FDNAMES"];
  if (forPid !== String(pid) || !/^\d{1,3}$/.test(count)) return [];
  return Array.from({ length: Number(count) }, (_, at) => firstFd + at);
}
