/**
 * The page: `src/web` as files whose names say what is in them, so that browsers may keep them for ever, each also compressed
 * as small as it gets.
 */
import { build, type Metafile } from "esbuild";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import { brotliCompress, constants, gzip } from "node:zlib";

const sourceDir = join(import.meta.dirname, "../web");
/** Where the daemon serves them. */
const publicPath = "/web/";
/** The oldest browsers that know all of what the page's style uses. */
const target = ["chrome123", "firefox121", "safari18"];

/**
 * @param outDir is made
 * @returns what it is made of, below `root`
 */
export async function buildWeb(outDir: string, root: string): Promise<string[]> {
  const { outputFiles, metafile } = await build({
    absWorkingDir: root,
    entryPoints: [join(sourceDir, "boot.ts"), join(sourceDir, "style.css")],
    tsconfig: join(sourceDir, "tsconfig.json"),
    outdir: outDir,
    entryNames: "[name]-[hash]",
    chunkNames: "[name]-[hash]",
    bundle: true,
    splitting: true,
    format: "esm",
    platform: "browser",
    target,
    minify: true,
    legalComments: "none",
    write: false,
    metafile: true,
    logLevel: "warning",
  });
  await mkdir(outDir, { recursive: true });
  let page = await readFile(join(sourceDir, "index.html"), "utf8");
  for (const { path, contents } of outputFiles) {
    const name = basename(path);
    page = page.replace(`"${name.replace(/-\w{8}\./, ".")}"`, `"${publicPath}${name}"`);
    await writeCompressed(path, contents);
  }
  page = page.replace("</head>", `${preloadsOf(metafile.outputs).join("")}</head>`);
  await writeCompressed(join(outDir, "index.html"), Buffer.from(page));
  return Object.values(metafile.outputs).flatMap(({ inputs }) => Object.keys(inputs));
}

/** What the page's program begins with, and what that loads at once, is asked for together with it. */
function preloadsOf(outputs: Metafile["outputs"]): string[] {
  const needed = new Set<string>();
  const walk = (path: string, kinds: readonly string[]): void => {
    for (const { kind, path: next } of outputs[path]?.imports ?? []) {
      if (!kinds.includes(kind) || needed.has(next)) continue;
      needed.add(next);
      walk(next, ["import-statement"]);
    }
  };
  for (const [path, { entryPoint }] of Object.entries(outputs))
    if (entryPoint !== undefined && basename(entryPoint) === "boot.ts")
      walk(path, ["import-statement", "dynamic-import"]);
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
