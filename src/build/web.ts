/**
 * Builds the web page: `src/web` as files with content hashes in their names, which browsers may cache forever, each
 * also in compressed form.
 */
import { build, type BuildOptions, type Metafile, type Plugin } from "esbuild";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import { brotliCompress, constants, gzip } from "node:zlib";
import { leanContract } from "./page-contract.ts";

const sourceDir = join(import.meta.dirname, "../web");
const mainFile = join(sourceDir, "main.tsx");
/** URL path of the files. */
const publicPath = "/web/";
/** The oldest browsers that support all CSS features of the page. */
const target = ["chrome123", "firefox121", "safari18"];

/** Options of both programs of the page. */
const common = {
  tsconfig: join(sourceDir, "tsconfig.json"),
  entryNames: "[name]-[hash]",
  bundle: true,
  format: "esm",
  platform: "browser",
  target,
  minify: true,
  legalComments: "none",
  write: false,
  metafile: true,
  logLevel: "warning",
} as const satisfies BuildOptions;

/**
 * @param outDir is created
 * @returns the source files, relative to `root`
 */
export async function buildWeb(outDir: string, root: string): Promise<string[]> {
  const whole = await build({
    ...common,
    absWorkingDir: root,
    outdir: outDir,
    entryPoints: [mainFile, join(sourceDir, "style.css")],
    chunkNames: "[name]-[hash]",
    splitting: true,
    plugins: [mainWithAllParts, leanContract],
  });
  const mainPath = outputOf(whole.metafile, "main.tsx");
  const boot = await build({
    ...common,
    absWorkingDir: root,
    outdir: outDir,
    entryPoints: [join(sourceDir, "boot.ts")],
    define: { MAIN_PATH: JSON.stringify(publicPath + basename(mainPath)) },
    external: [`${publicPath}*`],
  });
  await mkdir(outDir, { recursive: true });
  let page = await readFile(join(sourceDir, "index.html"), "utf8");
  for (const { path, contents } of [...whole.outputFiles, ...boot.outputFiles]) {
    const name = basename(path);
    page = page.replace(`"${name.replace(/-\w{8}\./, ".")}"`, `"${publicPath}${name}"`);
    await writeCompressed(path, contents);
  }
  page = page.replace("</head>", `${preloadsOf(whole.metafile.outputs, mainPath).join("")}</head>`);
  await writeCompressed(join(outDir, "index.html"), Buffer.from(page));
  return [whole, boot].flatMap(({ metafile }) =>
    Object.values(metafile.outputs).flatMap(({ inputs }) => Object.keys(inputs)),
  );
}

/**
 * Code splitting would divide the main file by the needs of each lazy part, into two dozen files of some hundred
 * bytes. But every part needs the whole main file, which is loaded anyway, so it stays one file.
 */
const mainWithAllParts: Plugin = {
  name: "main-with-all-parts",
  setup(building) {
    const later = new Set<string>();
    building.onResolve({ filter: /^\./ }, async ({ kind, path, resolveDir, importer, pluginData }) => {
      if (kind !== "dynamic-import" || pluginData === resolving) return undefined;
      const found = await building.resolve(path, { kind, resolveDir, importer, pluginData: resolving });
      later.add(found.path);
      return found;
    });
    building.onLoad({ filter: /\.tsx$/ }, async ({ path }) => {
      if (!later.has(path)) return undefined;
      const contents = `${await readFile(path, "utf8")}\nimport ${JSON.stringify(mainFile)};\n`;
      return { contents, loader: "tsx" };
    });
  },
};
/** Marks a resolution that the plugin itself requests. */
const resolving = Symbol("resolving");

/** Output path of an entry point, relative to the working directory. */
function outputOf({ outputs }: Metafile, entry: string): string {
  const found = Object.entries(outputs).find(([, { entryPoint = "" }]) => basename(entryPoint) === entry);
  if (found === undefined) throw new Error(`${entry} has no output`);
  return found[0];
}

/** Paths of files that the main file imports, which the page preloads. */
function preloadsOf(outputs: Metafile["outputs"], mainPath: string): string[] {
  const needed = new Set([mainPath]);
  for (const path of needed)
    for (const { kind, path: next } of outputs[path]?.imports ?? [])
      if (kind === "import-statement") needed.add(next);
  return [...needed].map((path) => `<link rel="modulepreload" href="${publicPath}${basename(path)}" />\n  `);
}

async function writeCompressed(path: string, contents: Uint8Array): Promise<void> {
  const params = {
    [constants.BROTLI_PARAM_QUALITY]: 11,
    [constants.BROTLI_PARAM_SIZE_HINT]: contents.length,
  };
  await writeFile(path, contents);
  await writeFile(`${path}.br`, await promisify(brotliCompress)(contents, { params }));
  await writeFile(`${path}.gz`, await promisify(gzip)(contents, { level: 9 }));
}
