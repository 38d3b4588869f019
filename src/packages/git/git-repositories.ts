/** Git repositories as used by packages and sources: select a version, read it, export it. */
import type { Readable } from "node:stream";
import { SvcError, notFound } from "../../errors.ts";
import type { FindLogin } from "../../access/credentials.ts";
import type { UserHelpers } from "../../run-as/user-helpers.ts";
import type { CacheBounds } from "./cache-space.ts";
import { GitCache, type HeldCommit } from "./git-cache.ts";
import type { GitEnvironment, GitSurroundings } from "./git-command.ts";
import { GitObjects, type TreeEntry, type FileSelection } from "./git-objects.ts";
import { createGitProcess } from "./git-process.ts";
import { pickRevision, type RemoteRefs, type Revision } from "./git-refs.ts";
import {
  defaultGitLimits,
  localRemote,
  networkRemote,
  type GitLimits,
  type GitRemote,
} from "./git-remote.ts";
import type { GitUrl } from "./git-url.ts";
import type { WorkOptions } from "../../work/progress.ts";
import type { RequestedRevision } from "../spec.ts";

const defaultCacheBounds: CacheBounds = { maxBytesPerUser: 2 * 2 ** 30, maxBytes: 8 * 2 ** 30 };

export interface GitRepositoriesOptions {
  /** The daemon's cache of commits. */
  cacheDirectory: string;
  userHelpers: UserHelpers;
  /** Parts of the daemon's environment for git. Default: none. */
  environment?: GitEnvironment;
  limits?: Partial<GitLimits>;
  /** Default: 2 GiB per user, 8 GiB in total. */
  cacheBounds?: CacheBounds;
  now: () => number;
  /** Finds the caller's login for a git host. Default: none. */
  login?: FindLogin;
}

export class GitRepositories {
  readonly #options: GitRepositoriesOptions;
  readonly #limits: GitLimits;
  readonly #environment: GitSurroundings;
  readonly #git;
  readonly #objects: GitObjects;
  readonly #cache: GitCache;

