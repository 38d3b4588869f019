/** Reads commits of the cache: entries, files, and archives. */
import { Readable, Writable } from "node:stream";
import { SvcError, notFound } from "../../errors.ts";
import { limitBytes } from "../../lib/byte-streams.ts";
import type { GitProcess } from "./git-process.ts";
import type { GitLimits } from "./git-remote.ts";
import { tarEntryLimit, type ExportedSize } from "./tar-entries.ts";

/** A commit in the cache. */
export interface CachedCommit {
  gitDir: string;
  commit: string;
  /** The root tree. */
  tree: string;
}

export interface TreeEntry {
  name: string;
  /** `symlink` and `commit` (a submodule) are not followed. */
  type: "file" | "directory" | "symlink" | "commit";
  oid: string;
  /** Size of a file. */
  sizeBytes: number;
}

/** Limit for the list of one directory, which is buffered. */
const maxListBytes = 2 * 2 ** 20;
/** Total size of files that are read in one batch. */
const maxBatchBytes = 16 * 2 ** 20;

/** The small files that Git LFS commits instead of the content; its specification allows fewer than 1024 bytes. */
const lfsPointer = {
  minBytes: 100,
  maxBytes: 1023,
  start: "version https://git-lfs.github.com/spec/",
} as const;
/** Limit of small files that are searched for pointers. */
const maxPointerCandidates = 10_000;

/** Limit of one line of `git ls-tree`. No file system has a path as long. */
const maxEntryLength = 16 * 1024;

/** Selects files to read. */
export interface FileSelection {
  readonly isSelected: (path: string) => boolean;
  readonly maxFiles: number;
  readonly maxFileBytes: number;
}

export class GitObjects {
  readonly #git: GitProcess;
  readonly #limits: GitLimits;

  constructor(git: GitProcess, limits: GitLimits) {
    this.#git = git;
    this.#limits = limits;
  }

  /** The tree of a directory in a commit. @throws SvcError `not_found` if it does not exist. */
  async subtree(commit: CachedCommit, path: string, subject: string, signal?: AbortSignal): Promise<string> {
    const steps = path.split("/").filter((step) => step !== "" && step !== ".");
    let { tree } = commit;
    for (const step of steps) {
      const entry = (await this.entries(commit, tree, subject, signal)).find(({ name }) => name === step);
      if (entry?.type !== "directory") {
        throw notFound("directory", path, `there is no directory "${path}" in ${subject}`);
      }
      tree = entry.oid;
    }
    return tree;
  }

