/** A resolved package with what an install needs. */
import type { LicenseText } from "./manifest/licenses.ts";
import { type Manifest, manifestFileName } from "./manifest/manifest.ts";
import type { WorkOptions } from "../work/progress.ts";
import { SvcError } from "../errors.ts";

/** Origin of a package; texts are empty where they do not apply. Plain JSON, stored with the app for upgrades. */
export interface PackageOrigin {
  kind: "git" | "directory";
  /** The repository's URL, or the absolute path of the directory. */
  url: string;
  /** The package's directory in its repository; absent for the root. */
  directory?: string;
  source: string;
  /** The tracked branch; empty if a tag is installed. */
  branch: string;
  tag: string;
  commit: string;
}

export interface ExportOptions extends WorkOptions {
  /** Paths that are not copied; only for a package in a directory. Default: none. */
  exclude?: readonly string[];
}

/** Dispose of it after its install, or if it is not installed. */
export interface ResolvedPackage extends AsyncDisposable {
  readonly manifest: Manifest;
  readonly origin: PackageOrigin;
  /** The tag, else the short commit, else the manifest's version. */
  readonly version: string;
  /** Sorted by name. */
  readonly licenses: readonly LicenseText[];
  /**
   * Unpacks the files to `path` in `root` (created if missing, else it must be empty) as `uid`. The package itself is
   * read as the user who resolved it.
   */
  exportTo: (uid: number, root: string, path: string, work?: ExportOptions) => Promise<void>;
  /** Keeps fetched data in the cache; otherwise it is removed. */
  retain: () => void;
}

/** Converts the error of a missing manifest to one with a remedy; throws other errors unchanged. */
export function missingManifest(
  error: unknown,
  { url, directory = "" }: { url: string; directory?: string | undefined },
): never {
  if (!(error instanceof SvcError) || error.code !== "not_found") throw error;
  const location = directory === "" ? url : `${directory} of ${url}`;
  const message = `${location} is not a package: it has no ${manifestFileName}; create one with: svc package init`;
  throw new SvcError("no_manifest", message, { payload: { url, directory }, cause: error });
}
