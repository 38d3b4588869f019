/** Which kind of archive a file is, by its name. */
import { invalidField } from "../errors.ts";
import type { ArchiveFormat } from "../identity/host-work.ts";

const endings: readonly (readonly [ending: string, format: ArchiveFormat | "tar"])[] = [
  [".tar.gz", "tar.gz"],
  [".tgz", "tar.gz"],
  [".tar.zst", "tar.zst"],
  [".tzst", "tar.zst"],
  [".tar", "tar"],
  [".zip", "zip"],
];

/**
 * @param asked what the request says; empty: by the name
 * @throws SvcError `invalid_request` when neither says it
 */
export function archiveFormat(asked: string, path: string): ArchiveFormat | "tar" {
  const known = endings.find(([ending, format]) =>
    asked === "" ? path.toLowerCase().endsWith(ending) : format === asked,
  );
  if (known === undefined) {
    throw invalidField("format", `is needed: ${JSON.stringify(path)} does not say it by its name`);
  }
  return known[1];
}
