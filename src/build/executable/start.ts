/**
 * The first code of the single executable. It contains Node and all files of the bundle, which must be on disk:
 * native code and threads cannot be loaded from memory, and helper programs run as other users.
 */
import { createRequire } from "node:module";
import { homedir } from "node:os";
import { join } from "node:path";
import { getRawAsset } from "node:sea";
import { xdgDir } from "../../lib/paths.ts";
import { ownProgramDir, unpackOnce, type PackedFile } from "./unpack.ts";

/** Inserted by the build: the files, a checksum of all, and the loader's name. */
declare const packedFiles: readonly PackedFile[];
declare const packedId: string;
declare const loaderFile: string;

const first = process.argv[2] ?? "";
const programDir = ownProgramDir(first);
if (programDir === undefined) {
  // Replaces the name that it was called by.
  process.argv[1] = process.execPath;
  required(join(bundleDir(), "svc.cjs"));
} else {
  // As if Node had been called with the file.
  process.argv.splice(1, 1);
  const load = required(join(programDir, loaderFile)) as (file: string) => Promise<unknown>;
  void load(first);
}

function required(file: string): unknown {
  return createRequire(file)(file) as unknown;
}

function bundleDir(): string {
  const uid = process.getuid?.() ?? 0;
  const system = { base: "/var/cache/svc/programs", uid: 0 };
  const environment = { env: process.env, home: homedir() };
  const own = { base: join(xdgDir(environment, "XDG_CACHE_HOME", ".cache"), "svc/programs"), uid };
  const packed = {
    id: packedId,
    files: packedFiles,
    content: (path: string) => new Uint8Array(getRawAsset(path)),
  };
  try {
    return unpackOnce(packed, uid === 0 ? [system] : [system, own], { isChecked: first === "daemon" });
  } catch (error) {
    process.stderr.write(
      `svc: cannot unpack its files: ${error instanceof Error ? error.message : String(error)}\n`,
    );
    process.exit(1);
  }
}
