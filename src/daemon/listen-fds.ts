/** What systemd hands over to a service with a socket unit (sd_listen_fds(3)). */

/** The first one, as systemd numbers them. */
const firstFd = 3;

/** Takes what says so out of `env`: it is for nobody that the daemon starts. */
export function takeListenFds(env: NodeJS.ProcessEnv, pid: number): number[] {
  const { LISTEN_PID: forPid, LISTEN_FDS: count = "" } = env;
  delete env["LISTEN_PID"];
  delete env["LISTEN_FDS"];
  delete env["LISTEN_FDNAMES"];
  if (forPid !== String(pid) || !/^\d{1,3}$/.test(count)) return [];
  return Array.from({ length: Number(count) }, (_, at) => firstFd + at);
}
