/** Installs the native code for another architecture from npm, in the version of package-lock.json. */
import { execFile } from "node:child_process";
import { hash } from "node:crypto";
import { mkdir, mkdtemp, readFile, readdir, rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);
const timeoutMs = 120_000;

/** Its directory in the checkout, which does not exist yet for another architecture. */
export function nativePackageDir(arch: string): string {
  const name = `node_modules/@koromix/koffi-${process.platform}-${arch}`;
  return arch === process.arch ? name : `node_modules/.cache/svc-native/${name}`;
}

/** @throws Error when npm cannot download it, or it does not match the lock file */
export async function bringNativePackage(root: string, arch: string): Promise<void> {
  const dir = join(root, nativePackageDir(arch));
  const name = `@koromix/koffi-${process.platform}-${arch}`;
  const lock = JSON.parse(await readFile(join(root, "package-lock.json"), "utf8")) as {
    readonly packages: Readonly<Record<string, { version: string; integrity: string }>>;
  };
  const locked = lock.packages[`node_modules/${name}`];
  if (locked === undefined) throw new Error(`package-lock.json has no ${name}: svc does not support ${arch}`);
  const installed = await versionIn(dir);
  // npm itself updates the package of this architecture.
  if (installed !== undefined && (installed === locked.version || arch === process.arch)) return;
  await mkdir(dirname(dir), { recursive: true });
  const scratch = await mkdtemp(`${dir}.`);
  try {
    const { version, integrity } = locked;
    await run("npm", ["pack", `${name}@${version}`, "--pack-destination", scratch], {
      cwd: scratch,
      timeout: timeoutMs,
    });
    const [archive = ""] = await readdir(scratch);
    const digest = hash("sha512", await readFile(join(scratch, archive)), "base64");
    if (integrity !== `sha512-${digest}`)
      throw new Error(`${name} ${version} does not match package-lock.json`);
    await run("tar", ["--extract", "--gzip", "--file", archive, "--no-same-owner"], { cwd: scratch });
    await rm(dir, { recursive: true, force: true });
    await rename(join(scratch, "package"), dir);
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

/** `undefined` if it does not exist. */
async function versionIn(dir: string): Promise<string | undefined> {
  try {
    const { version } = JSON.parse(await readFile(join(dir, "package.json"), "utf8")) as { version: string };
    return version;
  } catch {
    return undefined;
  }
}
