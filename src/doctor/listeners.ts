import { readFile, readdir, readlink } from "node:fs/promises";

/** Of what listens; whoever is connected has no flags (`net/unix/af_unix.c`). */
const listening = "00010000";

/**
 * The processes that listen on a unix socket, of those whose files this user may look at. Not systemd itself, which keeps the
 * sockets of its units. A daemon that makes its own binds it beside, and renames it (`transport/`): the kernel keeps the first name.
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
