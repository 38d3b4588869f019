/** What is made of files that are no manifest. */
import { SvcError } from "../errors.ts";
import type { ManifestDocument, SettingDocument } from "../../gen/manifest-document.ts";
import type { Problem } from "../packages/yaml-document.ts";

export interface Derived {
  /** The file that it was made from. */
  readonly from: string;
  /** Without what only the directory says. */
  readonly manifest: Partial<ManifestDocument>;
  /** Files that it needs beside those that are there, by name. */
  readonly files?: Readonly<Record<string, string>>;
  /** What could not be carried over, or is to be looked at: one sentence each. */
  readonly notes: readonly string[];
}

/** `DB_HOST` as `db_host`. */
export function settingName(variable: string): string {
  const name = variable
    .toLowerCase()
    .replaceAll(/[^a-z0-9_-]/g, "_")
    .replace(/^[^a-z]+/, "")
    .slice(0, 63);
  return name || "value";
}

/**
 * A setting that gives a port.
 * @param value absent: it has to be said at the install @param env the variable that tells it; absent: none does
 */
export function portSetting(value: number | undefined, env?: string): SettingDocument {
  return {
    title: "Port",
    description: "TCP port that it listens on.",
    type: "integer",
    minimum: 1,
    maximum: 65_535,
    ...(value !== undefined && { default: value }),
    ...(env !== undefined && { env }),
  };
}

export function unique<T>(values: readonly T[]): T[] {
  return [...new Set(values)];
}

/** `invalid_argument` `package_invalid`: what is wrong in a file of a package. */
export function invalidFile(file: string, problems: readonly Problem[]): SvcError<"package_invalid"> {
  const list = problems.map(({ line, message }) => `line ${line}: ${message}`).join("; ");
  return new SvcError("package_invalid", `${file}: ${list}`);
}
