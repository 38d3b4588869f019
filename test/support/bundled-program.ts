/**
 * Test programs that run parts of svc, each bundled into one file: loading the sources takes most of their start time.
 */
import { build as bundle, type Plugin } from "esbuild";
import { readFile, rename } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { pathToFileURL } from "node:url";

const root = join(import.meta.dirname, "../..");
const outDir = join(root, "node_modules/.cache/svc-test-programs");

/** @param file a TypeScript file; files beside its sources are found as usual @returns the path to run instead */
export async function bundledProgram(file: string): Promise<string> {
  const made = join(outDir, `${basename(file, ".ts")}.mjs`);
  const fresh = `${made}.${process.pid}`;
  await bundle({
    entryPoints: [file],
    outfile: fresh,
    bundle: true,
    format: "esm",
    platform: "node",
    target: `node${process.versions.node}`,
    external: ["koffi", "ssh2"],
    banner: {
      js: 'import { createRequire as requireFor } from "node:module"; const require = requireFor(import.meta.url);',
    },
    plugins: [ownPlaces],
    logLevel: "warning",
  });
  // Another test may run it.
  await rename(fresh, made);
  return made;
}

/** Each module of svc is at the path of its source. */
const ownPlaces: Plugin = {
  name: "own-places",
  setup: (build) => {
    build.onLoad({ filter: /\/(?:src|test)\/.*\.ts$/ }, async ({ path }) => {
      const text = await readFile(path, "utf8");
      const contents = text
        .replaceAll("import.meta.dirname", () => JSON.stringify(dirname(path)))
        .replaceAll("import.meta.url", () => JSON.stringify(pathToFileURL(path).href));
      return { contents, loader: "ts" };
    });
  },
};
