/** Parses `svc.yaml` to a {@link Manifest}, or to problems with file, line and key. */
import { SvcError, type ReasonPayload } from "../../errors.ts";
import type { ManifestText, WrittenManifest } from "./manifest-reader.ts";
import { manifestFileName, type Manifest } from "./manifest.ts";
import { mergeDefaults } from "../settings/settings.ts";
import type { SettingsValidator } from "../settings/settings-validator.ts";
import type { Problem } from "./yaml-document.ts";

/** A manifest, or all of its problems. */
export type ManifestReading = { manifest: Manifest } | { problems: readonly Problem[] };

export interface ManifestParser {
  /**
   * Returns every problem, with its line and key, instead of throwing. @param uid the user whose queue it waits in
   */
  read: (text: string, uid: number, signal?: AbortSignal) => Promise<ManifestReading>;
  /**
   * @param uid the user whose queue it waits in
   * @throws SvcError `invalid_argument` `package_invalid` with every problem, its line and key.
   */
  parse: (text: string, uid: number, signal?: AbortSignal) => Promise<Manifest>;
}

/**
 * Also checks the defaults of settings against their schema.
 * @param readText parses the text, such as `createManifestReader`
 */
export function createManifestParser(
  readText: (text: string, uid: number, signal?: AbortSignal) => Promise<ManifestText>,
  validator: SettingsValidator,
): ManifestParser {
  async function read(text: string, uid: number, signal?: AbortSignal): Promise<ManifestReading> {
    const written = await readText(text, uid, signal);
    if ("problems" in written) return written;
    const problems = await defaultProblems(validator, written, uid, signal);
    return problems.length > 0 ? { problems } : { manifest: written.manifest };
  }
  return {
    read,
    async parse(text, uid, signal) {
      const result = await read(text, uid, signal);
      if ("problems" in result) throw packageInvalid(result.problems);
      return result.manifest;
    },
  };
}

/** A default that violates its own schema would make every install fail, so it is rejected early. */
async function defaultProblems(
  validator: SettingsValidator,
  { manifest, defaultLines }: WrittenManifest,
  uid: number,
  signal?: AbortSignal,
): Promise<Problem[]> {
  const { settings } = manifest;
  if (settings === undefined) return [];
  try {
    await validator.validate(
      { ...manifest, settings: { ...settings, required: [] } },
      mergeDefaults(manifest, {}),
      uid,
      signal,
    );
    return [];
  } catch (error) {
    if (!(error instanceof SvcError) || error.reason !== "invalid_request") throw error;
    const { violations } = error.payload as ReasonPayload<"invalid_request">;
    return (violations ?? []).map(({ field = "", description = "" }): Problem => {
      const name = /^values\.([^.[]+)/.exec(field)?.[1] ?? "";
      return {
        line: defaultLines[name] ?? 1,
        message: `the default of the setting "${name}" ${description}`,
      };
    });
  }
}

/** `invalid_argument` `package_invalid`: the problems of a package's manifest. */
function packageInvalid(problems: readonly Problem[]): SvcError<"package_invalid"> {
  const list = problems.map(({ line, message }) => `line ${line}: ${message}`).join("; ");
  return new SvcError("package_invalid", `${manifestFileName}: ${list}`);
}
