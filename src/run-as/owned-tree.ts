/**
 * A daemon-owned directory with a user's files in it: `<store>/apps/<id>`. A user who can write to a directory can replace its entries
 * with links, so the daemon works by path only in fixed directories. Each directory of the tree is of one of three kinds:
 * - *fixed*: the root, and every directory above a path that a container mounts. Owned by the daemon, which creates, renames and
 *   removes its entries and never follows links; the user may only list and enter it.
 * - *user's*: owned by the user, with everything below it. All work there is done as the user.
 * - *unowned*: a directory of root that the user moved into the tree, such as the engine's or another file system. Never fixed, given
 *   to the user, or removed with content.
 *
 * If the daemon runs as the user, all directories are equal.
 */
import { randomUUID } from "node:crypto";
import { type Stats } from "node:fs";
import { lchown, open, opendir, readdir, readlink, rename, rmdir, symlink, unlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import { SvcError } from "../errors.ts";
import { openOnlyTo } from "../sys/access-list.ts";
import type { UserHelper } from "./user-helper.ts";
import type { CopyProgress, CopyTreeOptions, EntryType } from "./user-helper-types.ts";
import { makeOwnedDir, privateMode, removeEmptyDir, syncDirectory } from "./owned-dir.ts";
import { FixedDirectories, leadingTo, notPlain, openDirectory, type Found } from "./fixed-directories.ts";

export interface OwnedTreeOptions {
  /** Absolute. */
  root: string;
  /** Performs the work below fixed directories. */
  userHelper: UserHelper;
  /** The daemon's uid. */
  selfUid: number;
}

export class OwnedTree {
  readonly root: string;
  readonly #userHelper: UserHelper;
  readonly #selfUid: number;
  readonly #fixed: FixedDirectories;

  constructor({ root, userHelper, selfUid }: OwnedTreeOptions) {
    this.root = root;
    this.#userHelper = userHelper;
    this.#selfUid = selfUid;
    this.#fixed = new FixedDirectories({ root, user: userHelper.user, selfUid });
  }

  /** Creates the root. @throws SvcError `already_exists`; `not_possible` if others may write to its parent */
  async create(): Promise<void> {
    await makeOwnedDir(this.root, this.#userHelper.user, this.#selfUid);
    await this.claim();
  }

  /** Whether the root exists. */
  async exists(): Promise<boolean> {
    return (await this.#fixed.find("")).kind !== "missing";
  }

  /**
   * Makes the daemon the owner of the root, if the root exists and still belongs to the user. Other members of the user's
   * group cannot enter the root, unless the file system does not support access control lists.
   */
  async claim(): Promise<void> {
    if (!this.#fixed.isShared) return;
    const found = await this.#fixed.find("");
    if (found.kind === "missing") return;
    await this.#fixed.fix(found);
    await openOnlyTo(this.root, this.#userHelper.user.uid);
  }

  /**
   * Makes the directories that lead to these paths fixed, so that only the daemon can rename the paths. All other fixed
   * directories become the user's again. Missing directories on the way are created.
   * @param paths relative to the root
   * @throws SvcError `not_possible` if an entry on the way is not a directory of the user
   */
  async hold(paths: readonly string[]): Promise<void> {
    if (!this.#fixed.isShared) return;
    await this.claim();
    const leading = new Set(paths.flatMap(leadingTo));
    for (const path of [...leading].sort((a, b) => a.length - b.length))
      await this.#fixed.fix(await this.#fixed.find(path));
    await this.#fixed.release("", leading);
  }

  /** Creates directories of the user and their parents; existing ones stay unchanged. */
  async makeDirs(paths: readonly string[]): Promise<void> {
    for (const path of paths) {
      const found = this.#fixed.isShared ? await this.#fixed.find(path) : undefined;
      if (found?.kind === "missing") await makeOwnedDir(found.path, this.#userHelper.user, this.#selfUid);
      if (found?.kind === "other") throw notPlain(path);
      if (found === undefined || found.rest.length > 0) await this.#userHelper.makeDirs(this.root, [path]);
    }
  }

  /** Restricts a directory of the user to the user, whatever its mode is. */
  async close(path: string): Promise<void> {
    if (!this.#fixed.isShared) return;
    const found = await this.#fixed.find(path);
    if (found.kind !== "user's" || found.rest.length > 0) throw notPlain(path);
    await using handle = await openDirectory(found.path);
    await handle.chmod(privateMode);
  }

  /**
   * Returns the type of the entry at a path whose parent directories are fixed. The daemon reads it itself, because the
   * user controls the responses of their helper. It stays a directory or a file while it is held: only the daemon can
   * rename or replace it.
   * @returns `undefined` if nothing is there, `other` if a parent is not fixed
   */
  async heldType(path: string): Promise<EntryType | undefined> {
    const { kind, rest, stats } = await this.#fixed.find(path);
    if (kind === "missing") return undefined;
    return rest.length === 0 && stats !== undefined ? typeOf(stats) : "other";
  }

  /** Whether the path exists. */
  async has(path: string): Promise<boolean> {
    return (await this.#userHelper.stat(this.root, path)) !== undefined;
  }

  /** `rename(2)`, durable. */
  async rename(from: string, to: string): Promise<void> {
    if (!(await this.#fixed.isFixed(dirname(from))) || !(await this.#fixed.isFixed(dirname(to)))) {
      await this.#userHelper.rename(this.root, from, to);
      return;
    }
    await rename(join(this.root, from), join(this.root, to));
    for (const parent of new Set([dirname(from), dirname(to)])) await syncDirectory(join(this.root, parent));
  }

  /** Moves a backup back to its original path; does nothing without a backup. */
  async moveBack(from: string, to: string): Promise<void> {
    if (!(await this.has(from))) return;
    await this.remove(to);
    await this.rename(from, to);
  }

  /** Replaces a file of the user. @param mode permission bits */
  async writeFile(path: string, content: string, mode = 0o600): Promise<void> {
    await this.makeDirs([dirname(path)]);
    if (!(await this.#fixed.isFixed(dirname(path)))) {
      await this.#userHelper.writeFile(this.root, path, content, { mode });
      return;
    }
    const target = join(this.root, path);
    const temporary = `${target}.${randomUUID()}`;
    await this.#create(temporary, async (handle) => {
      await handle.writeFile(content);
      await handle.chmod(mode);
      await handle.datasync();
    });
    await rename(temporary, target);
    await syncDirectory(dirname(target));
  }

  /** Removes whatever is at the path; succeeds if nothing is. */
  async remove(path: string): Promise<{ freedBytes: number }> {
    if (!this.#fixed.isShared) return this.#userHelper.removeTree(this.root, path);
    const found = await this.#fixed.find(path);
    if (found.rest.length === 0) return { freedBytes: await this.#remove(path, found) };
    return found.kind === "user's" || found.kind === "unowned"
      ? this.#userHelper.removeTree(this.root, path)
      : { freedBytes: 0 };
  }

  /** Removes the root with its content. */
  async destroy(): Promise<{ freedBytes: number }> {
    return { freedBytes: await this.#remove("", await this.#fixed.find("")) };
  }

  /**
   * Copies the entry at `path`, if it exists, to a path that does not exist.
   * @returns copied bytes
   */
  async copy(path: string, to: OwnedTree, toPath: string, options: CopyTreeOptions = {}): Promise<number> {
    const found = await this.#fixed.find(path);
    // Such as one that a container gave to its own user.
    const isOthersDirectory = found.kind === "other" && found.stats?.isDirectory() === true;
    if (
      !this.#fixed.isShared ||
      found.rest.length > 0 ||
      isOthersDirectory ||
      ["user's", "unowned", "missing"].includes(found.kind)
    ) {
      if (!(await this.has(path))) return 0;
      await to.makeDirs([toPath]);
      const { copiedBytes } = await this.#userHelper.copyTree(
        { root: this.root, path },
        { root: to.root, path: toPath },
        options,
      );
      return copiedBytes;
    }
    if (found.kind === "other") return this.#copyEntry(path, found, to, toPath);
    await to.#fixed.fix(await to.#fixed.find(toPath));
    let doneBytes = 0;
    for (const name of await readdir(found.path)) {
      const before = doneBytes;
      const onProgress = (progress: CopyProgress): void =>
        options.onProgress?.({ doneBytes: before + progress.doneBytes });
      doneBytes += await this.copy(join(path, name), to, join(toPath, name), { ...options, onProgress });
    }
    return doneBytes;
  }

  /** Copies a file or a link from a fixed directory to another fixed directory. */
  async #copyEntry(
    path: string,
    { path: from, stats }: Found,
    to: OwnedTree,
    toPath: string,
  ): Promise<number> {
    const target = join(to.root, toPath);
    if (!(await to.#fixed.isFixed(dirname(toPath)))) throw notPlain(toPath);
    const { uid, gid } = this.#userHelper.user;
    if (stats?.isSymbolicLink() === true) {
      await symlink(await readlink(from), target);
      await lchown(target, uid, gid);
      return 0;
    }
    if (stats?.isFile() !== true) return 0;
    await to.#create(target, async (handle) => {
      for await (const chunk of this.#userHelper.openRead(this.root, path))
        await handle.writeFile(chunk as Buffer);
      await handle.chmod(stats.mode & 0o777);
      await handle.datasync();
    });
    return stats.blocks * 512;
  }

  /** Creates a file of the user in a fixed directory; removes it if writing fails. */
  async #create(
    path: string,
    fill: (handle: Awaited<ReturnType<typeof open>>) => Promise<void>,
  ): Promise<void> {
    const { uid, gid } = this.#userHelper.user;
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
    if (kind === "user's" || (kind === "fixed" && !this.#fixed.isShared)) {
      try {
        const { freedBytes } = await this.#userHelper.removeTree(absolute, ".");
        return freedBytes + (await removeEmptyDir(absolute));
      } catch (error) {
        if (!this.#fixed.isShared || !(error instanceof SvcError) || error.reason !== "denied") throw error;
        return this.#removeRemains(path, error as SvcError);
      }
    }
    if (kind === "unowned") return this.#fixed.removeUnowned(path);
    if (kind === "other") {
      // `rmdir` fails if another user's directory is not empty, so no content is lost.
      await (stats?.isDirectory() === true ? rmdir(absolute) : unlink(absolute));
      return (stats?.blocks ?? 0) * 512;
    }
    let freedBytes = 0;
    for (const name of await readdir(absolute)) {
      const below = join(path, name);
      freedBytes += await this.#remove(below, await this.#fixed.find(below));
    }
    return freedBytes + (await removeEmptyDir(absolute));
  }

  /**
   * Removes a directory of the user that contains directories created by the engine as root: mount points and working
   * directories. The directories that lead there become fixed first. Directories of the engine may contain only
   * directories.
   * @param denied the error that the user got
   */
  async #removeRemains(path: string, denied: SvcError): Promise<number> {
    await this.#fixed.fix(await this.#fixed.find(path));
    const absolute = join(this.root, path);
    let freedBytes = 0;
    for await (const { name } of await opendir(absolute)) {
      const below = join(path, name);
      const found = await this.#fixed.find(below);
      freedBytes +=
        found.kind === "fixed" || found.kind === "unowned"
          ? await this.#fixed.removeUnowned(below, denied)
          : await this.#remove(below, found);
    }
    return freedBytes + (await removeEmptyDir(absolute));
  }
}

function typeOf(stats: Stats): EntryType {
  if (stats.isFile()) return "file";
  if (stats.isDirectory()) return "directory";
  return stats.isSymbolicLink() ? "symlink" : "other";
}
