/**
 * What the single executable does first. It holds Node and all files of the bundle, which have to lie on a disk to be loaded:
 * native code and threads cannot come from memory, and helper programs are started as other users.
 */
import { createRequire } from "node:module";
import { homedir } from "node:os";
import { join } from "node:path";
import { getRawAsset } from "node:sea";
import { xdgDir } from "../../lib/xdg.ts";
import { unpackOnce, type PackedFile } from "./unpack.ts";

/** These are written in when it is built: the files, a sum over them all, and which of them loads a module. */
declare const packedFiles: readonly PackedFile[];
declare const packedId: string;
declare const loaderFile: string;

/** What svc starts as `process.execPath FILE …`; of this version, or of one that an upgrade has replaced. */
const ownProgram =
  /^(\/.*\/svc\/programs\/[0-9a-f]{64})\/(?:identity\/helper|runtimes\/process\/supervisor)\.[cm]js$/;

const first = process.argv[2] ?? "";
const programDir = ownProgram.exec(first)?.[1];
if (programDir === undefined) {
  // Instead of the name that it was called by.
  process.argv[1] = process.execPath;
  required(join(bundleDir(), "svc.cjs"));
} else {
  // As if Node had been given the file.
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
      `svc: its files cannot be unpacked: ${error instanceof Error ? error.message : String(error)}\n`,
    );
    process.exit(1);
  }
}
