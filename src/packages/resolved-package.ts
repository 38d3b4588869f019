/** A package that was found, as far as an install needs it. */
import type { LicenseText } from "./licenses.ts";
import type { Manifest } from "./manifest.ts";
import type { WorkOptions } from "../apps/progress.ts";

/** Where a package came from; texts are empty where they do not apply. Plain JSON, kept with the app for its upgrades. */
export interface PackageOrigin {
  kind: "git" | "directory";
  /** The repository's URL, or the absolute path of the directory. */
  url: string;
  /** The directory of the package in its repository; absent for the root. */
  directory?: string;
  source: string;
  /** The branch that is tracked; empty when a tag is installed. */
  branch: string;
  tag: string;
  commit: string;
}

/** To be disposed of when it has been installed, or is not going to be. */
export interface ResolvedPackage extends AsyncDisposable {
  readonly manifest: Manifest;
  readonly origin: PackageOrigin;
  /** The tag, else the short commit, else the manifest's version. */
  readonly version: string;
  /** In name order. */
  readonly licenses: readonly LicenseText[];
  /**
   * Lays the files out in `path` beneath `root` (made when missing, else empty) with the identity of `uid`.
   * The package itself is read with the identity of whoever resolved it.
   */
  exportTo: (uid: number, root: string, path: string, work?: WorkOptions) => Promise<void>;
  /** Lets what was fetched for it stay in the cache; of a package that is not kept nothing stays. */
  keep: () => void;
}