  constructor(options: GitRepositoriesOptions) {
    this.#options = options;
    const { cacheBounds = defaultCacheBounds, cacheDirectory, environment, now } = options;
    this.#limits = { ...defaultGitLimits, ...options.limits };
    const { maxFetchBytes: maxFileBytes, maxMemoryBytes } = this.#limits;
    this.#environment = { ...environment, maxFileBytes, maxMemoryBytes };
    this.#git = createGitProcess(this.#environment);
    this.#objects = new GitObjects(this.#git, this.#limits);
    this.#cache = new GitCache({
      directory: cacheDirectory,
      git: this.#git,
      objects: this.#objects,
      bounds: cacheBounds,
      now,
    });
  }

  /** Disk space of fetched commits: of a user, or of all users without `uid`. */
  cacheBytes(uid?: number): Promise<number> {
    return this.#cache.usedBytes(uid);
  }

  /**
   * @param uid the caller: local repositories are read as this user, and protected ones with this user's credential;
   *   both are cached only for this user.
   */
  open(gitUrl: GitUrl, uid: number): GitRepository {
    const { path } = gitUrl;
    if (path === undefined) {
      const { transport, url } = gitUrl;
      const login = transport === "ssh" ? undefined : this.#options.login?.(new URL(url).host, uid);
      const remote = networkRemote(gitUrl, this.#git, this.#limits, login);
      return new GitRepository(remote, login?.scope ?? "network", uid, this.#cache, this.#objects);
    }
    const remote = localRemote(
      { ...gitUrl, path },
      {
        git: this.#git,
        environment: this.#environment,
        userHelpers: this.#options.userHelpers,
        uid,
        limits: this.#limits,
      },
    );
    return new GitRepository(remote, `uid ${uid}`, uid, this.#cache, this.#objects);
  }
}

export class GitRepository {
  /** Identifies who may see the results: equal for all users with the same access. */
  readonly scope: string;
  readonly #remote: GitRemote;
  readonly #uid: number;
  readonly #cache: GitCache;
  readonly #objects: GitObjects;

  constructor(remote: GitRemote, scope: string, uid: number, cache: GitCache, objects: GitObjects) {
    this.#remote = remote;
    this.scope = scope;
    this.#uid = uid;
    this.#cache = cache;
    this.#objects = objects;
  }

  get url(): string {
    return this.#remote.gitUrl.url;
  }

  /** Reads the current branches and tags. */
  listRefs({ signal, onProgress }: WorkOptions): Promise<RemoteRefs> {
    onProgress?.({ step: "resolve", message: `Reading the versions of ${this.url}` });
    return this.#remote.listRefs(signal);
  }

  /** The files of the requested revision; of the newest version without a request. */
  async checkout(wish: RequestedRevision, work: WorkOptions, directory = "."): Promise<GitCheckout> {
    const refs = await this.listRefs(work);
    return this.checkoutRevision(pickRevision(refs, wish, this.url), work, directory);
  }

  async checkoutRevision(revision: Revision, work: WorkOptions, directory = "."): Promise<GitCheckout> {
    work.onProgress?.({
      step: "fetch",
      message: `Fetching ${revision.tag || revision.branch} of ${this.url}`,
    });
    await using resources = new AsyncDisposableStack();
    const commit = await this.#cache.commit(this.#remote, this.#uid, revision, work);
    resources.use(commit.hold);
    const tree = await this.#objects.subtree(commit, directory, this.url, work.signal);
    resources.move();
    return new GitCheckout(this.#objects, commit, tree, { ...revision, commit: commit.commit }, this.url);
  }
}

/** The files of one revision, or of a directory in it, read from the daemon's cache. */
export class GitCheckout implements AsyncDisposable {
  readonly revision: Revision;
  readonly #objects: GitObjects;
  readonly #commit: HeldCommit;
  readonly #tree: string;
  readonly #url: string;

  constructor(objects: GitObjects, commit: HeldCommit, tree: string, revision: Revision, url: string) {
    this.#objects = objects;
    this.#commit = commit;
    this.#tree = tree;
    this.#url = url;
    this.revision = revision;
  }

  /** Entries of the root directory. */
  entries(signal?: AbortSignal): Promise<TreeEntry[]> {
    return this.#objects.entries(this.#commit, this.#tree, this.#url, signal);
  }

  /**
   * Reads a regular file in the root directory.
   * @throws SvcError `not_found`; `failed_precondition` for other types; `resource_exhausted` above `maxBytes`.
   */
  async readFile(name: string, maxBytes: number, signal?: AbortSignal): Promise<Buffer> {
    const entry = (await this.entries(signal)).find((candidate) => candidate.name === name);
    if (entry === undefined) throw notFound("file", name, `there is no ${name} in ${this.#url}`);
    if (entry.type !== "file") {
      throw new SvcError("package_invalid", `${name} in ${this.#url} is not a regular file`);
    }
    if (entry.sizeBytes > maxBytes) {
      const message = `${name} in ${this.#url} is too large (limit ${maxBytes} bytes)`;
      throw new SvcError("package_invalid", message);
    }
    return this.#objects.readBlob(this.#commit, entry.oid, this.#url, maxBytes, signal);
  }

  /** As {@link GitObjects.files}. */
  files(wanted: FileSelection, signal?: AbortSignal): Promise<{ files: Map<string, string>; total: number }> {
    return this.#objects.files(this.#commit, this.#tree, this.#url, wanted, signal);
  }

  /** Keeps it in the cache for later use. */
  retain(): void {
    this.#commit.hold.retain();
  }

  /** Releases it; it is removed unless {@link retain} was called. */
  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve(this.#commit.hold[Symbol.asyncDispose]());
  }

  /** All files as an uncompressed tar archive. */
  exportTar(signal?: AbortSignal): Readable {
    return this.#objects.exportTar(this.#commit, this.#tree, this.#url, signal);
  }
}
