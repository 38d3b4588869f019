/** A package in a git repository. */
import type { Identities } from "../identity/identities.ts";
import type { GitCheckout } from "./git-repositories.ts";
import type { Revision } from "./git-refs.ts";
import type { GitUrl } from "./git-url.ts";
import { collectLicenses, maxLicenseBytes } from "./licenses.ts";
import type { ManifestParser } from "./manifest-parser.ts";
import { maxManifestBytes } from "./manifest-reader.ts";
import { manifestFileName } from "./manifest.ts";
import { missingManifest } from "./package-errors.ts";
import type { ResolvedPackage } from "./resolved-package.ts";
import type { WorkOptions } from "../apps/progress.ts";

/** Hex digits of a commit that make a version. */
const shortCommit = 12;

/** What a revision is called: its tag, else its short commit. */
export function versionOf({ tag, commit }: Revision): string {
  return tag === "" ? commit.slice(0, shortCommit) : tag;
}

/** Where a checkout comes from, and for whom its manifest is read. */
export interface GitPlace {
  gitUrl: GitUrl;
  source: string;
  /** Of its repository; absent for the root. */
  directory?: string;
  callerUid: number;
  identities: Identities;
  manifests: ManifestParser;
}

/** Reads the manifest and the licenses of a checkout, which goes with the package. @throws SvcError `package_invalid` */
export async function openGitPackage(
  checkout: GitCheckout,
  { gitUrl, source, directory, callerUid, identities, manifests }: GitPlace,
  { signal }: WorkOptions,
): Promise<ResolvedPackage> {
  await using resources = new AsyncDisposableStack();
  resources.use(checkout);
  const { url } = gitUrl;
  const { branch, tag, commit } = checkout.revision;
  const text = await checkout
    .readFile(manifestFileName, maxManifestBytes, signal)
    .catch((error: unknown) => missingManifest(error, { url, directory }));
  const manifest = await manifests.parse(text.toString(), callerUid);
  const licenses = await collectLicenses(await checkout.entries(signal), (name) =>
    checkout.readFile(name, maxLicenseBytes, signal),
  );
  const owned = resources.move();
  const origin = { kind: "git", url, source, branch, tag, commit } as const;
  return {
    manifest,
    origin: { ...origin, ...(directory !== undefined && { directory }) },
    version: versionOf(checkout.revision),
    licenses,
    async exportTo(uid, root, path, work = {}) {
      const identity = await identities.as(uid);
      await identity.extractTar(root, path, checkout.exportTar(work.signal), { signal: work.signal });
    },
    keep: () => checkout.keep(),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}
