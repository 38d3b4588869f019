/** Loads large built-in modules of Node when they are first used: an import is replaced by getters of the module's exports. */
import type { Plugin } from "esbuild";

/** @param names such as `zlib` */
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
