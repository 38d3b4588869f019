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
export const maxLicenses = 16;

const shownBytes = 64 * 1024;

/** Whether a file at the root of a package is one that must be acknowledged. */
export function isLicenseName(name: string): boolean {
  return /^(LICENSE|LICENCE|COPYING|EULA)/i.test(name);
}

export function licenseText(name: string, data: Buffer): LicenseText {
  return {
    name,
    // A character cut in two at the end is left out.
    text: new TextDecoder().decode(data.subarray(0, shownBytes), { stream: data.length > shownBytes }),
    sha256: createHash("sha256").update(data).digest("hex"),
  };
}
