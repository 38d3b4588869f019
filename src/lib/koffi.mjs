/** koffi, through which functions of C libraries are called. */
import { existsSync } from "node:fs";
import { createRequire } from "node:module";

/** What a host has whose Node may be for another C library than glibc. @type {Partial<Record<string, string>>} */
const muslLinkers = { x64: "/lib/ld-musl-x86_64.so.1", arm64: "/lib/ld-musl-aarch64.so.1" };

/** @type {typeof import("koffi") | undefined} */
let loaded;

/**
 * Loads its native code, once: to look for it again would change the errno that whoever asks for it wants to know.
 * @returns {typeof import("koffi")}
 * @throws Error where there is none for this machine
 */
export function loadKoffi() {
  return (loaded ??= load());
}

/**
 * About 1 ms and 8 MB. Which of it is for the C library of this Node, the package itself reads from Node's own file, and takes
 * ten times as long: it is asked where there may be another one than glibc.
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
