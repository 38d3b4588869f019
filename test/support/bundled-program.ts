/** Programs of the tests that run parts of svc, in one file each: to load the sources is most of what their starts take. */
import { build as bundle, type Plugin } from "esbuild";
import { readFile, rename } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { pathToFileURL } from "node:url";

const root = join(import.meta.dirname, "../..");
const outDir = join(root, "node_modules/.cache/svc-test-programs");

/** @param file of TypeScript; it finds what lies beside its sources as they would @returns what to run instead */
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

/** Each module of ours is where its source is. */
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
