/** Finds packages in the sources by ID or display name. */
import { join } from "node:path";
import { invalidField, SvcError, notFound } from "../../errors.ts";
import { nearWord } from "../../lib/near-word.ts";
import type { GitUrl } from "../git/git-url.ts";
import { isNewerTag } from "../git/version-tags.ts";
import type { IndexedPackage, SvcRelease } from "./source-index.ts";
import type { LoadedIndex, SourceIndexLoader } from "./source-index-loader.ts";
import type { WorkOptions } from "../../work/progress.ts";
import type { SourceConfig } from "./source-list.ts";

/** A package of a source, with its location. */
export interface ListedPackage extends Omit<IndexedPackage, "location"> {
  source: string;
  location: ListedLocation;
}

export type ListedLocation =
  | { kind: "git"; gitUrl: GitUrl }
  /** A directory in the repository with the index. */
  | { kind: "git-directory"; gitUrl: GitUrl; directory: string }
  | { kind: "directory"; path: string };

/** Result of a search, and the sources that could not be read. */
export interface FoundPackages {
  packages: ListedPackage[];
  errors: { source: string; error: string }[];
}

export interface SourcesOptions {
  /** Returns the current sources. */
  list: () => readonly SourceConfig[];
  loader: SourceIndexLoader;
}

export class Sources {
  readonly #options: SourcesOptions;

  constructor(options: SourcesOptions) {
    this.#options = options;
  }

  /**
   * Finds the package named `name`: an ID, else a display name, in one source or in all. A source that cannot be read
   * does not prevent searching the others.
   * @param uid the caller: directories are read as this user.
   * @throws SvcError `ambiguous` with the candidates, `not_found`, `source_failed` if a source that may contain it
   *   cannot be read.
   */
  async find(
    name: string,
    source: string | undefined,
    uid: number,
    work: WorkOptions,
  ): Promise<ListedPackage> {
    const searched = this.#choose(source);
    const results = await Promise.all(searched.map(async (config) => this.#search(config, uid, work)));
    // Errors of svc's own source are ignored, because the user did not configure it.
    const failures = results.flatMap((result, at) =>
      "failure" in result && searched[at]?.shipped !== true ? [result.failure] : [],
    );
    const listed = results.flatMap((result) => ("packages" in result ? result.packages : []));
    const byId = listed.filter(({ id }) => id === name);
    const matches = this.#preferChosen(
      byId.length > 0 ? byId : listed.filter((entry) => plainName(entry.name) === plainName(name)),
    );
    const [match, ...others] = matches;
    if (match === undefined) {
      const [failure] = failures;
      throw failure ?? this.#nothingFound(name, source, listed);
    }
    if (others.length > 0) throw ambiguous(name, matches);
    return match;
  }

  /** Reads the index of a source that may not be stored yet. @throws SvcError `source_failed` */
  async check(source: SourceConfig, uid: number, work: WorkOptions): Promise<void> {
    await this.#options.loader.load(source, uid, work);
  }

  /**
   * Packages that contain every one of `words` in ID, name, summary or tags, sorted by name.
   * @param uid as for {@link find}
   */
  async search(
    words: readonly string[],
    source: string | undefined,
    uid: number,
    work: WorkOptions,
  ): Promise<FoundPackages> {
    const searched = this.#choose(source);
    const results = await Promise.all(searched.map(async (config) => this.#search(config, uid, work)));
    const terms = words.map((word) => word.toLowerCase());
    const packages = results
      .flatMap((result) => ("packages" in result ? result.packages : []))
      .filter(({ id, name, summary, tags }) => {
        const text = [id, name, summary, ...tags].join(" ").toLowerCase();
        return terms.every((word) => text.includes(word));
      })
      .toSorted((one, other) => one.name.localeCompare(other.name) || (one.source < other.source ? -1 : 1));
    const errors = results.flatMap((result, at) => {
      const name = searched[at]?.name ?? "";
      if ("failure" in result) return [{ source: name, error: result.failure.message }];
      if (result.cut === undefined) return [];
      return [{ source: name, error: `the source "${name}" is not read completely: ${result.cut}` }];
    });
    return { packages, errors };
  }

  /**
   * The newest release of svc in the sources that is newer than `current`; undefined without one. Sources that cannot
   * be read are ignored.
   * @param uid as for {@link find}
   */
  async newerSvc(current: string, uid: number, work: WorkOptions): Promise<SvcRelease | undefined> {
    const { list, loader } = this.#options;
    const releases = await Promise.all(
      list().map(async (config) => {
        try {
          return (await loader.load(config, uid, work)).index.svc;
        } catch (error) {
          if (isSourceFailure(error)) return undefined;
          throw error;
        }
      }),
    );
    let newest: SvcRelease | undefined;
    for (const release of releases)
      if (release !== undefined && isNewerTag(release.version, newest?.version ?? current) === true)
        newest = release;
    return newest;
  }

  /** Whether a source comes with svc. */
  isShipped(name: string): boolean {
    return this.#options.list().some((source) => source.name === name && source.shipped === true);
  }

  /** Configured sources have precedence over the one that comes with svc. */
  #preferChosen(matches: readonly ListedPackage[]): readonly ListedPackage[] {
    const ofSvc = this.#options.list().find(({ shipped }) => shipped === true)?.name;
    const chosen = matches.filter(({ source }) => source !== ofSvc);
    return chosen.length > 0 ? chosen : matches;
  }

  #choose(source: string | undefined): readonly SourceConfig[] {
    const sources = this.#options.list();
    if (source === undefined) return sources;
    const chosen = sources.filter(({ name }) => name === source);
    if (chosen.length > 0) return chosen;
    const known = sources.map(({ name }) => name).join(", ");
    throw invalidField(
      "source",
      `no source "${source}" is configured; ${known === "" ? "there are no sources" : `sources: ${known}`}`,
    );
  }

  async #search(
    config: SourceConfig,
    uid: number,
    work: WorkOptions,
  ): Promise<{ packages: ListedPackage[]; cut: string | undefined } | { failure: SvcError }> {
    try {
      const loaded = await this.#options.loader.load(config, uid, work);
      return {
        cut: loaded.cut,
        packages: loaded.index.packages.flatMap((entry) => {
          const location = locationOf(entry, loaded);
          return location === undefined ? [] : [{ ...entry, source: config.name, location }];
        }),
      };
    } catch (error) {
      if (isSourceFailure(error)) return { failure: error };
      throw error;
    }
  }

