/** A package in a directory of this host, read with the identity of whoever asks for it (D17, T52). */
import { PassThrough } from "node:stream";
import type { Identity } from "../identity/identity.ts";
import type { RequestOptions } from "../identity/identity-work.ts";
import type { Identities } from "../identity/identities.ts";
import { collectLicenses, maxLicenseBytes } from "./licenses.ts";
import type { ManifestParser } from "./manifest-parser.ts";
import { maxManifestBytes } from "./manifest-reader.ts";
import { manifestFileName, type Manifest } from "./manifest.ts";
import { missingManifest } from "./package-errors.ts";
import type { ResolvedPackage } from "./resolved-package.ts";
import type { WorkOptions } from "../apps/progress.ts";
import { SvcError } from "../errors.ts";

export interface DirectoryPlace {
  /** Absolute. */
  path: string;
  source: string;
  callerUid: number;
  identities: Identities;
  manifests: ManifestParser;
}

/** What is left out of a copy: the history of a checkout is not part of the package. */
const excluded = [".git"];

/** Reads the manifest of a directory. @throws SvcError `package_invalid`, `not_found`, `permission_denied`. */
export async function readManifest(
  { path, callerUid, identities, manifests }: DirectoryPlace,
  { signal }: WorkOptions,
): Promise<Manifest> {
  const reader = await identities.as(callerUid);
  const text = await reader
    .readFile(path, manifestFileName, { signal, maxBytes: maxManifestBytes })
    .catch((error: unknown) => missingManifest(error, { url: path }));
  return manifests.parse(text.toString(), callerUid);
}

/** Reads the manifest and the licenses of a directory. @throws SvcError `package_invalid`, `not_found`, `permission_denied`. */
export async function openDirectory(
  place: DirectoryPlace,
  { signal }: WorkOptions,
): Promise<ResolvedPackage> {
  const { path, source, callerUid, identities } = place;
  const manifest = await readManifest(place, { signal });
  const reader = await identities.as(callerUid);
  return {
    manifest,
    origin: { kind: "directory", url: path, source, branch: "", tag: "", commit: "" },
    version: manifest.version,
    licenses: await collectLicenses(await reader.list(path, ".", { signal }), (name) =>
      reader.readFile(path, name, { signal, maxBytes: maxLicenseBytes }),
    ),
    async exportTo(uid, root, target, work = {}) {
      const owner = await identities.as(uid);
      const options = { signal: work.signal };
      if (uid === callerUid) {
        const from = { root: path, path: "." };
        await owner.copyTree(from, { root, path: target }, { ...options, exclude: excluded });
      } else await copyAcross(reader, path, owner, root, target, options);
    },
    keep: () => undefined,
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

/** One user reads, another writes: the files cross as a tar, and neither sees more than is theirs. */
async function copyAcross(
  reader: Identity,
  path: string,
  owner: Identity,
  root: string,
  target: string,
  { signal }: RequestOptions,
): Promise<void> {
  const archive = new PassThrough();
  const failed = new AbortController();
  const both = { signal: signal ? AbortSignal.any([signal, failed.signal]) : failed.signal };
  const leavesOut = excluded.map((name) => `--exclude=./${name}`);
  const argv = ["tar", "-c", "-f", "-", "-C", path, ...leavesOut, "--", "."];
  const sent = reader
    .runCommand(argv, { ...both, cwd: "/", stdout: archive })
    .then(({ exitCode, stderr }) => {
      if (exitCode === 0) archive.end();
      else throw new SvcError("package_invalid", `${path} cannot be read whole: ${stderr.trim()}`);
    });
  const received = owner.extractTar(root, target, archive, both);
  try {
    await Promise.all([sent, received]);
  } catch (error) {
    failed.abort();
    archive.destroy();
    await Promise.allSettled([sent, received]);
    throw error;
  }
}
