/** Text that a command takes from a file or from stdin. */
import { readFile } from "node:fs/promises";
import { text } from "node:stream/consumers";
import { UnusableFileError } from "./failure.ts";
import type { CliHost } from "./host.ts";
import { fileTrouble } from "./local-file.ts";

/** @param path `-` for stdin @throws UsageError when the file cannot be read */
export async function readInput(host: CliHost, path: string): Promise<string> {
  if (path === "-") return text(host.stdin);
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    throw new UnusableFileError(`cannot read ${path}: ${fileTrouble(error) ?? String(error)}`);
  }
}
