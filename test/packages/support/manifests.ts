/** The daemon's manifest reader for tests. */
import { createManifestParser, type ManifestParser } from "../../../src/packages/manifest/manifest-parser.ts";
import { createManifestReader } from "../../../src/packages/manifest/manifest-reader.ts";
import { createSettingsValidator } from "../../../src/packages/settings/settings-validator.ts";
import type { Manifest } from "../../../src/packages/manifest/manifest.ts";
import { programs } from "../../support/programs.ts";

export function createTestParser(
  settings = createSettingsValidator({ threadUrl: programs.settingsThread }),
): ManifestParser {
  return createManifestParser(createManifestReader(), settings);
}

const parser = createTestParser();

/** @throws SvcError `package_invalid` */
export function parseManifest(text: string): Promise<Manifest> {
  return parser.parse(text, 0);
}
