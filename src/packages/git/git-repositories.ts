/** Git repositories as used by packages and sources: select a version, read it, export it. */
import { posix } from "node:path";
import type { Readable } from "node:stream";
import { SvcError, notFound } from "../../errors.ts";
import type { FindLogin } from "../../access/credentials.ts";
import type { UserHelpers } from "../../run-as/user-helpers.ts";
import { allocatedBytes, type CacheBounds } from "./cache-space.ts";
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
import { findSubmodules, requireNoLfsFiles, type CheckedOutDirectory } from "./git-submodules.ts";
import { connectOverSsh } from "./ssh-connection.ts";
import { haveSameOwner, type GitUrl } from "./git-url.ts";
import { isInsecure, requireProtected } from "./insecure-hosts.ts";
import type { ExportedSize } from "./tar-entries.ts";
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
  /** Hosts from which repositories may be fetched by http, or with certificates that cannot be verified. Default: none. */
  insecureHosts?: readonly string[];
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
   * @param uid the caller: local repositories and those behind ssh are read as this user, and protected ones with this
   *   user's credential; all are cached only for this user.
   */
  open(gitUrl: GitUrl, uid: number): GitRepository {
    return this.#open(gitUrl, uid, true);
  }

  /**
   * A package chooses the URLs of its submodules, and its code can read them. So a submodule of another host or owner
   * gets no credentials, and neither do its own submodules.
   */
  #open(gitUrl: GitUrl, uid: number, hasCredentials: boolean): GitRepository {
    const parts = {
      uid,
      cache: this.#cache,
      objects: this.#objects,
      maxBytes: this.#limits.maxFetchBytes,
      open: (other: GitUrl) => this.#open(other, uid, hasCredentials && haveSameOwner(gitUrl, other)),
    };
    const { path } = gitUrl;
    if (path === undefined) {
      const { transport, url } = gitUrl;
      if (transport === "ssh" && !hasCredentials) {
        const message = `the submodule ${url} belongs to another host or owner than the package, and ssh would use your key; use https`;
        throw new SvcError("package_invalid", message);
      }
      const { insecureHosts = [], userHelpers } = this.#options;
      const isSsh = transport === "ssh";
      const connect = isSsh ? connectOverSsh(url, uid, userHelpers) : undefined;
      const usesLogin = !isSsh && hasCredentials;
      const login = usesLogin ? this.#options.login?.(new URL(url).host, uid) : undefined;
      requireProtected(gitUrl, insecureHosts);
      const access = { login, isInsecure: isInsecure(gitUrl, insecureHosts), connect };
      const remote = networkRemote(gitUrl, this.#git, this.#limits, access);
      return new GitRepository(remote, isSsh ? `uid ${uid}` : (login?.scope ?? "network"), parts);
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
    return new GitRepository(remote, `uid ${uid}`, parts);
  }
}

interface RepositoryParts {
  readonly uid: number;
  readonly cache: GitCache;
  readonly objects: GitObjects;
  /** Limit for a commit with its submodules. */
  readonly maxBytes: number;
  /** Opens another repository as the same user. */
  readonly open: (gitUrl: GitUrl) => GitRepository;
}

/** Limit of a package's submodules, including those of its submodules. */
const maxSubmodules = 20;

export class GitRepository {
  /** Identifies who may see the results: equal for all users with the same access. */
  readonly scope: string;
  readonly #remote: GitRemote;
  readonly #parts: RepositoryParts;

  constructor(remote: GitRemote, scope: string, parts: RepositoryParts) {
    this.#remote = remote;
    this.scope = scope;
    this.#parts = parts;
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
    return this.checkoutRevision(pickRevision(refs, wish, this.url, directory), work, directory);
  }

