/** From the text of `svc.yaml` to a {@link Manifest}, or to sentences that name file, line and key. */
import { SvcError, type ReasonPayload } from "../errors.ts";
import type { ManifestText, WrittenManifest } from "./manifest-reader.ts";
import { manifestFileName, type Manifest } from "./manifest.ts";
import { mergeDefaults } from "./settings.ts";
import type { SettingsValidator } from "./settings-validator.ts";
import type { Problem } from "./yaml-document.ts";

/** A manifest, or everything that is wrong with it. */
export type ManifestReading = { manifest: Manifest } | { problems: readonly Problem[] };

export interface ManifestParser {
  /** Answers every problem, with its line and key, instead of throwing. @param uid in whose turn */
  read: (text: string, uid: number) => Promise<ManifestReading>;
  /**
   * @param uid in whose turn
   * @throws SvcError `invalid_argument` `package_invalid` with every problem, its line and key.
   */
  parse: (text: string, uid: number) => Promise<Manifest>;
}

/**
 * Defaults of settings are held against their schema, too.
 * @param readText what reads it, as `createManifestReader` does
 */
export function createManifestParser(
  readText: (text: string, uid: number) => Promise<ManifestText>,
  validator: SettingsValidator,
): ManifestParser {
  async function read(text: string, uid: number): Promise<ManifestReading> {
    const written = await readText(text, uid);
    if ("problems" in written) return written;
    const problems = await defaultProblems(validator, written, uid);
    return problems.length > 0 ? { problems } : { manifest: written.manifest };
  }
  return {
    read,
    async parse(text, uid) {
      const result = await read(text, uid);
      if ("problems" in result) throw packageInvalid(result.problems);
      return result.manifest;
    },
  };
}

/** A default that its own schema refuses would fail every install: better told to the author. */
async function defaultProblems(
  validator: SettingsValidator,
  { manifest, defaultLines }: WrittenManifest,
  uid: number,
): Promise<Problem[]> {
  const { settings } = manifest;
  if (settings === undefined) return [];
  try {
    await validator.validate(
      { ...manifest, settings: { ...settings, required: [] } },
      mergeDefaults(manifest, {}),
      uid,
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

/** `invalid_argument` `package_invalid`: what is wrong in a package's manifest. */
function packageInvalid(problems: readonly Problem[]): SvcError<"package_invalid"> {
  const list = problems.map(({ line, message }) => `line ${line}: ${message}`).join("; ");
  return new SvcError("package_invalid", `${manifestFileName}: ${list}`);
}
