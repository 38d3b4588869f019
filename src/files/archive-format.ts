/** Determines the format of an archive. */
import { invalidField } from "../errors.ts";
import type { UnpackFormat } from "../run-as/host-work.ts";

const endings: readonly (readonly [ending: string, format: UnpackFormat])[] = [
  [".tar.gz", "tar.gz"],
  [".tgz", "tar.gz"],
  [".tar.zst", "tar.zst"],
  [".tzst", "tar.zst"],
  [".tar.xz", "tar.xz"],
  [".txz", "tar.xz"],
  [".tar.bz2", "tar.bz2"],
  [".tbz2", "tar.bz2"],
  [".tbz", "tar.bz2"],
  [".tar", "tar"],
  [".zip", "zip"],
];

const unsupported = [".tar.lz", ".tar.lzma", ".7z", ".rar"];

/**
 * @param requested the requested format; empty: determined by the name
 * @throws SvcError `invalid_request` when neither determines the format
 */
export function archiveFormat(requested: string, path: string): UnpackFormat {
  const known = endings.find(([ending, format]) =>
    requested === "" ? path.toLowerCase().endsWith(ending) : format === requested,
  );
  const ending = unsupported.find((end) => requested === "" && path.toLowerCase().endsWith(end));
  if (ending !== undefined) {
    throw invalidField(
      "format",
      `${ending.slice(1)} is not supported; convert the archive to tar, tar.gz, tar.zst or zip`,
    );
  }
  if (known === undefined) {
    throw invalidField("format", `is required: the name ${JSON.stringify(path)} does not determine it`);
  }
  return known[1];
}
