/** Text that a command reads from a file or from stdin. */
import { readFile } from "node:fs/promises";
import { text } from "node:stream/consumers";
import { UnusableFileError } from "../output/failure.ts";
import type { CliHost } from "../host.ts";
import { fileProblem } from "./local-file.ts";

/** @param path `-` for stdin @throws UsageError if the file cannot be read */
export async function readInput(host: CliHost, path: string): Promise<string> {
  if (path === "-") return text(host.stdin);
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    throw new UnusableFileError(`cannot read ${path}: ${fileProblem(error) ?? String(error)}`);
  }
}
