/**
 * Loaded first by the test processes of `npm test`: redirects some packages to the files of one-file-modules.ts. Not
 * used in threads. Plain JavaScript, because a type stripper would be loaded for each process.
 */
import { readFileSync } from "node:fs";
import { registerHooks } from "node:module";
import { join } from "node:path";
import { isMainThread } from "node:worker_threads";

if (isMainThread) {
  const file = join(import.meta.dirname, "../../node_modules/.cache/svc-test-modules/places.json");
  /** @type {Record<string, string>} */
  const places = JSON.parse(readFileSync(file, "utf8"));
  registerHooks({
    resolve: (specifier, context, next) => {
      const url = Object.hasOwn(places, specifier) ? places[specifier] : undefined;
      // CommonJS packages always require a separate copy.
      if (url === undefined || context.conditions.includes("require")) return next(specifier, context);
      return { url, format: "module", shortCircuit: true };
    },
  });
}