  /**
   * The entries of one directory, without subdirectories' entries.
   * @param paths relative to the directory: returns the entries with these paths instead
   */
  async entries(
    { gitDir }: CachedCommit,
    tree: string,
    subject: string,
    signal?: AbortSignal,
    paths: readonly string[] = [],
  ): Promise<TreeEntry[]> {
    const args = ["ls-tree", "-z", "--long", "--end-of-options", tree, ...paths];
    return readEntries(await this.#read(gitDir, args, subject, maxListBytes, signal));
  }

  /**
   * Reads the regular files of a tree with a selected path, at any depth, as text by path, without larger ones.
   * @returns `total`: the number of matching files, including those beyond `maxFiles`, which are not read
   */
  async files(
    { gitDir }: CachedCommit,
    tree: string,
    subject: string,
    { isSelected, maxFiles, maxFileBytes }: FileSelection,
    signal?: AbortSignal,
  ): Promise<{ files: Map<string, string>; total: number }> {
    const args = ["ls-tree", "-r", "-z", "--long", "--end-of-options", tree];
    const all = readEntries(await this.#read(gitDir, args, subject, maxListBytes, signal));
    const found = all.filter(
      ({ type, name, sizeBytes }) => type === "file" && sizeBytes <= maxFileBytes && isSelected(name),
    );
    const files = await this.#readFiles(gitDir, found.slice(0, maxFiles), subject, signal);
    return { files, total: found.length };
  }

  /** Paths of the files of a tree whose content is in Git LFS, so that the repository has only pointers to them. */
  async lfsPointers(
    { gitDir }: CachedCommit,
    tree: string,
    subject: string,
    signal?: AbortSignal,
  ): Promise<string[]> {
    const candidates: TreeEntry[] = [];
    let rest = "";
    // Large repositories have megabytes of names.
    const stdout = new Writable({
      write(chunk: Buffer, _encoding, done) {
        const text = rest + chunk.toString("latin1");
        const end = text.lastIndexOf("\0") + 1;
        rest = text.slice(end);
        if (rest.length > maxEntryLength) {
          const message = `${subject} has a file whose path is longer than ${maxEntryLength} bytes`;
          done(new SvcError("package_invalid", message));
          return;
        }
        const small = readEntries(Buffer.from(text.slice(0, end), "latin1")).filter(
          ({ type, sizeBytes }) =>
            type === "file" && sizeBytes >= lfsPointer.minBytes && sizeBytes <= lfsPointer.maxBytes,
        );
        candidates.push(...small.slice(0, maxPointerCandidates - candidates.length));
        done();
      },
    });
    const args = ["-C", gitDir, "ls-tree", "-r", "-z", "--long", "--end-of-options", tree];
    await this.#git.run(args, { subject, timeoutMs: 60_000, stdout, signal });
    const files = await this.#readFiles(gitDir, candidates, subject, signal);
    return [...files].filter(([, text]) => text.startsWith(lfsPointer.start)).map(([path]) => path);
  }

  /** The values of a git configuration file, by key; of several values of one key, the last one. */
  async configuration(
    { gitDir }: CachedCommit,
    oid: string,
    subject: string,
    signal?: AbortSignal,
  ): Promise<Map<string, string>> {
    const args = ["config", "--no-includes", "--blob", oid, "--null", "--list"];
    const output = await this.#read(gitDir, args, subject, maxListBytes, signal);
    const lines = output.toString().split("\0").slice(0, -1);
    return new Map(lines.map((line) => [line.split("\n", 1)[0] ?? "", line.slice(line.indexOf("\n") + 1)]));
  }

  async #readFiles(
    gitDir: string,
    entries: readonly TreeEntry[],
    subject: string,
    signal: AbortSignal | undefined,
  ): Promise<Map<string, string>> {
    const files = new Map<string, string>();
    if (entries.length === 0) return files;
    const output = await this.#git.run(["-C", gitDir, "cat-file", "--batch"], {
      subject,
      timeoutMs: 60_000,
      maxOutputBytes: maxBatchBytes,
      stdin: Readable.from(entries.map(({ oid }) => `${oid}\n`)),
      signal,
    });
    let at = 0;
    for (const { name, sizeBytes } of entries) {
      // Each file has a header line, its bytes, and a line feed.
      const from = output.indexOf("\n", at) + 1;
      files.set(name, output.toString("utf8", from, from + sizeBytes));
      at = from + sizeBytes + 1;
    }
    return files;
  }

  /** Content of a file that is known to have at most `maxBytes`. */
  readBlob(
    { gitDir }: CachedCommit,
    oid: string,
    subject: string,
    maxBytes: number,
    signal?: AbortSignal,
  ): Promise<Buffer> {
    return this.#read(gitDir, ["cat-file", "blob", oid], subject, maxBytes, signal);
  }

  /**
   * The files of a tree as an uncompressed tar archive. The stream fails if git fails, so its end means that it is
   * complete.
   * @param total size of all archives of an export, to which the limits apply; the size of this one is added
   */
  exportTar(
    { gitDir }: CachedCommit,
    tree: string,
    subject: string,
    total: ExportedSize,
    signal?: AbortSignal,
  ): Readable {
    const { maxExportBytes, maxExportEntries, fetchTimeoutMs } = this.#limits;
    const maxBytes = maxExportBytes - total.bytes;
    const output = tarEntryLimit(maxExportEntries, total, () =>
      exportTooLarge(`${subject} has more than ${maxExportEntries} files and directories`),
    );
    // `run` destroys its output on a failure, so the reader gets the error.
    this.#git
      .run(["-C", gitDir, "archive", "--format=tar", "--end-of-options", tree], {
        subject,
        timeoutMs: fetchTimeoutMs,
        stdout: output,
        signal,
      })
      .catch(() => undefined);
    return limitBytes(output, maxBytes, () =>
      exportTooLarge(`the files of ${subject} are too large (limit ${maxExportBytes} bytes)`),
    );
  }

  #read(
    gitDir: string,
    args: readonly string[],
    subject: string,
    maxOutputBytes: number,
    signal: AbortSignal | undefined,
  ): Promise<Buffer> {
    return this.#git.run(["-C", gitDir, ...args], {
      subject,
      timeoutMs: 60_000,
      maxOutputBytes,
      signal,
    });
  }
}

/** Parses the output of `git ls-tree -z --long`. */
function readEntries(output: Buffer): TreeEntry[] {
  return output
    .toString()
    .split("\0")
    .flatMap((line): TreeEntry[] => {
      const [, mode = "", oid, size, name] = /^(\d+) \w+ ([0-9a-f]+) +(\d+|-)\t([^]+)$/.exec(line) ?? [];
      if (oid === undefined || name === undefined) return [];
      return [{ name, oid, type: typeOf(mode), sizeBytes: size === "-" ? 0 : Number(size) }];
    });
}

function typeOf(mode: string): TreeEntry["type"] {
  if (mode === "040000") return "directory";
  if (mode === "120000") return "symlink";
  return mode === "160000" ? "commit" : "file";
}

function exportTooLarge(message: string): SvcError<"git_failed"> {
  return new SvcError("git_failed", message);
}