  #nothingFound(name: string, source: string | undefined, listed: readonly ListedPackage[]): SvcError {
    const sources = this.#options.list();
    const where =
      source ??
      (sources.length === 0 ? "no source is configured" : sources.map((config) => config.name).join(", "));
    const near = nearWord(
      name,
      listed.map(({ id }) => id),
    );
    const suggestion = near === undefined ? "" : `; the nearest ID is "${near}"`;
    return notFound("package", name, `no package "${name}" in the sources (${where})${suggestion}`);
  }
}

function isSourceFailure(error: unknown): error is SvcError<"source_failed"> {
  return error instanceof SvcError && error.reason === "source_failed";
}

/** Display names are compared without case, and with hyphens for spaces, because a spec contains no spaces. */
function plainName(name: string): string {
  return name.toLowerCase().replaceAll(/\s+/g, "-");
}

function locationOf({ location }: IndexedPackage, { base }: LoadedIndex): ListedLocation | undefined {
  if ("gitUrl" in location) return { kind: "git", gitUrl: location.gitUrl };
  if (base.kind === "directory") return { kind: "directory", path: join(base.path, location.directory) };
  if (base.kind === "git")
    return { kind: "git-directory", gitUrl: base.gitUrl, directory: location.directory };
  return undefined;
}

/** The unambiguous spec of a package. */
export function specOf({ source, id }: Pick<ListedPackage, "source" | "id">): string {
  return `${source}/${id}`;
}

function ambiguous(name: string, matches: readonly ListedPackage[]): SvcError<"ambiguous"> {
  const candidates = matches.map(({ source, id, name: displayName, summary }) => ({
    spec: specOf({ source, id }),
    source,
    id,
    name: displayName,
    summary,
  }));
  const specs = candidates.map(({ spec }) => spec).join(", ");
  return new SvcError("ambiguous", `"${name}" matches several packages; choose one of ${specs}`, {
    payload: { candidates },
  });
}
