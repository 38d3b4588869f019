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
import type { PackageWork } from "./package-work.ts";

/** Hex digits of a commit that make a version. */
const shortCommit = 12;

/** What a revision is called: its tag, else its short commit. */
export function versionOf({ tag, commit }: Revision): string {
  return tag === "" ? commit.slice(0, shortCommit) : tag;
}

export class GitPackages {
  readonly #identities: Identities;
  readonly #manifests: ManifestParser;

  constructor(identities: Identities, manifests: ManifestParser) {
    this.#identities = identities;
    this.#manifests = manifests;
  }

  /**
   * Reads the manifest and the licenses of a checkout, which goes with the package.
   * @param callerUid in whose turn
   * @throws SvcError `package_invalid`.
   */
  async open(
    checkout: GitCheckout,
    { gitUrl, source, directory }: { gitUrl: GitUrl; source: string; directory?: string },
    callerUid: number,
    { signal }: PackageWork,
  ): Promise<ResolvedPackage> {
    await using resources = new AsyncDisposableStack();
    resources.use(checkout);
    const { branch, tag, commit } = checkout.revision;
    const text = await checkout
      .readFile(manifestFileName, maxManifestBytes, signal)
      .catch((error: unknown) => missingManifest(error, { url: gitUrl.url, directory }));
    const identities = this.#identities;
    const manifest = await this.#manifests.parse(text.toString(), callerUid);
    const licenses = await collectLicenses(await checkout.entries(signal), (name) =>
      checkout.readFile(name, maxLicenseBytes, signal),
    );
    const owned = resources.move();
    return {
      manifest,
      origin: {
        kind: "git",
        url: gitUrl.url,
        source,
        branch,
        tag,
        commit,
        ...(directory !== undefined && { directory }),
      },
      version: versionOf(checkout.revision),
      licenses,
      async exportTo(uid, root, path, work = {}) {
        const identity = await identities.as(uid);
        const options = work.signal && { signal: work.signal };
        await identity.extractTar(root, path, checkout.exportTar(work.signal), options);
      },
      keep: () => checkout.keep(),
      [Symbol.asyncDispose]: () => owned.disposeAsync(),
    };
  }
}
