/** What long work on packages takes beside its arguments. */

/** A line for whoever waits; the contract's `Progress`. */
export interface PackageProgress {
  /** Such as `fetch`. */
  step: string;
  message: string;
  doneBytes?: bigint;
}

export type OnPackageProgress = (progress: PackageProgress) => void;

export interface PackageWork {
  signal?: AbortSignal;
  onProgress?: OnPackageProgress;
}
