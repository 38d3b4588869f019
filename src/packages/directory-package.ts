/** A package in a directory of this host, read as the user who asked for it. */
import { dirname } from "node:path";
import { PassThrough } from "node:stream";
import type { UserHelper } from "../run-as/user-helper.ts";
import type { RequestOptions } from "../run-as/user-helper-types.ts";
import type { UserHelpers } from "../run-as/user-helpers.ts";
import { collectLicenses, maxLicenseBytes } from "./manifest/licenses.ts";
import type { ManifestParser } from "./manifest/manifest-parser.ts";
import { maxManifestBytes } from "./manifest/manifest-reader.ts";
import { manifestFileName, type Manifest } from "./manifest/manifest.ts";
import { missingManifest, type ResolvedPackage } from "./resolved-package.ts";
import type { WorkOptions } from "../work/progress.ts";
import { SvcError } from "../errors.ts";
import { isInside } from "../lib/paths.ts";

export interface DirectoryLocation {
  /** Absolute path. */
  path: string;
  source: string;
  callerUid: number;
  userHelpers: UserHelpers;
  manifests: ManifestParser;
}

/** Excluded from a copy: a checkout's history is not part of the package. */
const excluded = [".git"];

/** Reads the manifest of a directory. @throws SvcError `package_invalid`, `not_found`, `permission_denied`. */
export async function readManifest(
  { path, callerUid, userHelpers, manifests }: DirectoryLocation,
  { signal }: WorkOptions,
): Promise<Manifest> {
  const reader = await userHelpers.as(callerUid);
  const text = await reader
    .readFile(path, manifestFileName, { signal, maxBytes: maxManifestBytes })
    .catch(async (error: unknown) => {
      if ((await reader.stat(path, ".", { signal })) !== undefined) missingManifest(error, { url: path });
      const payload = { url: path, directory: "" };
      throw new SvcError("no_manifest", `${path} does not exist`, { payload, cause: error });
    });
  return manifests.parse(text.toString(), callerUid, signal);
}

/** Reads the manifest and the licenses of a directory. @throws SvcError `package_invalid`, `not_found`, `permission_denied`. */
export async function openDirectory(
  location: DirectoryLocation,
  { signal }: WorkOptions,
): Promise<ResolvedPackage> {
  const { path, source, callerUid, userHelpers } = location;
  const manifest = await readManifest(location, { signal });
  const reader = await userHelpers.as(callerUid);
  return {
    manifest,
    origin: { kind: "directory", url: path, source, branch: "", tag: "", commit: "" },
    version: manifest.version,
    licenses: await collectLicenses(await reader.list(path, ".", { signal }), (name) =>
      reader.readFile(path, name, { signal, maxBytes: maxLicenseBytes }),
    ),
    async exportTo(uid, root, target, work = {}) {
      if (isInside(path, root)) throw containsStore(path, root);
      const owner = await userHelpers.as(uid);
      const exclude = [...excluded, ...(work.exclude ?? [])];
      const options = { signal: work.signal, exclude };
      if (uid === callerUid) {
        const from = { root: path, path: "." };
        await owner.copyTree(from, { root, path: target }, options);
      } else await copyAcross(reader, path, owner, root, target, options);
    },
    retain: () => undefined,
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

function containsStore(path: string, root: string): SvcError<"package_invalid"> {
  return new SvcError(
    "package_invalid",
    `${path} cannot be installed, because it contains the store of svc (${dirname(root)}); move the package into a directory of its own`,
  );
}

/** One user reads, another writes: the files are sent as a tar archive, so each accesses only its own side. */
async function copyAcross(
  reader: UserHelper,
  path: string,
  owner: UserHelper,
  root: string,
  target: string,
  { signal, exclude }: RequestOptions & { readonly exclude: readonly string[] },
): Promise<void> {
  const archive = new PassThrough();
  const failed = new AbortController();
  const both = { signal: signal ? AbortSignal.any([signal, failed.signal]) : failed.signal };
  const leavesOut = exclude.map((name) => `--exclude=./${name}`);
  const argv = ["tar", "-c", "-f", "-", "-C", path, "--anchored", "--no-wildcards", ...leavesOut, "--", "."];
  const sent = reader
    .runCommand(argv, { ...both, cwd: "/", stdout: archive })
    .then(({ exitCode, stderr }) => {
      if (exitCode === 0) archive.end();
      else throw new SvcError("package_invalid", `${path} cannot be read completely: ${stderr.trim()}`);
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
