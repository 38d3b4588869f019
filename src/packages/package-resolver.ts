/** Finds installable packages for requests: the interface of this folder for `apps/`. */
import { invalidField, SvcError } from "../errors.ts";
import type { UserHelpers } from "../run-as/user-helpers.ts";
import { openDirectory, readManifest, type DirectoryLocation } from "./directory-package.ts";
import { openGitPackage, versionOf, type GitLocation } from "./git/git-package.ts";
import type { GitCheckout, GitRepositories } from "./git/git-repositories.ts";
import { newestLike, pickRevision, type RemoteRefs, type Revision } from "./git/git-refs.ts";
import { parseGitUrl, type GitUrl } from "./git/git-url.ts";
import { isNewerTag, NewestTags } from "./git/version-tags.ts";
import type { ManifestParser } from "./manifest/manifest-parser.ts";
import type { WorkOptions } from "../work/progress.ts";
import type { SvcRelease } from "./sources/source-index.ts";
import type { SourceConfig } from "./sources/source-list.ts";
import type { FoundPackages, Sources } from "./sources/sources.ts";
import { isRefName, parseSpec, type PackageRequest, type RequestedRevision } from "./spec.ts";
import type { PackageOrigin, ResolvedPackage } from "./resolved-package.ts";

/** An installed package. */
export interface InstalledPackage {
  readonly origin: PackageOrigin;
  readonly packageId: string;
  /** The tag, else the short commit, else the manifest's version. */
  readonly version: string;
}

export interface PackageResolverParts {
  userHelpers: UserHelpers;
  git: GitRepositories;
  sources: Sources;
  manifests: ManifestParser;
}

export class PackageResolver {
  readonly #parts: PackageResolverParts;

  constructor(parts: PackageResolverParts) {
    this.#parts = parts;
  }

  /** Disk space of fetched packages: of a user, or of all users without `uid`. */
  cacheBytes(uid?: number): Promise<number> {
    return this.#parts.git.cacheBytes(uid);
  }

  /**
   * Finds the requested package, and reads its manifest and licenses.
   * @param uid the caller, here and below
   * @throws SvcError `invalid_request`, `not_found`, `ambiguous`, `source_failed`, `git_failed`, `package_invalid`.
   */
  async resolve(request: PackageRequest, uid: number, work: WorkOptions = {}): Promise<ResolvedPackage> {
    const spec = parseSpec(request);
    if (spec.kind === "directory") return this.#directory(spec.path, "", uid, work);
    if (spec.kind === "git") {
      const { gitUrl, directory } = spec;
      const location = { gitUrl, source: "", ...(directory !== undefined && { directory }) };
      return this.#fromGit(location, spec.revision, uid, work);
    }
    const listed = await this.#parts.sources.find(spec.name, spec.source, uid, work);
    const { location, source } = listed;
    if (location.kind === "directory") {
      const listedNow = await this.#directory(location.path, source, uid, work);
      const { branch, tag = "" } = spec.revision;
      if (branch !== undefined) rejectRevision(spec.revision, listed.id);
      requireListedVersion(listedNow, tag, "tag");
      return listedNow;
    }
    if (location.kind === "git")
      return this.#fromGit({ gitUrl: location.gitUrl, source }, spec.revision, uid, work);
    rejectRevision(spec.revision, listed.id);
    return this.#gitDirectory({ gitUrl: location.gitUrl, source, directory: location.directory }, uid, work);
  }

  /** @throws SvcError as {@link Sources.search} */
  search(
    words: readonly string[],
    source: string | undefined,
    uid: number,
    work: WorkOptions,
  ): Promise<FoundPackages> {
    return this.#parts.sources.search(words, source, uid, work);
  }

  /** @throws SvcError as {@link Sources.check} */
  checkSource(source: SourceConfig, uid: number, work: WorkOptions): Promise<void> {
    return this.#parts.sources.check(source, uid, work);
  }

  /** @see Sources.newerSvc */
  newerSvc(current: string, uid: number, work: WorkOptions): Promise<SvcRelease | undefined> {
    return this.#parts.sources.newerSvc(current, uid, work);
  }

  /**
   * The target of an upgrade: the tag `version` if set, else the newest tag or the head of the tracked branch; for a
   * directory, its current content. If nothing is newer, the installed version.
   */
  async resolveUpgrade(
    installed: Pick<InstalledPackage, "origin" | "packageId">,
    version: string,
    uid: number,
    work: WorkOptions = {},
  ): Promise<ResolvedPackage> {
    const origin = await this.#originNow(installed, uid, work);
    const { source, directory } = origin;
    if (origin.kind === "directory" && source !== "") {
      const listed = await this.#directory(origin.url, source, uid, work);
      requireListedVersion(listed, version, "version");
      return listed;
    }
    if (origin.kind === "directory" || isListedDirectory(origin)) {
      if (version !== "") throw invalidField("version", `"${version}": a directory has no versions`);
    } else if (version !== "" && !isRefName(version)) {
      throw invalidField("version", `${JSON.stringify(version)} is not a valid tag name`);
    }
    if (origin.kind === "directory") return this.#directory(origin.url, source, uid, work);
    const gitUrl = storedUrl(origin);
    if (isListedDirectory(origin))
      return this.#gitDirectory({ gitUrl, source, directory: origin.directory }, uid, work);
    const repository = this.#parts.git.open(gitUrl, uid);
    const refs = await repository.listRefs(work);
    const checkout = await repository.checkoutRevision(
      upgradeRevision(refs, origin, version),
      work,
      directory,
    );
    const location = { gitUrl, source, ...(directory !== undefined && { directory }) };
    return this.#open(checkout, location, uid, work);
  }

