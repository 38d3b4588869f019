/** A package in a git repository. */
import { posix } from "node:path";
import type { UserHelpers } from "../../run-as/user-helpers.ts";
import type { GitCheckout } from "./git-repositories.ts";
import type { Revision } from "./git-refs.ts";
import type { GitUrl } from "./git-url.ts";
import { collectLicenses, maxLicenseBytes } from "../manifest/licenses.ts";
import type { ManifestParser } from "../manifest/manifest-parser.ts";
import { maxManifestBytes } from "../manifest/manifest-reader.ts";
import { manifestFileName } from "../manifest/manifest.ts";
import { missingManifest, type ResolvedPackage } from "../resolved-package.ts";
import type { WorkOptions } from "../../work/progress.ts";

/** Hex digits of a commit in a version. */
const shortCommit = 12;

/** Version name of a revision: its tag, else its short commit. */
export function versionOf({ tag, commit }: Revision): string {
  return tag === "" ? commit.slice(0, shortCommit) : tag;
}

/** Origin of a checkout, and the user for whom its manifest is read. */
export interface GitLocation {
  gitUrl: GitUrl;
  source: string;
  /** Directory in its repository; absent for the root. */
  directory?: string;
  callerUid: number;
  userHelpers: UserHelpers;
  manifests: ManifestParser;
}

/**
 * Reads the manifest and the licenses of a checkout, and fetches its submodules; the package owns the checkout.
 * @throws SvcError `package_invalid`
 */
export async function openGitPackage(
  checkout: GitCheckout,
  { gitUrl, source, directory, callerUid, userHelpers, manifests }: GitLocation,
  work: WorkOptions,
): Promise<ResolvedPackage> {
  const { signal } = work;
  await using resources = new AsyncDisposableStack();
  resources.use(checkout);
  const { url } = gitUrl;
  const { branch, tag, commit } = checkout.revision;
  const text = await checkout
    .readFile(manifestFileName, maxManifestBytes, signal)
    .catch((error: unknown) => missingManifest(error, { url, directory }));
  const manifest = await manifests.parse(text.toString(), callerUid, signal);
  const licenses = await collectLicenses(await checkout.entries(signal), (name) =>
    checkout.readFile(name, maxLicenseBytes, signal),
  );
  await checkout.fetchSubmodules(work);
  const owned = resources.move();
  const origin = { kind: "git", url, source, branch, tag, commit } as const;
  return {
    manifest,
    origin: { ...origin, ...(directory !== undefined && { directory }) },
    version: versionOf(checkout.revision),
    licenses,
    async exportTo(uid, root, path, exportWork = {}) {
      const userHelper = await userHelpers.as(uid);
      for (const { path: below, tar } of checkout.exportTars(exportWork.signal))
        await userHelper.extractTar(root, posix.join(path, below), tar, { signal: exportWork.signal });
    },
    retain: () => checkout.retain(),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}
