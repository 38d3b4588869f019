/** koffi, through which functions of C libraries are called. */
import { existsSync } from "node:fs";
import { createRequire } from "node:module";

/** What a host has whose Node may be for another C library than glibc. @type {Partial<Record<string, string>>} */
const muslLinkers = { x64: "/lib/ld-musl-x86_64.so.1", arm64: "/lib/ld-musl-aarch64.so.1" };

/**
 * Loads its native code: about 1 ms and 8 MB. Which of it is for the C library of this Node, the package itself reads from
 * Node's own file, and takes ten times as long: it is asked where there may be another one than glibc.
 * @returns {typeof import("koffi")}
 * @throws Error where there is none for this machine
 */
export function loadKoffi() {
  const { platform, arch } = process;
  const load = createRequire(import.meta.url);
  const muslLinker = muslLinkers[arch];
  if (muslLinker === undefined || existsSync(muslLinker)) return load("koffi");
  try {
    return load(`@koromix/koffi-${platform}-${arch}/${platform}_${arch}/koffi.node`);
  } catch {
    return load("koffi");
  }
}
