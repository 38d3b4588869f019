/** An archive that is open for reading. Its content is read as the owner of its files, never as root. */
import { Readable } from "node:stream";
import { volumeOfTree } from "../../apps/lifecycle/backed-up-trees.ts";
import type { UnpackTarget } from "../../apps/changes/restore.ts";
import type { WorkOptions } from "../../work/progress.ts";
import { notFound, SvcError } from "../../errors.ts";
import type { UserHelper } from "../../run-as/user-helper.ts";
import type {
  ArchivedEntry,
  ArchivePart,
  DescribedArchive,
  FramePlace,
  LocatedFile,
  LocatedPaths,
  ReadArchiveResult,
} from "../../run-as/user-helper-types.ts";
import { requireSpace } from "./spool.ts";
import {
  readFooter,
  readIndexPart,
  readTables,
  type ArchiveFooter,
  type IdentifiedFooter,
} from "./archive-footer.ts";
import type { StoredFile } from "../storages/storage.ts";

export class Archive implements AsyncDisposable {
  readonly footer: ArchiveFooter;
  /** See `footerDigest`. */
  readonly digest: string;
  /** Size on its storage. */
  readonly sizeBytes: number;
  readonly #file: StoredFile;
  readonly #described: DescribedArchive;

  private constructor(file: StoredFile, { footer, digest }: IdentifiedFooter, sizeBytes: number) {
    this.#file = file;
    this.footer = footer;
    this.digest = digest;
    this.sizeBytes = sizeBytes;
    this.#described = { parts: footer.parts, uid: footer.app.run_uid, trees: footer.trees };
  }

  /**
   * Takes ownership of the file.
   * @param sizeBytes size on its storage, if the file is a decrypted view
   * @throws SvcError `archive_damaged`
   */
  static async open(file: StoredFile, signal?: AbortSignal, sizeBytes = file.sizeBytes): Promise<Archive> {
    try {
      return new Archive(file, await readFooter(file, signal), sizeBytes);
    } catch (error) {
      await file[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** The index, with the data to verify it. */
  index(signal?: AbortSignal): ArchivePart & { index: () => AsyncIterable<Buffer> } {
    const { parts } = this.footer;
    return { ...parts.index, index: () => readIndexPart(this.#file, parts, signal) };
  }

  /** Verifies the whole archive against its tables. @throws SvcError `archive_damaged` */
  async verify(userHelper: UserHelper, work: WorkOptions): Promise<ReadArchiveResult> {
    return userHelper.readArchive(this.#described, this.#input(work.signal), this.#reading("verify", work));
  }

  /** Verifies the archive, and unpacks it to directories, including engine volumes. */
  async unpackForTest(userHelper: UserHelper, root: string, work: WorkOptions): Promise<ReadArchiveResult> {
    await requireSpace(root, this.footer.parts.tarBytes);
    return userHelper.readArchive(this.#described, this.#input(work.signal), {
      ...this.#reading("verify", work),
      target: { root, into: this.footer.trees },
    });
  }

  /**
   * Verifies the archive, and unpacks its trees.
   * @param paths only these and everything below; empty: everything
   */
  async unpack(
    { userHelper, root, into, takeVolume }: UnpackTarget,
    paths: readonly string[],
    work: WorkOptions,
  ): Promise<ReadArchiveResult> {
    // Engine volumes are not among the target directories.
    const rest = [...into];
    const target = {
      root,
      into: this.footer.trees.map((tree) =>
        volumeOfTree(tree) === undefined ? (rest.shift() ?? null) : null,
      ),
      takeVolume: (tree: string, tar: Readable) => takeVolume(volumeOfTree(tree) ?? "", tar),
      // Files that a differential archive lacks are copied from the app.
      ...(this.footer.since !== undefined && {
        base: this.footer.trees.map((tree) => (volumeOfTree(tree) === undefined ? tree : null)),
      }),
    };
    if (paths.length === 0) {
      // Checked before unpacking, since a small archive may unpack to a large size.
      await requireSpace(root, this.footer.parts.tarBytes);
      return userHelper.readArchive(this.#described, this.#input(work.signal), {
        ...this.#reading("restore", work),
        target,
      });
    }
    const { frames, contentBytes } = await this.locate(userHelper, paths, work);
    return userHelper.readArchive(this.#described, this.#input(work.signal, frames), {
      ...this.#reading("restore", work, contentBytes),
      ...{ target, paths },
      frames: frames.map(({ number }) => number),
    });
  }

  /** @throws SvcError `not_found` */
  async locate(
    userHelper: UserHelper,
    paths: readonly string[],
    { signal }: WorkOptions,
  ): Promise<LocatedPaths> {
    try {
      return await userHelper.locateInArchive(this.#described, this.#tables(signal), paths, { signal });
    } catch (error) {
      throw notArchived(error);
    }
  }

  /** @param directory empty: the archive's root. @throws SvcError `not_found` */
  async browse(
    userHelper: UserHelper,
    page: { directory: string; after: number; limit: number },
    signal?: AbortSignal,
  ): Promise<{ entries: ArchivedEntry[]; more: boolean }> {
    const { directory } = page;
    try {
      return await userHelper.browseArchive(this.#described, this.#tables(signal), {
        ...page,
        signal,
      });
    } catch (error) {
      if (!(error instanceof SvcError && error.reason === "not_found")) throw error;
      throw notFound("directory", directory, `the archive has no directory "${directory}"`, error);
    }
  }

  /** @throws SvcError `not_found`, `denied` unless it is a regular file */
  async findFile(userHelper: UserHelper, path: string, signal?: AbortSignal): Promise<LocatedFile> {
    try {
      return await userHelper.locateFileInArchive(this.#described, this.#tables(signal), path, { signal });
    } catch (error) {
      throw notArchived(error);
    }
  }

  /** The bytes of a file; the stream fails if they do not match the index. */
  readFile(userHelper: UserHelper, file: LocatedFile, signal?: AbortSignal): Readable {
    return userHelper.readFileOfArchive(this.#described, this.#input(signal, file.frames), file, { signal });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#file[Symbol.asyncDispose]();
  }

  #reading(step: string, { signal, onProgress }: WorkOptions, totalBytes = this.footer.parts.contentBytes) {
    return {
      signal,
      onProgress: (doneBytes: number) =>
        onProgress?.({ step, message: "", doneBytes: BigInt(doneBytes), totalBytes: BigInt(totalBytes) }),
    };
  }

  #tables(signal?: AbortSignal): Readable {
    return Readable.from(readTables(this.#file, this.footer.parts, signal));
  }

  /** The tables, then the given frames; default: all frames. */
  #input(signal?: AbortSignal, frames?: readonly FramePlace[]): Readable {
    const { parts } = this.footer;
    const file = this.#file;
    return Readable.from(
      (async function* () {
        yield* readTables(file, parts, signal);
        for (const { at, bytes } of frames ?? [{ at: 0, bytes: parts.framesBytes }]) {
          yield* file.read(at, at + bytes, signal);
        }
      })(),
    );
  }
}

/** Explains a missing path, because the helper's error does not mention the archive. Other errors stay unchanged. */
function notArchived(error: unknown): unknown {
  if (!(error instanceof SvcError && error.reason === "not_found")) return error;
  const { kind = "", name = "" } = (error as SvcError<"not_found">).payload ?? {};
  const message = `the archive has no "${name}"; list its paths with: svc backup browse ID ARCHIVE`;
  return kind === "file" ? notFound("file", name, message, error) : error;
}
