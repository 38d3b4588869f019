/** The author's package files, read with the author's rights; symlinks in the package are not followed. */
import { lstat, readdir, readFile } from "node:fs/promises";
import { join, posix } from "node:path";
import { SvcError } from "../errors.ts";
import type { UserHelper } from "../run-as/user-helper.ts";
import type { EntryInfo, EntryType } from "../run-as/user-helper-types.ts";

const missing = new Set(["ENOENT", "ENOTDIR"]);

export class PackageFiles implements Pick<UserHelper, "stat" | "readFile"> {
  readonly root: string;

  constructor(root: string) {
    this.root = root;
  }

  async stat(root: string, path: string): Promise<EntryInfo | undefined> {
    const parts = posix.normalize(path).split("/");
    let info: EntryInfo | undefined;
    for (let count = 1; count <= parts.length; count++) {
      const stats = await lstat(join(root, ...parts.slice(0, count))).catch((error: unknown) => {
        if (missing.has((error as NodeJS.ErrnoException).code ?? "")) return undefined;
        throw error;
      });
      if (stats === undefined) return undefined;
      const type: EntryType = stats.isSymbolicLink()
        ? "symlink"
        : stats.isDirectory()
          ? "directory"
          : stats.isFile()
            ? "file"
            : "other";
      const { mode, uid, gid, mtimeMs } = stats;
      info = { type, sizeBytes: stats.size, mode: mode & 0o7777, uid, gid, modifiedMs: mtimeMs };
      if (type === "symlink") return info;
    }
    return info;
  }

  async readFile(root: string, path: string, { maxBytes = 1024 * 1024 } = {}): Promise<Buffer> {
    const info = await this.stat(root, path);
    if (info === undefined) throw new SvcError("package_invalid", `there is no ${path}`);
    if (info.type !== "file") throw new SvcError("package_invalid", `${path} is not a regular file`);
    if (info.sizeBytes > maxBytes)
      throw new SvcError("package_invalid", `${path} has more than ${maxBytes} bytes`);
    return readFile(join(root, path));
  }

  /** The file's text; `undefined` if it does not exist. */
  async text(path: string): Promise<string | undefined> {
    return (await this.type(path)) === "file" ? (await this.readFile(this.root, path)).toString() : undefined;
  }

  async type(path: string): Promise<EntryType | undefined> {
    return (await this.stat(this.root, path))?.type;
  }

  /** Whether an entry of that name exists, including symlinks. */
  async has(path: string): Promise<boolean> {
    return (await this.type(path)) !== undefined;
  }

  /** Names in the root directory. */
  names(): Promise<string[]> {
    return readdir(this.root);
  }
}

/** Planned files, as if they were the only ones in the directory. */
export class PlannedFiles extends PackageFiles {
  readonly #texts: ReadonlyMap<string, string>;

  /** @param texts by name */
  constructor(root: string, texts: Readonly<Record<string, string>>) {
    super(root);
    this.#texts = new Map(Object.entries(texts));
  }

  override stat(_root: string, path: string): Promise<EntryInfo | undefined> {
    const text = this.#texts.get(posix.normalize(path));
    const info: EntryInfo | undefined =
      text === undefined
        ? undefined
        : { type: "file", sizeBytes: Buffer.byteLength(text), mode: 0o644, uid: 0, gid: 0, modifiedMs: 0 };
    return Promise.resolve(info);
  }

  override readFile(_root: string, path: string): Promise<Buffer> {
    return Promise.resolve(Buffer.from(this.#texts.get(posix.normalize(path)) ?? ""));
  }

  override names(): Promise<string[]> {
    return Promise.resolve([...this.#texts.keys()]);
  }
}

/** Such as `.env.example`, `env.sample` and `example.env`. */
const exampleForm =
  /^(?:\.?env[._-](?:example|sample|template|dist|default)|(?:example|sample|template|default)\.env)$/i;

/** The file that `.env` is to be copied from, if the author of the package has provided one and `.env` is missing. */
export async function unreadExample(files: PackageFiles): Promise<string | undefined> {
  return (await files.has(".env"))
    ? undefined
    : (await files.names()).toSorted().find((name) => exampleForm.test(name));
}
