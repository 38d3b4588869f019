import { readFile, readdir, readlink } from "node:fs/promises";

/** Flags of a listening socket; connected sockets have none (`net/unix/af_unix.c`). */
const listening = "00010000";

/**
 * PIDs of the processes that listen on a unix socket, if the user may read their file descriptors. systemd, which
 * holds the sockets of its units, is excluded. A daemon binds its socket under a temporary name and renames the file,
 * but the kernel still reports the temporary name.
 */
export async function listenersAt(socketPath: string): Promise<number[]> {
  const lines = (await readFile("/proc/net/unix", "utf8")).split("\n").map((line) => line.split(/ +/));
  const names = [socketPath, `${socketPath}.new`];
  const links = new Set(
    lines
      .filter(([, , , flags, , , , path = ""]) => flags === listening && names.includes(path))
      .map(([, , , , , , inode = ""]) => `socket:[${inode}]`),
  );
  if (links.size === 0) return [];
  const pids = (await readdir("/proc")).map(Number).filter((pid) => pid > 1);
  const found: number[] = [];
  for (const pid of pids) if (await holdsOneOf(pid, links)) found.push(pid);
  return found;
}

async function holdsOneOf(pid: number, links: ReadonlySet<string>): Promise<boolean> {
  const dir = `/proc/${pid}/fd`;
  const names = await readdir(dir).catch(() => []);
  for (const name of names) if (links.has(await readlink(`${dir}/${name}`).catch(() => ""))) return true;
  return false;
}
