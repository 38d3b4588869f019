/** The fixed directories of an {@link OwnedTree}: finds them, makes directories fixed, and gives them to the user again. */
import { constants, type Stats } from "node:fs";
import { lstat, mkdir, open, opendir, readdir } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { SvcError } from "../errors.ts";
import { requireNoUserMount } from "../sys/user-mounts.ts";
import { hasCode } from "./helper/request-error.mjs";
import { privateMode, removeEmptyDir, syncDirectory } from "./owned-dir.ts";

/** Where a walk down from the root ended: at the path, or at the first entry that is not a fixed directory. */
export interface Found {
  /** Absolute. */
  readonly path: string;
  /** `unowned`: a directory of the daemon's uid that is not fixed */
  readonly kind: "fixed" | "user's" | "unowned" | "missing" | "other";
  /** Names of the path that were not walked. */
  readonly rest: readonly string[];
  readonly stats?: Stats;
}

/** The user may list it and walk through it; its group is the user's group. */
const fixedMode = 0o750;

export interface FixedDirectoriesOptions {
  /** Absolute. */
  root: string;
  user: { readonly uid: number; readonly gid: number };
  /** The daemon's uid. */
  selfUid: number;
}

export class FixedDirectories {
  /** Whether the daemon and the user differ. */
  readonly isShared: boolean;
  readonly #root: string;
  readonly #user: FixedDirectoriesOptions["user"];
  readonly #selfUid: number;

  constructor({ root, user, selfUid }: FixedDirectoriesOptions) {
    this.isShared = user.uid !== selfUid;
    this.#root = root;
    this.#user = user;
    this.#selfUid = selfUid;
  }

  async isFixed(path: string): Promise<boolean> {
    if (!this.isShared) return false;
    const { kind, rest } = await this.find(path === "." ? "" : path);
    return kind === "fixed" && rest.length === 0;
  }

  /** Never walks through anything but fixed directories. */
  async find(path: string): Promise<Found> {
    const names = namesOf(path);
    let found = await this.#inspect(this.#root);
    for (const [index, name] of names.entries()) {
      if (found.kind !== "fixed") return { ...found, rest: names.slice(index) };
      found = await this.#inspect(join(found.path, name));
    }
    return found;
  }

  async #inspect(path: string): Promise<Found> {
    if (this.isShared && path !== this.#root) await requireNoUserMount(path);
    try {
      const stats = await lstat(path);
      const { uid } = stats;
      if (!stats.isDirectory()) return { path, kind: "other", rest: [], stats };
      if (uid === this.#selfUid) {
        // Only the daemon can replace the root.
        const isFixed = !this.isShared || path === this.#root || this.#isMarked(stats);
        return { path, kind: isFixed ? "fixed" : "unowned", rest: [], stats };
      }
      return { path, kind: uid === this.#user.uid ? "user's" : "other", rest: [], stats };
    } catch (error) {
      if (!hasCode(error, "ENOENT")) throw error;
      return { path, kind: "missing", rest: [] };
    }
  }

  #isMarked({ gid, mode }: Stats): boolean {
    return gid === this.#user.gid && (mode & 0o7777) === fixedMode;
  }

  async fix({ path, kind, rest, stats }: Found): Promise<void> {
    if (rest.length > 0 || kind === "other") throw notPlain(path);
    const { gid } = this.#user;
    if (kind === "fixed" && stats !== undefined && this.#isMarked(stats)) return;
    // Empty ones are of the engine, or of a daemon that was killed right here.
    if (kind === "unowned") await this.removeUnowned(relative(this.#root, path));
    if (kind === "missing" || kind === "unowned") await mkdir(path, privateMode);
    await using handle = await openDirectory(path);
    const { uid } = await handle.stat();
    if (uid !== this.#selfUid && uid !== this.#user.uid) throw notPlain(path);
    // A daemon that is killed after the change of owner has left a fixed directory.
    await handle.chmod(fixedMode);
    // The user can change the mode until then.
    await handle.chown(this.#selfUid, gid);
    await handle.chmod(fixedMode);
    await syncDirectory(dirname(path));
  }

  /** Gives fixed directories to the user, except the named ones. The deepest first, so that no fixed directory ever lies in a user's directory. */
  async release(path: string, except: ReadonlySet<string>): Promise<void> {
    const { uid, gid } = this.#user;
    for (const entry of await readdir(join(this.#root, path), { withFileTypes: true })) {
      const below = join(path, entry.name);
      if (!entry.isDirectory() || (await this.#inspect(join(this.#root, below))).kind !== "fixed") continue;
      await this.release(below, except);
      if (except.has(below)) continue;
      await using handle = await openDirectory(join(this.#root, below));
      await handle.chmod(privateMode);
      await handle.chown(uid, gid);
    }
  }
  async removeUnowned(path: string, denied = notPlain(path)): Promise<number> {
    const { dev } = await lstat(this.#root);
    return removeEmptyDirs(join(this.#root, path), dev, denied);
  }
}

/**
 * Removes a directory that only the daemon can write to, if it contains only such directories.
 * @param dev the file system that it must be on
 * @throws `denied` if it contains anything else
 */
async function removeEmptyDirs(path: string, dev: number, denied: SvcError): Promise<number> {
  const stats = await lstat(path);
  const isOwn = stats.isDirectory() && stats.uid === process.geteuid?.() && (stats.mode & 0o022) === 0;
  if (!isOwn || stats.dev !== dev) throw denied;
  let freedBytes = 0;
  for await (const { name } of await opendir(path))
    freedBytes += await removeEmptyDirs(join(path, name), dev, denied);
  return freedBytes + (await removeEmptyDir(path));
}

/** The directories between the root and a path. */
export function leadingTo(path: string): string[] {
  const names = namesOf(path);
  return names.slice(1).map((_, index) => names.slice(0, index + 1).join("/"));
}

/** @throws Error for a path outside of the root */
function namesOf(path: string): string[] {
  const names = path.split("/").filter((name) => name !== "" && name !== ".");
  if (path.startsWith("/") || names.includes("..")) throw new Error(`"${path}" is outside of the directory`);
  return names;
}

export function openDirectory(path: string): ReturnType<typeof open> {
  return open(path, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
}

export function notPlain(path: string): SvcError {
  return new SvcError("not_possible", `${path} is not a directory, or a parent of it is a symlink`);
}
