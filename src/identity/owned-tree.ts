/**
 * A directory of the daemon's own with a user's files in it: `<store>/apps/<id>` (decisions 19, 39).
 *
 * Whoever may write to a directory can rename what is in it, and put a link there. So each directory of the tree is one of
 * two: *fixed*, which is the daemon's (its owner may list it and walk through, no more), or the *user's*, with all that is
 * below. The root is fixed, and every directory that leads to a place that a container mounts; fixed ones lie in fixed ones
 * only. What is in a fixed directory stays where it is for as long as the daemon leaves it there, so the daemon may name it
 * by its path. It makes, renames and removes entries of fixed directories itself, and never follows one; below them
 * the user's identity works. Where the daemon is the user all of it is one.
 */
import { randomUUID } from "node:crypto";
import { constants, type Stats } from "node:fs";
import {
  lchown,
  lstat,
  mkdir,
  open,
  readdir,
  readlink,
  rename,
  rmdir,
  symlink,
  unlink,
} from "node:fs/promises";
import { dirname, join } from "node:path";
import { SvcError } from "../errors.ts";
import type { Identity } from "./identity.ts";
import { hasCode } from "./helper/request-error.mjs";
import type { CopyProgress, CopyTreeOptions } from "./identity-work.ts";
import { makeOwnedDir, privateMode, removeEmptyDir, syncDirectory } from "./owned-dir.ts";

export interface OwnedTreeOptions {
  /** Absolute. */
  root: string;
  /** The user's hands. */
  identity: Identity;
  /** The daemon's uid. */
  selfUid: number;
}

/** Where a walk down from the root ends: with the path, or at the first entry that is no fixed directory. */
interface Found {
  /** Absolute. */
  readonly path: string;
  readonly kind: "fixed" | "user's" | "missing" | "other";
  /** Names below it that were not walked. */
  readonly rest: readonly string[];
  readonly stats?: Stats;
}

/** The user lists it and walks through; its group is the user's own. */
const fixedMode = 0o750;

export class OwnedTree {
  readonly root: string;
  readonly #identity: Identity;
  readonly #selfUid: number;
  /** Whether the daemon and the user are two. */
  readonly #isShared: boolean;

  constructor({ root, identity, selfUid }: OwnedTreeOptions) {
    this.root = root;
    this.#identity = identity;
    this.#selfUid = selfUid;
    this.#isShared = identity.user.uid !== selfUid;
  }

