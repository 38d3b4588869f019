/** Root's own address of a daemon: beside the one of everybody, in a directory that only root opens. */
import { basename, dirname, join } from "node:path";

export function rootSocketOf(socketPath: string): string {
  return join(dirname(socketPath), "root", basename(socketPath));
}
