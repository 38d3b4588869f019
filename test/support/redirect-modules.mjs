/**
 * Loaded first of all by the test processes of `npm test`: they take some packages from where one-file-modules.ts has put them.
 * Threads do without, and plain JavaScript costs them nothing: what takes out types would be loaded for each.
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
      // What packages of CommonJS require is another copy, with or without this.
      if (url === undefined || context.conditions.includes("require")) return next(specifier, context);
      return { url, format: "module", shortCircuit: true };
    },
  });
}
