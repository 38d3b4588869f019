/** The license files of a package (D17). */
import { createHash } from "node:crypto";

export interface LicenseText {
  name: string;
  /** The first 64 KiB. */
  text: string;
  /** Of the whole file, lower-case hex. */
  sha256: string;
}

/** A license file is at most this long; a longer one is no license text. */
export const maxLicenseBytes = 4 * 1024 * 1024;
/** More license files at a root than this are not shown. */
const maxLicenses = 16;

const shownBytes = 64 * 1024;

const linkText = Buffer.from("(A symbolic link: the license is another file of the package.)\n");

interface RootEntry {
  readonly name: string;
  readonly type: string;
}

/**
 * The licenses among the entries at a package's root, in name order. A link counts as one too, else a package could ship
 * its license as a link and be installed unasked; it is never followed.
 */
export async function collectLicenses(
  entries: readonly RootEntry[],
  readFile: (name: string) => Promise<Buffer>,
): Promise<LicenseText[]> {
  const found = entries
    .filter(({ type, name }) => (type === "file" || type === "symlink") && isLicenseName(name))
    .toSorted((a, b) => (a.name < b.name ? -1 : 1))
    .slice(0, maxLicenses);
  const licenses: LicenseText[] = [];
  for (const { name, type } of found) {
    licenses.push(licenseText(name, type === "symlink" ? linkText : await readFile(name)));
  }
  return licenses;
}

/** Whether a file at the root of a package is one that must be acknowledged. */
function isLicenseName(name: string): boolean {
  return /^(LICENSE|LICENCE|COPYING|EULA)/i.test(name);
}

function licenseText(name: string, data: Buffer): LicenseText {
  return {
    name,
    // A character cut in two at the end is left out.
    text: new TextDecoder().decode(data.subarray(0, shownBytes), { stream: data.length > shownBytes }),
    sha256: createHash("sha256").update(data).digest("hex"),
  };
}