  async checkoutRevision(revision: Revision, work: WorkOptions, directory = "."): Promise<GitCheckout> {
    work.onProgress?.({
      step: "fetch",
      message: `Fetching ${revision.tag || revision.branch || revision.commit} of ${this.url}`,
    });
    const { cache, uid, objects } = this.#parts;
    await using resources = new AsyncDisposableStack();
    const commit = await cache.commit(this.#remote, uid, revision, work);
    resources.use(commit.hold);
    const tree = await objects.subtree(commit, directory, this.url, work.signal);
    resources.move();
    const { gitUrl } = this.#remote;
    const checkout = { gitUrl, directory, tree };
    return new GitCheckout(this.#parts, commit, checkout, { ...revision, commit: commit.commit });
  }
}

/** The files of one revision, or of a directory in it, read from the daemon's cache. */
export class GitCheckout implements AsyncDisposable {
  readonly revision: Revision;
  readonly #parts: RepositoryParts;
  readonly #commit: HeldCommit;
  readonly #checkout: CheckedOutDirectory;
  readonly #submodules: { path: string; checkout: GitCheckout }[] = [];

  constructor(parts: RepositoryParts, commit: HeldCommit, checkout: CheckedOutDirectory, revision: Revision) {
    this.#parts = parts;
    this.#commit = commit;
    this.#checkout = checkout;
    this.revision = revision;
  }

  get #objects(): GitObjects {
    return this.#parts.objects;
  }

  get #tree(): string {
    return this.#checkout.tree;
  }

  get #url(): string {
    return this.#checkout.gitUrl.url;
  }

  /**
   * Fetches the submodules with their submodules, as the user of this checkout.
   * @throws SvcError `package_invalid` for files in Git LFS, which are not fetched
   */
  async fetchSubmodules(work: WorkOptions, fetched = { count: 0, bytes: 0 }): Promise<void> {
    const { open, maxBytes } = this.#parts;
    const { signal } = work;
    await requireNoLfsFiles(this.#objects, this.#commit, this.#checkout, signal);
    fetched.bytes += await allocatedBytes(this.#commit.gitDir);
    if (fetched.bytes > maxBytes) {
      const message = `${this.#url} and its submodules are too large (limit ${maxBytes} bytes)`;
      throw new SvcError("git_failed", message);
    }
    const submodules = await findSubmodules(this.#objects, this.#commit, this.#checkout, signal);
    for (const { path, gitUrl, commit } of submodules) {
      fetched.count += 1;
      if (fetched.count > maxSubmodules) {
        const message = `${this.#url} has more than ${maxSubmodules} submodules`;
        throw new SvcError("package_invalid", message);
      }
      const checkout = await open(gitUrl).checkoutRevision({ branch: "", tag: "", commit }, work);
      this.#submodules.push({ path, checkout });
      await checkout.fetchSubmodules(work, fetched);
    }
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

  /** Like {@link GitObjects.files}. */
  files(
    selection: FileSelection,
    signal?: AbortSignal,
  ): Promise<{ files: Map<string, string>; total: number }> {
    return this.#objects.files(this.#commit, this.#tree, this.#url, selection, signal);
  }

  /** Keeps it in the cache for later use. */
  retain(): void {
    this.#commit.hold.retain();
    for (const { checkout } of this.#submodules) checkout.retain();
  }

  /** Releases it; it is removed unless {@link retain} was called. */
  async [Symbol.asyncDispose](): Promise<void> {
    for (const { checkout } of this.#submodules) await checkout[Symbol.asyncDispose]();
    await this.#commit.hold[Symbol.asyncDispose]();
  }

  /**
   * All files as uncompressed tar archives, each with the path of its directory. Each archive must be read before the
   * next one is requested.
   */
  *exportTars(
    signal?: AbortSignal,
    total: ExportedSize = { bytes: 0, entries: 0 },
  ): Generator<{ path: string; tar: Readable }> {
    yield { path: "", tar: this.#objects.exportTar(this.#commit, this.#tree, this.#url, total, signal) };
    for (const { path, checkout } of this.#submodules) {
      for (const part of checkout.exportTars(signal, total))
        yield { ...part, path: posix.join(path, part.path) };
    }
  }
}
