/** Archives files of a build context with tar, as their owner. */
import { Readable, type PassThrough } from "node:stream";
import type { UserHelper } from "../../run-as/user-helper.ts";
import { unreadableContext } from "./context-entries.ts";

export interface FileArchiveOptions {
  readonly userHelper: Pick<UserHelper, "runCommand">;
  /** Absolute path of the context. */
  readonly cwd: string;
  /** Paths relative to `cwd`; each ends with a NUL. */
  readonly names: Iterable<Buffer> | AsyncIterable<Buffer>;
  /** Further options of tar. */
  readonly tarOptions: readonly string[];
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
}

/** Writes the archive and ends the stream. If tar fails, the stream is destroyed with `build_failed`. */
export function archiveFiles(
  archive: PassThrough,
  { userHelper, cwd, names, tarOptions, ...limits }: FileArchiveOptions,
): void {
  const argv = ["tar", "--create", "--file=-", ...tarOptions];
  userHelper
    .runCommand([...argv, "--no-recursion", "--null", "--verbatim-files-from", "--files-from=-"], {
      ...limits,
      ...{ cwd, stdin: Readable.from(names), stdout: archive },
    })
    .then(
      ({ exitCode, stderr }) => {
        if (exitCode === 0) archive.end();
        else archive.destroy(unreadableContext(stderr.trim().slice(-500)));
      },
      (error: unknown) => archive.destroy(error instanceof Error ? error : new Error(String(error))),
    );
}
