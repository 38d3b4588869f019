/** Git repositories as packages and sources use them: pick a version, look into it, export it. */
import type { Readable } from "node:stream";
import { SvcError, notFound } from "../errors.ts";
import type { FindLogin } from "../credentials/credentials.ts";
import type { Identities } from "../identity/identities.ts";
import type { CacheBounds } from "./cache-space.ts";
import { GitCache, type HeldCommit } from "./git-cache.ts";
import type { GitEnvironment, GitSurroundings } from "./git-command.ts";
import { GitObjects, type TreeEntry, type WantedFiles } from "./git-objects.ts";
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
import type { WorkOptions } from "../apps/progress.ts";
import type { RevisionWish } from "./spec.ts";

const defaultCacheBounds: CacheBounds = { maxBytesPerUser: 2 * 2 ** 30, maxBytes: 8 * 2 ** 30 };

export interface GitRepositoriesOptions {
  /** The daemon's own cache of commits. */
  cacheDirectory: string;
  identities: Identities;
  /** What git is given of the daemon's environment. Default: nothing. */
  environment?: GitEnvironment;
  limits?: Partial<GitLimits>;
  /** Default: 2 GiB for a user, 8 GiB for all. */
  cacheBounds?: CacheBounds;
  now: () => number;
  /** What to show to a git host for whoever asks. Default: nothing. */
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

  /** Bytes that fetched commits take: those of a user, or of all users without `uid`. */
  cacheBytes(uid?: number): Promise<number> {
    return this.#cache.usedBytes(uid);
  }

  /**
   * @param uid who asks: a repository on this host is read with their identity, one that asks for a password with their
   *   credential, and either is cached for them alone.
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
        identities: this.#options.identities,
        uid,
        limits: this.#limits,
      },
    );
    return new GitRepository(remote, `uid ${uid}`, uid, this.#cache, this.#objects);
  }
}

export class GitRepository {
  /** Who may see what it answers: the same text for all who may. */
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

  /** Branches and tags as they are now. */
  listRefs({ signal, onProgress }: WorkOptions): Promise<RemoteRefs> {
    onProgress?.({ step: "resolve", message: `Asking ${this.url} for its versions` });
    return this.#remote.listRefs(signal);
  }

  /** The files of what is wished for; of the newest version without a wish. */
  async checkout(wish: RevisionWish, work: WorkOptions, directory = "."): Promise<GitCheckout> {
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

/** The files of one revision (or of a directory in it), read from the daemon's cache. */
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

  /** The entries of its root. */
  entries(signal?: AbortSignal): Promise<TreeEntry[]> {
    return this.#objects.entries(this.#commit, this.#tree, this.#url, signal);
  }

  /**
   * A regular file of the root.
   * @throws SvcError `not_found`; `failed_precondition` for what is no regular file; `resource_exhausted` above `maxBytes`.
   */
  async readFile(name: string, maxBytes: number, signal?: AbortSignal): Promise<Buffer> {
    const entry = (await this.entries(signal)).find((candidate) => candidate.name === name);
    if (entry === undefined) throw notFound("file", name, `there is no ${name} in ${this.#url}`);
    if (entry.type !== "file") {
      throw new SvcError("package_invalid", `${name} in ${this.#url} is no regular file`);
    }
    if (entry.sizeBytes > maxBytes) {
      const message = `${name} in ${this.#url} is longer than the ${maxBytes} bytes allowed`;
      throw new SvcError("package_invalid", message);
    }
    return this.#objects.readBlob(this.#commit, entry.oid, this.#url, maxBytes, signal);
  }

  /** As {@link GitObjects.files}. */
  files(wanted: WantedFiles, signal?: AbortSignal): Promise<{ files: Map<string, string>; total: number }> {
    return this.#objects.files(this.#commit, this.#tree, this.#url, wanted, signal);
  }

  /** Says that it is worth fetching but once: it stays in the cache for later work. */
  keep(): void {
    this.#commit.hold.keep();
  }

  /** Lets go of it; what nobody has asked to keep is removed. */
  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve(this.#commit.hold[Symbol.asyncDispose]());
  }

  /** All files as an uncompressed tar. */
  exportTar(signal?: AbortSignal): Readable {
    return this.#objects.exportTar(this.#commit, this.#tree, this.#url, signal);
  }
}