  /** Makes the root. @throws SvcError `already_exists`; `failed_precondition` when others may write to its parent */
  async create(): Promise<void> {
    await makeOwnedDir(this.root, this.#identity.user, this.#selfUid);
    await this.claim();
  }

  /** Whether the root is. */
  async isThere(): Promise<boolean> {
    return (await this.#find("")).kind !== "missing";
  }

  /** Makes the root the daemon's, if it is there and the user's still. */
  async claim(): Promise<void> {
    if (!this.#isShared) return;
    const found = await this.#find("");
    if (found.kind !== "missing") await this.#fix(found);
  }

  /**
   * From now on only the daemon can rename these paths and what leads there; all other fixed directories are the
   * user's again. Directories on the way that are missing are made.
   * @param paths relative to the root
   * @throws SvcError `failed_precondition` when something on the way is no directory of the user's
   */
  async hold(paths: readonly string[]): Promise<void> {
    if (!this.#isShared) return;
    await this.claim();
    const leading = new Set(paths.flatMap(leadingTo));
    for (const path of [...leading].sort((a, b) => a.length - b.length))
      await this.#fix(await this.#find(path));
    await this.#giveBack("", leading);
  }

  /** Makes directories of the user's, and what leads there; one that exists is left as it is. */
  async makeDirs(paths: readonly string[]): Promise<void> {
    for (const path of paths) {
      const found = this.#isShared ? await this.#find(path) : undefined;
      if (found?.kind === "missing") await makeOwnedDir(found.path, this.#identity.user, this.#selfUid);
      if (found?.kind === "other") throw notPlain(path);
      if (found === undefined || found.rest.length > 0) await this.#identity.makeDirs(this.root, [path]);
    }
  }

  /** Lets nobody but the user into a directory of theirs, whatever its mode has become. */
  async close(path: string): Promise<void> {
    if (!this.#isShared) return;
    const found = await this.#find(path);
    if (found.kind !== "user's" || found.rest.length > 0) throw notPlain(path);
    await using handle = await openDirectory(found.path);
    await handle.chmod(privateMode);
  }

  /** Whether something is there. */
  async has(path: string): Promise<boolean> {
    return (await this.#identity.stat(this.root, path)) !== undefined;
  }

  /** `rename(2)`, durable. */
  async rename(from: string, to: string): Promise<void> {
    if (!(await this.#isFixed(dirname(from))) || !(await this.#isFixed(dirname(to)))) {
      await this.#identity.rename(this.root, from, to);
      return;
    }
    await rename(join(this.root, from), join(this.root, to));
    for (const parent of new Set([dirname(from), dirname(to)])) await syncDirectory(join(this.root, parent));
  }

  /** Has what was set aside be in its place again; nothing is done where nothing was. */
  async putBack(from: string, to: string): Promise<void> {
    if (!(await this.has(from))) return;
    await this.remove(to);
    await this.rename(from, to);
  }

  /** Replaces a file of the user's. */
  async writeFile(path: string, content: string): Promise<void> {
    await this.makeDirs([dirname(path)]);
    if (!(await this.#isFixed(dirname(path)))) {
      await this.#identity.writeFile(this.root, path, content);
      return;
    }
    const target = join(this.root, path);
    const temporary = `${target}.${randomUUID()}`;
    await this.#create(temporary, async (handle) => {
      await handle.writeFile(content);
      await handle.datasync();
    });
    await rename(temporary, target);
    await syncDirectory(dirname(target));
  }

  /** Removes whatever is there; nothing is fine. */
  async remove(path: string): Promise<{ freedBytes: number }> {
    if (!this.#isShared) return this.#identity.removeTree(this.root, path);
    const found = await this.#find(path);
    if (found.rest.length === 0) return { freedBytes: await this.#remove(path, found) };
    return found.kind === "user's" ? this.#identity.removeTree(this.root, path) : { freedBytes: 0 };
  }

  /** Removes the root with all that is in it. */
  async destroy(): Promise<{ freedBytes: number }> {
    return { freedBytes: await this.#remove("", await this.#find("")) };
  }

  /**
   * Copies what is at `path`, if something is, to where nothing is.
   * @returns the bytes that were copied
   */
  async copy(path: string, to: OwnedTree, toPath: string, options: CopyTreeOptions = {}): Promise<number> {
    const found = await this.#find(path);
    if (!this.#isShared || found.rest.length > 0 || ["user's", "missing"].includes(found.kind)) {
      if (!(await this.has(path))) return 0;
      await to.makeDirs([toPath]);
      const { copiedBytes } = await this.#identity.copyTree(
        { root: this.root, path },
        { root: to.root, path: toPath },
        options,
      );
      return copiedBytes;
    }
    if (found.kind === "other") return this.#copyEntry(path, found, to, toPath);
    await to.#fix(await to.#find(toPath));
    let doneBytes = 0;
    for (const name of await readdir(found.path)) {
      const before = doneBytes;
      const onProgress = (progress: CopyProgress): void =>
        options.onProgress?.({ doneBytes: before + progress.doneBytes });
      doneBytes += await this.copy(join(path, name), to, join(toPath, name), { ...options, onProgress });
    }
    return doneBytes;
  }

  /** A file or a link in a fixed directory, to another fixed directory. */
  async #copyEntry(
    path: string,
    { path: from, stats }: Found,
    to: OwnedTree,
    toPath: string,
  ): Promise<number> {
    const target = join(to.root, toPath);
    if (!(await to.#isFixed(dirname(toPath)))) throw notPlain(toPath);
    const { uid, gid } = this.#identity.user;
    if (stats?.isSymbolicLink() === true) {
      await symlink(await readlink(from), target);
      await lchown(target, uid, gid);
      return 0;
    }
    if (stats?.isFile() !== true) return 0;
    await to.#create(target, async (handle) => {
      for await (const chunk of this.#identity.openRead(this.root, path))
        await handle.writeFile(chunk as Buffer);
      await handle.chmod(stats.mode & 0o777);
      await handle.datasync();
    });
    return stats.blocks * 512;
  }

  /** A new file of the user's in a fixed directory; it is gone again when filling it fails. */
  async #create(
    path: string,
    fill: (handle: Awaited<ReturnType<typeof open>>) => Promise<void>,
  ): Promise<void> {
    const { uid, gid } = this.#identity.user;
    await using handle = await open(path, "wx", 0o600);
    try {
      await fill(handle);
      await handle.chown(uid, gid);
    } catch (error) {
      await unlink(path);
      throw error;
    }
  }

  async #remove(path: string, { kind, path: absolute, stats }: Found): Promise<number> {
    if (kind === "missing") return 0;
    if (kind === "user's" || (kind === "fixed" && !this.#isShared)) {
      const { freedBytes } = await this.#identity.removeTree(absolute, ".");
      return freedBytes + (await removeEmptyDir(absolute));
    }
    if (kind === "other") {
      // A directory of somebody else's is not empty, or nobody would miss it.
      await (stats?.isDirectory() === true ? rmdir(absolute) : unlink(absolute));
      return (stats?.blocks ?? 0) * 512;
    }
    let freedBytes = 0;
    for (const name of await readdir(absolute)) {
      const below = join(path, name);
      freedBytes += await this.#remove(below, await this.#find(below));
    }
    return freedBytes + (await removeEmptyDir(absolute));
  }

  async #isFixed(path: string): Promise<boolean> {
    if (!this.#isShared) return false;
    const { kind, rest } = await this.#find(path === "." ? "" : path);
    return kind === "fixed" && rest.length === 0;
  }

  /** Never goes through anything but fixed directories. */
  async #find(path: string): Promise<Found> {
    const names = namesOf(path);
    let found = await this.#look(this.root);
    for (const [index, name] of names.entries()) {
      if (found.kind !== "fixed") return { ...found, rest: names.slice(index) };
      found = await this.#look(join(found.path, name));
    }
    return found;
  }

  async #look(path: string): Promise<Found> {
    try {
      const stats = await lstat(path);
      const { uid } = stats;
      if (!stats.isDirectory()) return { path, kind: "other", rest: [], stats };
      if (uid === this.#selfUid) return { path, kind: "fixed", rest: [], stats };
      return { path, kind: uid === this.#identity.user.uid ? "user's" : "other", rest: [], stats };
    } catch (error) {
      if (!hasCode(error, "ENOENT")) throw error;
      return { path, kind: "missing", rest: [] };
    }
  }

  async #fix({ path, kind, rest, stats }: Found): Promise<void> {
    if (rest.length > 0 || kind === "other") throw notPlain(path);
    const { gid } = this.#identity.user;
    if (kind === "fixed" && stats?.gid === gid && (stats.mode & 0o7777) === fixedMode) return;
    if (kind === "missing") await mkdir(path, privateMode);
    await using handle = await openDirectory(path);
    const { uid } = await handle.stat();
    if (uid !== this.#selfUid && uid !== this.#identity.user.uid) throw notPlain(path);
    // In this order: of what is not theirs any more the user cannot change the mode.
    await handle.chown(this.#selfUid, gid);
    await handle.chmod(fixedMode);
    await syncDirectory(dirname(path));
  }

  /** The deepest first, so that no fixed directory ever lies in one of the user's. */
  async #giveBack(path: string, kept: ReadonlySet<string>): Promise<void> {
    const { uid, gid } = this.#identity.user;
    for (const entry of await readdir(join(this.root, path), { withFileTypes: true })) {
      const below = join(path, entry.name);
      if (!entry.isDirectory() || (await this.#look(join(this.root, below))).kind !== "fixed") continue;
      await this.#giveBack(below, kept);
      if (kept.has(below)) continue;
      await using handle = await openDirectory(join(this.root, below));
      await handle.chmod(privateMode);
      await handle.chown(uid, gid);
    }
  }
}

/** The directories between the root and a path. */
function leadingTo(path: string): string[] {
  const names = namesOf(path);
  return names.slice(1).map((_, index) => names.slice(0, index + 1).join("/"));
}

/** @throws Error for a path that leads out */
function namesOf(path: string): string[] {
  const names = path.split("/").filter((name) => name !== "" && name !== ".");
  if (path.startsWith("/") || names.includes("..")) throw new Error(`"${path}" leads out of the directory`);
  return names;
}

function openDirectory(path: string): ReturnType<typeof open> {
  return open(path, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
}

function notPlain(path: string): Error {
  return new SvcError("not_possible", `${path} is to be a directory and is, or lies behind, something else`);
}
