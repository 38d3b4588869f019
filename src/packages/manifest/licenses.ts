/** The license files of a package. */
import { createHash } from "node:crypto";

export interface LicenseText {
  name: string;
  /** The first 64 KiB. */
  text: string;
  /** Hash of the whole file, in lower-case hex. */
  sha256: string;
}

/** Limit of a license file. */
export const maxLicenseBytes = 4 * 1024 * 1024;
/** Limit of shown license files. */
const maxLicenses = 16;

const shownBytes = 64 * 1024;

const linkText = Buffer.from("(A symbolic link: the license is another file of the package.)\n");

interface RootEntry {
  readonly name: string;
  readonly type: string;
}

/**
 * The licenses among the entries of a package's root, sorted by name. A symlink counts as one, so that a package
 * cannot avoid the acknowledgment by using a symlink; it is never followed.
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

/** Whether a file in the root of a package is a license to acknowledge. */
function isLicenseName(name: string): boolean {
  return /^(LICENSE|LICENCE|COPYING|EULA)/i.test(name);
}

function licenseText(name: string, data: Buffer): LicenseText {
  return {
    name,
    // Without a character that is cut at the end.
    text: new TextDecoder().decode(data.subarray(0, shownBytes), { stream: data.length > shownBytes }),
    sha256: createHash("sha256").update(data).digest("hex"),
  };
}
