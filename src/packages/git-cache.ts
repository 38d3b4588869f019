/**
 * The daemon's own bare repositories, one for each commit that was asked for: `<directory>/<digest>/<commit>.git`.
 * A commit is fetched beside its place and renamed into it, so what is there is whole, whoever was killed
 * meanwhile, and two processes that fetch the same commit at once do not disturb each other: the first one wins.
 */
import { createHash, randomBytes } from "node:crypto";
import { mkdir, readdir, readFile, rename, rm, stat, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { SvcError } from "../errors.ts";
import { byteLimit } from "../lib/byte-limit.ts";
import type { GitLimits, GitRemote } from "./git-remote.ts";
import type { GitProcess } from "./git-process.ts";
import type { Revision } from "./git-refs.ts";
import { forwardGitProgress } from "./git-progress.ts";
import { KeyedQueue } from "./keyed-queue.ts";
import type { PackageWork } from "./package-work.ts";

/** A commit in the cache. */
export interface CachedCommit {
  gitDir: string;
  commit: string;
  /** The tree of its root. */
  tree: string;
}

export interface TreeEntry {
  name: string;
  /** `symlink` and `commit` (a submodule) are never followed. */
  type: "file" | "directory" | "symlink" | "commit";
  oid: string;
  /** Bytes of a file. */
  sizeBytes: number;
}

export interface GitCacheOptions {
  /** Absolute; made when it is missing, for the daemon alone. */
  directory: string;
  git: GitProcess;
  limits: GitLimits;
  now: () => number;
}

/** Commits of one repository that are kept whatever their age. */
const keptCommits = 3;
/** Others are kept this long after their last use, so that nobody's export loses its ground. */
const keepMs = 3_600_000;

/** Repositories may not change what an export of them holds. */
const attributes = "* -export-ignore -export-subst -filter\n";

export class GitCache {
  readonly #options: GitCacheOptions;
  readonly #queue = new KeyedQueue();

  constructor(options: GitCacheOptions) {
    this.#options = options;
  }

  /**
   * The revision's commit, from the cache or from the remote.
   * @param scope keeps apart what different users may see of the same URL.
   */
  async commit(
    remote: GitRemote,
    scope: string,
    revision: Revision,
    work: PackageWork,
  ): Promise<CachedCommit> {
    const key = createHash("sha256").update(`${scope}\n${remote.gitUrl.url}`).digest("hex");
    return this.#queue.run(key, work.signal, async () => {
      const directory = join(this.#options.directory, key);
      await mkdir(directory, { recursive: true, mode: 0o700 });
      const cached = await this.#find(directory, revision.commit, work.signal);
      if (cached !== undefined) return cached;
      const fetched = await this.#fetch(directory, remote, revision, work);
      await this.#sweep(directory);
      return fetched;
    });
  }

  /** The commit when it is there and can be read; one that cannot is thrown away. */
  async #find(
    directory: string,
    commit: string,
    signal: AbortSignal | undefined,
  ): Promise<CachedCommit | undefined> {
    const gitDir = join(directory, `${commit}.git`);
    const tree = await readFile(join(gitDir, "svc-tree"), "utf8").catch(() => undefined);
    if (tree === undefined) return undefined;
    try {
      await this.#git(gitDir, ["cat-file", "-e", `${tree}^{tree}`], commit, signal);
    } catch (error) {
      if (!(error instanceof SvcError) || error.reason !== "git_failed") throw error;
      await rm(gitDir, { recursive: true, force: true });
      return undefined;
    }
    const now = new Date(this.#options.now());
    await utimes(gitDir, now, now).catch(() => undefined);
    return { gitDir, commit, tree };
  }

  async #fetch(
    directory: string,
    remote: GitRemote,
    revision: Revision,
    work: PackageWork,
  ): Promise<CachedCommit> {
    const { git, now } = this.#options;
    const temporary = join(directory, `fetch-${randomBytes(8).toString("hex")}`);
    const format = revision.commit.length === 64 ? ["--object-format=sha256"] : [];
    const signal = work.signal && { signal: work.signal };
    try {
      await git.run(["init", "--quiet", "--bare", "--template=", ...format, "--", temporary], {
        subject: remote.gitUrl.url,
        timeoutMs: 30_000,
        ...signal,
      });
      await mkdir(join(temporary, "info"), { recursive: true });
      await writeFile(join(temporary, "info", "attributes"), attributes);
      const onStderrLine = forwardGitProgress(work.onProgress, now);
      const { commit, tree } = await remote.fetch(revision, temporary, {
        ...signal,
        ...(onStderrLine && { onStderrLine }),
      });
      await writeFile(join(temporary, "svc-tree"), tree, { flush: true });
      const gitDir = join(directory, `${commit}.git`);
      await this.#place(temporary, gitDir);
      return { gitDir, commit, tree };
    } finally {
      await rm(temporary, { recursive: true, force: true });
    }
  }

  /** Somebody else may have been faster: theirs is as good. */
  async #place(temporary: string, gitDir: string): Promise<void> {
    try {
      await rename(temporary, gitDir);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code !== "ENOTEMPTY" && code !== "EEXIST") throw error;
    }
  }

  /** Removes what was left behind by a killed fetch, and old commits. */
  async #sweep(directory: string): Promise<void> {
    const entries = await Promise.all(
      (await readdir(directory)).map(async (name) => {
        const path = join(directory, name);
        return { path, name, usedMs: (await stat(path).catch(() => undefined))?.mtimeMs ?? 0 };
      }),
    );
    const old = ({ usedMs }: { usedMs: number }): boolean => usedMs < this.#options.now() - keepMs;
    const commits = entries
      .filter(({ name }) => name.endsWith(".git"))
      .toSorted((a, b) => b.usedMs - a.usedMs);
    const leftovers = entries.filter(({ name }) => name.startsWith("fetch-"));
    for (const { path } of [...commits.slice(keptCommits), ...leftovers].filter(old)) {
      await rm(path, { recursive: true, force: true });
    }
  }

  /** The tree of a directory in a commit. @throws SvcError `not_found` when there is none. */
  async subtree(commit: CachedCommit, path: string, subject: string, signal?: AbortSignal): Promise<string> {
    const steps = path.split("/").filter((step) => step !== "" && step !== ".");
    let { tree } = commit;
    for (const step of steps) {
      const entry = (await this.entries(commit, tree, subject, signal)).find(({ name }) => name === step);
      if (entry?.type !== "directory") {
        throw new SvcError("not_found", "not_found", `there is no directory "${path}" in ${subject}`);
      }
      tree = entry.oid;
    }
    return tree;
  }

  /** The entries of one directory, not of those below it. */
  async entries(
    { gitDir }: CachedCommit,
    tree: string,
    subject: string,
    signal?: AbortSignal,
  ): Promise<TreeEntry[]> {
    const output = await this.#git(gitDir, ["ls-tree", "-z", "--long", tree], subject, signal);
    return output
      .toString()
      .split("\0")
      .flatMap((line): TreeEntry[] => {
        const [, mode = "", oid, size, name] = /^(\d+) \w+ ([0-9a-f]+) +(\d+|-)\t([^]+)$/.exec(line) ?? [];
        if (oid === undefined || name === undefined) return [];
        return [{ name, oid, type: typeOf(mode), sizeBytes: size === "-" ? 0 : Number(size) }];
      });
  }

  /** The bytes of a file. */
  readBlob({ gitDir }: CachedCommit, oid: string, subject: string, signal?: AbortSignal): Promise<Buffer> {
    return this.#git(gitDir, ["cat-file", "blob", oid], subject, signal);
  }

  /** The files of a tree as an uncompressed tar. The stream fails when git does, so an end means that it is whole. */
  exportTar({ gitDir }: CachedCommit, tree: string, subject: string, signal?: AbortSignal): Readable {
    const { git, limits } = this.#options;
    const output = byteLimit(limits.maxExportBytes, () => exportTooLarge(subject, limits.maxExportBytes));
    // Failures reach whoever reads: `run` destroys its output with them.
    git
      .run(["-C", gitDir, "archive", "--format=tar", tree], {
        subject,
        timeoutMs: limits.fetchTimeoutMs,
        stdout: output,
        ...(signal && { signal }),
      })
      .catch(() => undefined);
    return output;
  }

  #git(gitDir: string, args: readonly string[], subject: string, signal?: AbortSignal): Promise<Buffer> {
    return this.#options.git.run(["-C", gitDir, ...args], {
      subject,
      timeoutMs: 60_000,
      ...(signal && { signal }),
    });
  }
}

function typeOf(mode: string): TreeEntry["type"] {
  if (mode === "040000") return "directory";
  if (mode === "120000") return "symlink";
  return mode === "160000" ? "commit" : "file";
}

function exportTooLarge(subject: string, maxBytes: number): SvcError<"git_failed"> {
  const message = `the files of ${subject} are larger than the ${maxBytes} bytes allowed`;
  return new SvcError("resource_exhausted", "git_failed", message);
}
