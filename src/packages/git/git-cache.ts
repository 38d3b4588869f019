/**
 * The daemon's bare repositories, one per user and commit: `<directory>/<uid>/<commit>.git`. A commit ID identifies
 * its content, however the URL is spelled. Users do not share entries, so that the duration of an install does not
 * reveal what others have. A commit is fetched to a temporary directory and renamed, so an existing entry is always
 * complete, and two processes that fetch the same commit do not interfere: the first one wins.
 */
import { randomBytes } from "node:crypto";
import { mkdir, rename, rm, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { SvcError } from "../../errors.ts";
import {
  allocatedBytes,
  CacheSpace,
  commitDirectory,
  factsFile,
  readFacts,
  type CacheBounds,
  type CacheHold,
  type CommitFacts,
} from "./cache-space.ts";
import type { GitObjects, CachedCommit } from "./git-objects.ts";
import type { GitRemote } from "./git-remote.ts";
import type { GitProcess } from "./git-process.ts";
import type { Revision } from "./git-refs.ts";
import { forwardGitProgress } from "./git-progress.ts";
import { oneAtATime } from "../../lib/limiter.ts";
import type { WorkOptions } from "../../work/progress.ts";

/** A commit that stays in the cache until it is disposed of. */
export interface HeldCommit extends CachedCommit {
  hold: CacheHold;
}

export interface GitCacheOptions {
  /** Absolute path; created if missing, accessible only to the daemon. */
  directory: string;
  git: GitProcess;
  objects: GitObjects;
  bounds: CacheBounds;
  now: () => number;
}

/** Prevents repositories from changing the content of their export. */
const attributes = "* -export-ignore -export-subst -filter\n";

export class GitCache {
  readonly #options: GitCacheOptions;
  readonly #space: CacheSpace;
  readonly #commits = oneAtATime<string>();

  constructor(options: GitCacheOptions) {
    const { directory, bounds, now } = options;
    this.#options = options;
    this.#space = new CacheSpace({ directory, bounds, now });
  }

  /** Disk space of a user's commits; of all users without `uid`. */
  usedBytes(uid?: number): Promise<number> {
    return this.#space.usedBytes(uid);
  }

  /** The commit of a revision, from the cache of `uid` or from the remote. */
  async commit(remote: GitRemote, uid: number, revision: Revision, work: WorkOptions): Promise<HeldCommit> {
    using _slot = await this.#commits.acquire(`${uid} ${revision.commit}`, work.signal);
    const directory = join(this.#options.directory, String(uid));
    await mkdir(directory, { recursive: true, mode: 0o700 });
    const found = await this.#find(directory, revision.commit, remote.gitUrl.url, work.signal);
    if (found !== undefined) return found;
    const fetched = await this.#fetch(directory, remote, revision, work);
    await this.#space.freeSpace();
    return fetched;
  }

  /** Returns the commit if it exists and can be read; removes one that cannot be read. */
  async #find(
    directory: string,
    commit: string,
    subject: string,
    signal: AbortSignal | undefined,
  ): Promise<HeldCommit | undefined> {
    const gitDir = join(directory, commitDirectory(commit));
    // Hold first: the entry must not be removed while it is checked.
    const hold = this.#space.hold(gitDir, { isNew: false });
    try {
      const facts = await readFacts(gitDir);
      if (facts === undefined) {
        await hold[Symbol.asyncDispose]();
        await rm(gitDir, { recursive: true, force: true });
        return undefined;
      }
      await this.#options.objects.entries({ gitDir, commit, tree: facts.tree }, facts.tree, subject, signal);
      const now = new Date(this.#options.now());
      await utimes(gitDir, now, now).catch(() => undefined);
      return { gitDir, commit, tree: facts.tree, hold };
    } catch (error) {
      await hold[Symbol.asyncDispose]();
      if (!(error instanceof SvcError) || error.reason !== "git_failed") throw error;
      await rm(gitDir, { recursive: true, force: true });
      return undefined;
    }
  }

  async #fetch(
    directory: string,
    remote: GitRemote,
    revision: Revision,
    { signal, onProgress }: WorkOptions,
  ): Promise<HeldCommit> {
    const { git, now } = this.#options;
    const temporary = join(directory, `fetch-${randomBytes(8).toString("hex")}`);
    const format = revision.commit.length === 64 ? ["--object-format=sha256"] : [];
    try {
      await git.run(["init", "--quiet", "--bare", "--template=", ...format, "--", temporary], {
        subject: remote.gitUrl.url,
        timeoutMs: 30_000,
        signal,
      });
      await mkdir(join(temporary, "info"), { recursive: true });
      await writeFile(join(temporary, "info", "attributes"), attributes);
      const onStderrLine = forwardGitProgress(onProgress, now);
      const { commit, tree } = await remote.fetch(revision, temporary, { signal, onStderrLine });
      const facts: CommitFacts = { tree, sizeBytes: await allocatedBytes(temporary) };
      await writeFile(join(temporary, factsFile), JSON.stringify(facts), { flush: true });
      const gitDir = join(directory, commitDirectory(commit));
      await moveIntoCache(temporary, gitDir);
      return { gitDir, commit, tree, hold: this.#space.hold(gitDir, { isNew: true }) };
    } finally {
      await rm(temporary, { recursive: true, force: true });
    }
  }
}

/** If another process was faster, its identical entry is used. */
async function moveIntoCache(temporary: string, gitDir: string): Promise<void> {
  try {
    await rename(temporary, gitDir);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== "ENOTEMPTY" && code !== "EEXIST") throw error;
  }
}