  /** The version that an upgrade would install; undefined if nothing is newer. */
  async newerVersion(
    installed: InstalledPackage,
    uid: number,
    work: WorkOptions = {},
  ): Promise<string | undefined> {
    const origin = await this.#originNow(installed, uid, work);
    if (origin.kind === "directory") {
      const { version } = await readManifest(this.#directoryLocation(origin.url, origin.source, uid), work);
      const isNewer = version !== installed.version && isNewerTag(version, installed.version) !== false;
      return isNewer ? version : undefined;
    }
    const refs = await this.#parts.git.open(storedUrl(origin), uid).listRefs(work);
    const revision = isListedDirectory(origin)
      ? trackedRevision(refs, origin.url)
      : upgradeRevision(refs, origin, "");
    return revision.commit === origin.commit ? undefined : versionOf(revision);
  }

  /** The current location of a package: packages that come with svc move with each svc version. */
  async #originNow(
    { origin, packageId }: Pick<InstalledPackage, "origin" | "packageId">,
    uid: number,
    work: WorkOptions,
  ): Promise<PackageOrigin> {
    const { sources } = this.#parts;
    if (origin.kind !== "directory" || !sources.isShipped(origin.source)) return origin;
    const { location } = await sources.find(packageId, origin.source, uid, work);
    if (location.kind === "directory") return { ...origin, url: location.path };
    const directory = location.kind === "git" ? {} : { directory: location.directory };
    return { ...origin, ...directory, kind: "git", url: location.gitUrl.url };
  }

  async #fromGit(
    location: { gitUrl: GitUrl; source: string; directory?: string },
    wish: RequestedRevision,
    uid: number,
    work: WorkOptions,
  ): Promise<ResolvedPackage> {
    const repository = this.#parts.git.open(location.gitUrl, uid);
    return this.#open(await repository.checkout(wish, work, location.directory), location, uid, work);
  }

  async #gitDirectory(
    location: { gitUrl: GitUrl; source: string; directory: string },
    uid: number,
    work: WorkOptions,
  ): Promise<ResolvedPackage> {
    const repository = this.#parts.git.open(location.gitUrl, uid);
    const revision = trackedRevision(await repository.listRefs(work), repository.url);
    const checkout = await repository.checkoutRevision(revision, work, location.directory);
    return this.#open(checkout, location, uid, work);
  }

  #open(
    checkout: GitCheckout,
    location: Pick<GitLocation, "gitUrl" | "source" | "directory">,
    callerUid: number,
    work: WorkOptions,
  ): Promise<ResolvedPackage> {
    const { userHelpers, manifests } = this.#parts;
    return openGitPackage(checkout, { ...location, callerUid, userHelpers, manifests }, work);
  }

  #directory(path: string, source: string, uid: number, work: WorkOptions): Promise<ResolvedPackage> {
    return openDirectory(this.#directoryLocation(path, source, uid), work);
  }

  #directoryLocation(path: string, source: string, callerUid: number): DirectoryLocation {
    const { userHelpers, manifests } = this.#parts;
    return { path, source, callerUid, userHelpers, manifests };
  }
}

function rejectRevision({ branch, tag }: RequestedRevision, id: string): void {
  const name = branch ?? tag;
  if (name === undefined) return;
  const field = branch === undefined ? "tag" : "branch";
  throw invalidField(
    field,
    `"${name}": the package "${id}" is a directory without versions; omit the version`,
  );
}

/** @param wanted the version or its tag; empty for any */
function requireListedVersion(
  { origin, version, manifest }: ResolvedPackage,
  wanted: string,
  field: "tag" | "version",
): void {
  if (["", version, `v${version}`].includes(wanted)) return;
  const reason = `the source "${origin.source}" has only version ${version} of "${manifest.id}"`;
  throw invalidField(field, `"${wanted}": ${reason}`);
}

function upgradeRevision(
  refs: RemoteRefs,
  { url, branch, tag, commit, directory }: PackageOrigin,
  version: string,
): Revision {
  if (version !== "") return pickRevision(refs, { tag: version }, url);
  if (branch !== "") return pickRevision(refs, { branch }, url);
  // An installed commit stays until a version is named.
  if (tag === "" && commit !== "") return { branch, tag, commit };
  const newest = tag === "" ? undefined : newestLike(refs, tag);
  return pickRevision(refs, newest === undefined ? {} : { tag: newest }, url, directory);
}

/** Whether the index of a source lists a directory of its repository. */
function isListedDirectory(origin: PackageOrigin): origin is PackageOrigin & { directory: string } {
  return origin.directory !== undefined && origin.source !== "";
}

/** A package in a directory of a source's repository has no tags of its own: the default branch is tracked. */
function trackedRevision(refs: RemoteRefs, url: string): Revision {
  return pickRevision({ ...refs, newestTags: new NewestTags() }, {}, url);
}

function storedUrl({ url }: PackageOrigin): GitUrl {
  const result = parseGitUrl(url);
  if ("gitUrl" in result) return result.gitUrl;
  throw new SvcError("git_failed", `the repository ${url} ${result.problem}`);
}
