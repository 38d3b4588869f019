/** Loads koffi, which calls functions of C libraries. */
import { existsSync } from "node:fs";
import { createRequire } from "node:module";

/** Files that exist on hosts whose Node may use musl instead of glibc. @type {Partial<Record<string, string>>} */
const muslLinkers = { x64: "/lib/ld-musl-x86_64.so.1", arm64: "/lib/ld-musl-aarch64.so.1" };

/** @type {typeof import("koffi") | undefined} */
let loaded;

/**
 * Loads the native code once: searching for it again would overwrite the errno that a caller is about to read.
 * @returns {typeof import("koffi")}
 * @throws Error if koffi lacks a build for this host
 */
export function loadKoffi() {
  return (loaded ??= load());
}

/**
 * Costs about 1 ms and 8 MB. The package itself detects the C library by reading Node's binary, which takes ten times
 * as long, so this is done only where it may not be glibc.
 * @returns {typeof import("koffi")}
 */
function load() {
  const { platform, arch } = process;
  const require = createRequire(import.meta.url);
  const muslLinker = muslLinkers[arch];
  if (muslLinker === undefined || existsSync(muslLinker)) return require("koffi");
  try {
    return require(`@koromix/koffi-${platform}-${arch}/${platform}_${arch}/koffi.node`);
  } catch {
    return require("koffi");
  }
}
