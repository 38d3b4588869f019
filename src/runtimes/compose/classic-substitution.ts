/** Finds variables that docker-compose 1.29 substitutes otherwise than compose 2. */
import type { JsonValue } from "../../lib/json.ts";
import { mapTexts, mergedRecord } from "./compose-values.ts";
import { invalid } from "./compose-sources.ts";

/**
 * Matches what docker-compose 1.29 does not substitute (compose/config/interpolation.py): a default that contains a variable, which
 * stays in the value as `${NAME}`, and `+`.
 */
const unsupported = /\$\{\w+(?::?\+|:?-[^}]*\$)[^\n]{0,60}/;

/** @param file for the error @throws SvcError `package_invalid` */
export function requireClassicSubstitution(documents: readonly JsonValue[], file: string): void {
  for (const document of documents) {
    const parts = Object.entries(mergedRecord(document)).filter(([key]) => !key.startsWith("x-"));
    mapTexts(Object.fromEntries(parts), (text) => {
      const [found] = unsupported.exec(text.replaceAll("$$", "")) ?? [];
      if (found !== undefined)
        throw invalid(
          file,
          `docker-compose 1.29 does not support the variable in "${found}"; use a plain \${NAME:-default}, or install compose 2`,
        );
      return text;
    });
  }
}
