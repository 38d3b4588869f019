/** The package in an archive's checkout: its manifest and licenses. */
import { volumeOfTree } from "../../apps/lifecycle/backed-up-trees.ts";
import type { AppImage } from "../../apps/changes/restore.ts";
import type { AppCaller } from "../../apps/records/app-registry.ts";
import { SvcError } from "../../errors.ts";
import { rootShare } from "../../lib/share-owner.ts";
import { collectLicenses, maxLicenseBytes, type LicenseText } from "../../packages/manifest/licenses.ts";
import { manifestFileName } from "../../packages/manifest/manifest.ts";
import type { ManifestParser } from "../../packages/manifest/manifest-parser.ts";
import { maxManifestBytes } from "../../packages/manifest/manifest-reader.ts";
import type { PackageOrigin } from "../../packages/resolved-package.ts";
import type { UserHelper } from "../../run-as/user-helper.ts";
import type { LocatedFile } from "../../run-as/user-helper-types.ts";
import type { Archive } from "./archive.ts";

/** The manifest of the checkout, with the same checks as for other manifests. */
export async function imageOf(
  manifests: ManifestParser,
  archive: Archive,
  userHelper: UserHelper,
  { root, uid }: AppCaller,
  signal?: AbortSignal,
): Promise<Omit<AppImage, "accepted">> {
  const { app, trees } = archive.footer;
  const file = await archive.findFile(userHelper, `repo/${manifestFileName}`, signal);
  if (file.sizeBytes > maxManifestBytes)
    throw new SvcError("package_invalid", "the archive's manifest is too large");
  const text = await readWhole(archive, userHelper, file, signal);
  const manifest = await manifests.parse(text.toString(), root ? rootShare : uid, signal);
  return {
    name: app.name,
    origin: app.origin as unknown as PackageOrigin,
    version: app.version,
    manifest,
    settings: app.settings,
    trees: trees.filter((tree) => volumeOfTree(tree) === undefined),
    volumes: trees.flatMap((tree) => volumeOfTree(tree) ?? []),
  };
}

/** Limit for entries at the root of a package. */
const maxRootEntries = 10_000;

/**
 * The licenses at the root of the checkout. Accepted ones are not read: the restore checks every file against
 * the index, and a differential archive lacks unchanged files.
 * @returns `known`: the checksums of the accepted ones
 * @throws SvcError `package_invalid` for a license that is too large
 */
export async function licensesOf(
  archive: Archive,
  accepted: readonly string[],
  reader: UserHelper,
  signal?: AbortSignal,
): Promise<{ known: string[]; licenses: LicenseText[] }> {
  const page = { directory: "repo", after: 0, limit: maxRootEntries };
  const { entries } = await archive.browse(reader, page, signal);
  const known = entries.filter(({ sha256 }) => accepted.includes(sha256));
  const others = entries.filter((entry) => !known.includes(entry));
  const named = others.map(({ path, type }) => ({
    name: path.slice("repo/".length),
    type: type === "hardlink" ? "file" : type,
  }));
  const licenses = await collectLicenses(named, async (name) => {
    const file = await archive.findFile(reader, `repo/${name}`, signal);
    if (file.sizeBytes > maxLicenseBytes)
      throw new SvcError("package_invalid", `the archive's license ${name} is too large`);
    return readWhole(archive, reader, file, signal);
  });
  return { known: known.map(({ sha256 }) => sha256), licenses };
}

async function readWhole(
  archive: Archive,
  reader: UserHelper,
  file: LocatedFile,
  signal?: AbortSignal,
): Promise<Buffer> {
  const pieces = archive.readFile(reader, file, signal) as AsyncIterable<Buffer>;
  return Buffer.concat(await Array.fromAsync(pieces));
}
