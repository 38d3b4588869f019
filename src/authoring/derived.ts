/** Results of generating a manifest from other files. */
import { SvcError } from "../errors.ts";
import type { ManifestDocument, SettingDocument } from "../../gen/manifest-document.ts";
import type { Problem } from "../packages/manifest/yaml-document.ts";

export interface Derived {
  /** The source file. */
  readonly from: string;
  /** Without the parts that only the directory determines. */
  readonly manifest: Partial<ManifestDocument>;
  /** Additional files to create, by name. */
  readonly files?: Readonly<Record<string, string>>;
  /** Parts that could not be converted or should be checked, one sentence each. */
  readonly notes: readonly string[];
}

/** Converts `DB_HOST` to `db_host`. */
export function settingName(variable: string): string {
  const name = variable
    .toLowerCase()
    .replaceAll(/[^a-z0-9_-]/g, "_")
    .replace(/^[^a-z]+/, "")
    .slice(0, 63);
  return name || "value";
}

/**
 * A setting for a port.
 * @param value absent: must be set at the install @param env name of its variable, if any
 */
export function portSetting(value: number | undefined, env?: string): SettingDocument {
  return {
    title: "Port",
    description: "TCP port to listen on.",
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

/** `invalid_argument` `package_invalid`: the problems of a package's file. */
export function invalidFile(file: string, problems: readonly Problem[]): SvcError<"package_invalid"> {
  const list = problems.map(({ line, message }) => `line ${line}: ${message}`).join("; ");
  return new SvcError("package_invalid", `${file}: ${list}`);
}
