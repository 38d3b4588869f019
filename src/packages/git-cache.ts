/**
 * The daemon's own bare repositories, one for each commit that a user asked for: `<directory>/<uid>/<commit>.git`. The
 * commit names what is in it, so it is one however its URL is spelled and wherever it came from, and as users do not
 * share, none learns from the time that an install takes what others have.
 * A commit is fetched beside its place and renamed into it, so what is there is whole, whoever was killed
 * meanwhile, and two processes that fetch the same commit at once do not disturb each other: the first one wins.
 */
import { randomBytes } from "node:crypto";
import { mkdir, rename, rm, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { SvcError } from "../errors.ts";
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
import { KeyedQueue } from "../lib/keyed-queue.ts";
import type { WorkOptions } from "../apps/progress.ts";

/** A commit that stays in the cache until it is disposed of. */
export interface HeldCommit extends CachedCommit {
  hold: CacheHold;
}

export interface GitCacheOptions {
  /** Absolute; made when it is missing, for the daemon alone. */
  directory: string;
  git: GitProcess;
  objects: GitObjects;
  bounds: CacheBounds;
  now: () => number;
}

/** Repositories may not change what an export of them holds. */
const attributes = "* -export-ignore -export-subst -filter\n";

export class GitCache {
  readonly #options: GitCacheOptions;
  readonly #space: CacheSpace;
  readonly #queue = new KeyedQueue();

  constructor(options: GitCacheOptions) {
    const { directory, bounds, now } = options;
    this.#options = options;
    this.#space = new CacheSpace({ directory, bounds, now });
  }

  /** Bytes that the commits of a user take; of all users without `uid`. */
  usedBytes(uid?: number): Promise<number> {
    return this.#space.usedBytes(uid);
  }

  /** The revision's commit, from the cache of `uid` or from the remote. */
  async commit(remote: GitRemote, uid: number, revision: Revision, work: WorkOptions): Promise<HeldCommit> {
    return this.#queue.run(`${uid} ${revision.commit}`, work.signal, async () => {
      const directory = join(this.#options.directory, String(uid));
      await mkdir(directory, { recursive: true, mode: 0o700 });
      const found = await this.#find(directory, revision.commit, remote.gitUrl.url, work.signal);
      if (found !== undefined) return found;
      const fetched = await this.#fetch(directory, remote, revision, work);
      await this.#space.makeRoom();
      return fetched;
    });
  }

  /** The commit when it is there and can be read; one that cannot is thrown away. */
  async #find(
    directory: string,
    commit: string,
    subject: string,
    signal: AbortSignal | undefined,
  ): Promise<HeldCommit | undefined> {
    const gitDir = join(directory, commitDirectory(commit));
    // Before the first look: what is being looked at must not be removed to make room.
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
      await place(temporary, gitDir);
      return { gitDir, commit, tree, hold: this.#space.hold(gitDir, { isNew: true }) };
    } finally {
      await rm(temporary, { recursive: true, force: true });
    }
  }
}

/** Somebody else may have been faster: theirs is as good. */
async function place(temporary: string, gitDir: string): Promise<void> {
  try {
    await rename(temporary, gitDir);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== "ENOTEMPTY" && code !== "EEXIST") throw error;
  }
}
