/**
 * The programs that run as another user, each as one file: loading the sixty files of the helper takes longer than starting Node.
 * There is one supervisor for each app, so they load the large built-in modules of Node only when they use them.
 */
import { build, type BuildOptions, type Plugin } from "esbuild";
import { join } from "node:path";

const programs = ["src/run-as/helper.mjs", "src/runtimes/process/supervisor.mjs"];

export interface HelperProgramsOptions {
  /** The checkout. */
  readonly root: string;
  readonly outDir: string;
  readonly options: BuildOptions;
}

/** The programs find the modules that they load later by their own path. */
export async function bundleHelperPrograms({ root, outDir, options }: HelperProgramsOptions): Promise<void> {
  await build({
    ...options,
    absWorkingDir: root,
    entryPoints: programs,
    outdir: outDir,
    outbase: join(root, "src"),
    outExtension: { ".js": ".cjs" },
    bundle: true,
    format: "cjs",
    define: { "import.meta.url": "__filename" },
    plugins: [builtinsOnUse(["child_process", "crypto", "zlib"])],
    legalComments: "none",
    logLevel: "warning",
  });
}

/**
 * Loads large built-in modules of Node when they are first used: an import is replaced by getters of its exports.
 * @param names such as `zlib`
 */
export function builtinsOnUse(names: readonly string[]): Plugin {
  const namespace = "builtin-on-use";
  return {
    name: namespace,
    setup: (build) => {
      build.onResolve({ filter: new RegExp(`^node:(?:${names.join("|")})$`) }, ({ path, kind }) =>
        kind === "import-statement" ? { path, namespace } : undefined,
      );
      build.onLoad({ filter: /.*/, namespace }, ({ path }) => {
        const module = `process.getBuiltinModule("${path}")`;
        const exported = Object.keys(process.getBuiltinModule(path) ?? {});
        const getters = exported.map((name) => `get ${name}(){return ${module}.${name}}`);
        return { contents: `module.exports={${getters.join()}}` };
      });
    },
  };
}
