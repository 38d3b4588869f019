/**
 * The page: `src/web` as files whose names say what is in them, so that browsers may keep them for ever, each also compressed
 * as small as it gets.
 */
import { build, type BuildOptions, type Metafile, type Plugin } from "esbuild";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import { brotliCompress, constants, gzip } from "node:zlib";
import { leanContract } from "./page-contract.ts";

const sourceDir = join(import.meta.dirname, "../web");
const mainFile = join(sourceDir, "main.tsx");
/** Where the daemon serves them. */
const publicPath = "/web/";
/** The oldest browsers that know all of what the page's style uses. */
const target = ["chrome123", "firefox121", "safari18"];

/** What is common to both programs of the page. */
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
 * @param outDir is made
 * @returns what it is made of, below `root`
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
 * Files are cut by who needs what, so that each part that comes later would cut what the page begins with once more, into two
 * dozen files of a few hundred bytes. Here each of them needs all of that, which is there anyway: it stays one file.
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
/** Of a question that the plugin asks itself. */
const resolving = Symbol("resolving");

/** What an entry point has become, below the working directory. */
function outputOf({ outputs }: Metafile, entry: string): string {
  const found = Object.entries(outputs).find(([, { entryPoint = "" }]) => basename(entryPoint) === entry);
  if (found === undefined) throw new Error(`${entry} came to nothing`);
  return found[0];
}

/** What the page's program begins with is asked for together with it. */
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
